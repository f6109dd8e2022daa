"""Maps of the observations that policies visit, for environments without a table."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from occupax.analysis.charts import HeatMap, Maps
from occupax.envs.base import observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.tabular import TabularMDP
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers import sample

CELLS = 24
"""Number of cells along each of the two coordinates."""
EPISODES = 200
"""Number of sampled episodes."""
GYMNASIUM_EPISODES = 10
"""Number of sampled episodes in Gymnasium, where they take longer."""
MAX_STEPS = 100_000
"""Largest number of sampled steps."""
OUTSIDE = 0.002
"""Fraction of the visits below the lower and above the upper edge of the map."""


class Visited(NamedTuple):
    """Observations at the steps of sampled episodes."""

    observations: Float[np.ndarray, "steps k"]
    weights: Float[np.ndarray, " steps"]
    """Discounted visits per episode of each step."""


def has_density(problem: Problem) -> bool:
    """Return whether observations are vectors of two or more numbers."""
    if isinstance(problem.env, TabularMDP):
        return False
    spec = observation_spec(problem.env)
    shape = getattr(spec, "shape", ())
    return len(shape) == 1 and shape[0] > 1


def density_maps(
    name: str,
    problem: Problem,
    policies: Sequence[tuple[str, Policy]],
    episodes: int | None = None,
    seed: int = 0,
) -> Maps:
    """Return maps of the visits of policies over two coordinates of the observation.

    The coordinates are the first two that vary.

    Args:
        name: Name of the figure.
        problem: Problem with observations that are vectors.
        policies: Pairs of a title and a policy.
        episodes: Number of sampled episodes, by default 200, or 10 in Gymnasium, and fewer for
            more than 100,000 steps.
        seed: Seed of the episodes.

    Returns:
        One map for each policy, on the same edges.
    """
    count = episodes or _default_episodes(problem)
    visited = [_visit(problem, policy, count, seed) for _, policy in policies]
    first, second = _coordinates(visited)
    edges = [_edges(visited, first), _edges(visited, second)]
    grids: list[HeatMap] = []
    for (title, _), part in zip(policies, visited, strict=True):
        points = part.observations[:, [first, second]]
        points = np.clip(points, [edges[0][0], edges[1][0]], [edges[0][-1], edges[1][-1]])
        cells, _, _ = np.histogram2d(*points.T, bins=edges, weights=part.weights)
        grids.append(HeatMap(title, cells.T[::-1]))
    caption = (
        f"Discounted visits of observations, estimated from {count:,} episodes. "
        "Brighter is more often; hatched is never."
    )
    labels = [_axis_label(first, edges[0]), _axis_label(second, edges[1])]
    return Maps(name, "Visits", caption, tuple(grids), *labels)


def _default_episodes(problem: Problem) -> int:
    most = EPISODES
    if isinstance(problem.env, GymnasiumEnv):
        most = GYMNASIUM_EPISODES
    return max(1, min(most, MAX_STEPS // problem.sampling_horizon()))


def _visit(problem: Problem, policy: Policy, episodes: int, seed: int) -> Visited:
    """Return the observations of sampled episodes up to their ends."""
    batch = sample(problem, policy, episodes, jax.random.key(seed))
    is_live = np.asarray(batch.live)
    discounts = problem.discount ** np.arange(is_live.shape[1])
    weights = np.broadcast_to(discounts / episodes, is_live.shape)
    observations = np.asarray(batch.observations, float)
    return Visited(observations[is_live], weights[is_live])


def _coordinates(visited: Sequence[Visited]) -> tuple[int, int]:
    """Return the first two entries of the observation that vary."""
    everything = np.concatenate([part.observations for part in visited])
    varying = np.flatnonzero(np.ptp(everything, axis=0) > 0)
    others = np.setdiff1d(np.arange(everything.shape[1]), varying)
    first, second = np.concatenate([varying, others])[:2]
    return int(first), int(second)


def _edges(visited: Sequence[Visited], coordinate: int) -> Float[np.ndarray, " edges"]:
    """Return the edges of the cells along a coordinate, without the outermost visits."""
    values = np.concatenate([part.observations[:, coordinate] for part in visited])
    low, high = np.quantile(values, [OUTSIDE, 1 - OUTSIDE])
    if high <= low:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, CELLS + 1)


def _axis_label(coordinate: int, edges: Float[np.ndarray, " edges"]) -> str:
    return f"observation[{coordinate}], {edges[0]:.3g} to {edges[-1]:.3g}"

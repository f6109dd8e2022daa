"""Figures of the visits of policies."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jaxtyping import Float

from occupax import exact
from occupax.analysis.charts import HeatMap, Maps
from occupax.analysis.densities import density_maps, has_density
from occupax.analysis.plots import draw
from occupax.analysis.verdict import short
from occupax.analysis.visits import grid_map, occupancy_map
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer
from occupax.exact import Optimum
from occupax.policies import Policy, check_policy_fits
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.training.assessment import counted_grid
from occupax.training.evaluation import PolicyEvaluator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNIFORM = "uniform"
EPISODES = 200
"""Number of sampled episodes on a grid of observations."""


def occupancy(
    problem: ProblemSource,
    *policies: Any,
    titles: Sequence[str | None] | None = None,
    episodes: int | None = None,
    seed: int = 0,
) -> "Figure":
    """Draw the discounted visits of policies side by side, on one scale of colours.

    A table with a layout is drawn as its map, with exact visits and arrows for the most probable
    moves. `Grid` features are drawn as their cells, and other observations over their first two
    entries that vary, both estimated from sampled episodes.

    Args:
        problem: a problem, an environment or its name.
        *policies: one or more of: a policy, the `Optimum` of `ox.solve`, "uniform", and on a table
            an agent with `predict`, a function of the state, or an occupancy, an array [S, A] or
            [S].
        titles: one title for each policy, None for its kind and its exact utility.
        episodes: number of sampled episodes, unless the problem is tabular; by default 200, or 10
            in Gymnasium.
        seed: seed of the sampled episodes.

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: if a table has no layout, observations are neither vectors nor in a `Grid`, or
            a policy does not fit.
    """
    problem = as_problem(problem)
    if not policies:
        raise ValueError("policies must hold at least one policy, got none.")
    if titles is not None and len(titles) != len(policies):
        raise ValueError(f"titles must hold {len(policies)} strings, got {len(titles)}.")
    if episodes is not None:
        episodes = check_integer("episodes", episodes)
    if titles is None:
        titles = [None] * len(policies)
    pairs = list(zip(titles, policies, strict=True))
    if isinstance(problem.env, TabularMDP):
        grids = [_table_map(problem, policy, title) for title, policy in pairs]
        return draw(Maps("visits", "", "", tuple(grids)), bare=True)
    sampled = [(title or "policy", _sampled_policy(problem, policy)) for title, policy in pairs]
    if counted_grid(problem) is not None:
        return draw(_grid_maps(problem, sampled, episodes or EPISODES, seed), bare=True)
    if has_density(problem):
        return draw(density_maps("visits", problem, sampled, episodes, seed), bare=True)
    raise ValueError(
        "the environment must have a table with a layout, Grid features or observations that are "
        "vectors of two or more numbers, to be drawn."
    )


def _table_map(problem: Problem, policy: Any, title: str | None) -> HeatMap:
    """Return the map of a policy, an optimum or an occupancy."""
    if isinstance(policy, Optimum):
        default = f"optimum: {short(policy.value)}"
        is_stationary = policy.policy.ndim == 2
        return occupancy_map(
            title or default, problem, np.asarray(policy.occupancy), arrows=is_stationary
        )
    if isinstance(policy, np.ndarray | jax.Array):
        visits = _read_occupancy(problem, np.asarray(policy, float))
        return occupancy_map(title or "occupancy", problem, visits, arrows=False)
    if isinstance(policy, str):
        table: Any = _uniform(problem, policy)
        default = "uniform policy"
    else:
        table = policy
        default = "policy"
    visits = exact.occupancy(problem, table)
    value = short(float(exact.value(problem, table)))
    is_uniform = isinstance(policy, str)
    return occupancy_map(title or f"{default}: {value}", problem, visits, arrows=not is_uniform)


def _uniform(problem: Problem, name: str) -> Float[np.ndarray, "S A"]:
    if name != UNIFORM:
        raise ValueError(f'a policy by name must be "{UNIFORM}", got {name!r}.')
    env = cast("TabularMDP", problem.env)
    return np.full((env.num_states, env.num_actions), 1 / env.num_actions)


def _read_occupancy(problem: Problem, array: np.ndarray) -> Float[np.ndarray, "S A"]:
    """Return an occupancy of states and actions. Visits of states have one column."""
    env = cast("TabularMDP", problem.env)
    pairs = (env.num_states, env.num_actions)
    if array.shape == pairs:
        return array
    if array.size == env.num_states * env.num_actions:
        return array.reshape(pairs)
    if array.shape == (env.num_states,):
        return array[:, None]
    raise ValueError(
        f"an occupancy must have shape {list(pairs)} or [{env.num_states}], "
        f"got {list(array.shape)}."
    )


def _sampled_policy(problem: Problem, policy: Any) -> Policy:
    if not isinstance(policy, Policy):
        kind = type(policy).__name__
        raise ValueError(f"policies must be policies of occupax without a table, got {kind}.")
    check_policy_fits(policy, problem.env)
    return policy


def _grid_maps(
    problem: Problem, policies: Sequence[tuple[str, Policy]], episodes: int, seed: int
) -> Maps:
    """Return the estimated visits of the cells of the grid that the problem counts."""
    grid = counted_grid(problem)
    assert grid is not None  # noqa: S101
    evaluator = PolicyEvaluator(problem, policies[0][1], episodes)
    counts = evaluator.occupancies([policy for _, policy in policies], jax.random.key(seed))
    cells = int(np.prod(grid.bins))
    maps: list[Maps] = []
    for (title, _), visits in zip(policies, counts, strict=True):
        maps.append(grid_map("visits", title, grid, np.asarray(visits[:cells], float)))
    return replace(maps[0], grids=tuple(one.grids[0] for one in maps))

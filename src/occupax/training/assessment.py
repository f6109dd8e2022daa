"""What trained policies are worth, found out at the end of training and kept with the run."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from occupax import estimators, exact
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.tabular import TabularMDP
from occupax.exact.optimum import Optimum, solve_roughly
from occupax.exact.probabilities import probabilities
from occupax.features import Grid, Stack
from occupax.io import codec
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.kernel import program_sampler

FILE, FORMAT = "assessment.safetensors", "occupax-assessment"
EPISODES = 1000
GYMNASIUM_EPISODES = 100
"""Fewer, because they take longer."""
SECONDS_A_STEP = 3600.0
"""Those who train with a longer time limit than the default do not have to say so again."""
MOST_NUMBERS, MOST_PAIRS, MOST_ITERATIONS = 300_000, 500, 200
"""The optimum of a concave utility is looked for if there are at most so many pairs of state and
action, and so many numbers in a policy that depends on time (pairs times horizon), in so many
iterations: up to 3 seconds on two cores, where 800 pairs took 9."""
MOST_NUMBERS_LINEAR = 2_000_000
"""For a linear utility, which is one planning problem, this many numbers take one second."""
ROUGHLY = 0.002
"""The gap of the optimum, as a share of the way from the uniform policy."""


@dataclass(frozen=True)
class References:
    """What other policies of a problem are worth; None where it is not known."""

    first: float
    """The policy that the first seed began with: exact for a table, else estimated as that of the
    trained ones is."""
    uniform: float | None = None
    """The policy that takes all actions alike, on a table."""
    optimum: float | None = None
    """The best policy, where it can be found in a few seconds; with a horizon it may depend on
    time."""
    gap: float | None = None
    """By how much at most any policy is better than `optimum`."""

    @property
    def way(self) -> float:
        """How much better the optimum is than the uniform policy; NaN if it is not known, or not better."""
        if self.optimum is None or self.uniform is None or self.gap is None:
            return math.nan
        way = self.optimum - self.uniform
        return way if way > self.gap else math.nan

    def share(self, value: float) -> float:
        """The share of the way from the uniform policy to the optimum at which a value is; NaN if it is not known."""
        return math.nan if self.uniform is None else (value - self.uniform) / self.way


@dataclass(frozen=True)
class Assessment:
    """What the policies of all seeds are worth."""

    utilities: Float[np.ndarray, " seed"]
    """The utility of each policy; NaN if its parameters are not finite."""
    source: str
    """Where the utilities come from: "exact", or "estimate from ... new episodes"."""
    gaps: Float[np.ndarray, " seed"] | None = None
    """The certified gap of each policy, for a concave utility on a table."""
    reason: str = ""
    """Why there are no gaps, where they were tried."""
    visits: Float[np.ndarray, "seed S"] | None = None
    """How often each policy visits each state of a table in an episode, discounted and exact; for
    features that are a grid over observations, each cell of it, estimated."""
    excesses: Float[np.ndarray, "seed K"] | None = None
    """By how much each policy violates each constraint, if there are any; negative where there is
    slack."""
    references: References | None = None
    """What to compare the utilities with; None in folders that were written before it was saved."""

    def save(self, folder: Path) -> None:
        """Write the assessment into the folder of its run."""
        known = {name: getattr(self, name) for name in ("utilities", "gaps", "visits", "excesses")}
        arrays = {name: array for name, array in known.items() if array is not None}
        if self.references is not None:  # as arrays, because JSON knows no infinities
            others = asdict(self.references).items()
            arrays |= {
                f"references/{name}": np.array(value) for name, value in others if value is not None
            }
        codec.write(
            folder / FILE, arrays, {"format": FORMAT, "source": self.source, "reason": self.reason}
        )


def load_assessment(folder: Path, seeds: int) -> Assessment | None:
    """Read the assessment of so many seeds from the folder of a run, if it has one."""
    file = folder / FILE
    if not file.exists():
        return None
    arrays, content = codec.read(file)
    if content.get("format") != FORMAT or "utilities" not in arrays:
        raise ValueError(f"{file} is not the assessment of a run.")
    for name, axes in (("utilities", 1), ("gaps", 1), ("visits", 2)):
        array = arrays.get(name, np.zeros((seeds,) * axes))
        if array.ndim != axes or len(array) != seeds or array.dtype.kind != "f":
            raise ValueError(
                f"{file} must have {name} of {seeds} seeds, got {array.dtype} of shape {array.shape}."
            )
    others = {field.name: arrays.get(f"references/{field.name}") for field in fields(References)}
    if any(
        value is not None and (value.shape or value.dtype.kind != "f") for value in others.values()
    ):
        raise ValueError(f"{file} must have a number for each of its references.")
    if others["first"] is None and any(value is not None for value in others.values()):
        raise ValueError(f"{file} must say what the first policy is worth.")
    known = {name: float(value) for name, value in others.items() if value is not None}
    return Assessment(
        arrays["utilities"],
        str(content.get("source")),
        arrays.get("gaps"),
        str(content.get("reason", "")),
        arrays.get("visits"),
        arrays.get("excesses"),
        References(**known) if known else None,
    )


def assess(problem: Problem, policies: Sequence[Policy]) -> Assessment:
    """Find out what policies are worth: exactly for a table, else from episodes that were not trained on."""
    if isinstance(problem.env, TabularMDP):
        return _assess_tables(
            problem, np.array([probabilities(problem, policy) for policy in policies])
        )
    if isinstance(problem.env, GymnasiumEnv):
        with closing(EpisodeRunner(problem.env, timeout=SECONDS_A_STEP)) as runner:
            played = [_play(runner, problem, policy) for policy in policies]
        return _assess_estimates(problem, played, GYMNASIUM_EPISODES)
    source = program_sampler(problem, policies[0]).open(problem, policies[0])
    return _assess_estimates(
        problem, [_estimate(source, it, jax.random.key(0)) for it in policies], EPISODES
    )


def _assess_estimates(
    problem: Problem, occupancies: Sequence[Float[Array, " d"]], episodes: int
) -> Assessment:
    utilities = np.array([problem.estimated_utility(it) for it in occupancies], float)
    excesses = (
        np.array([problem.excesses(it) for it in occupancies], float)
        if problem.constraints
        else None
    )
    grid = counted_grid(problem)
    visits = (
        None
        if grid is None
        else np.array([it[: math.prod(grid.bins)] for it in occupancies], float)
    )
    return Assessment(
        utilities, f"estimate from {episodes:,} new episodes", visits=visits, excesses=excesses
    )


def counted_grid(problem: Problem) -> Grid | None:
    """The grid whose cells the first entries of the occupancy count, if there is one."""
    first = problem.features.parts[0] if isinstance(problem.features, Stack) else problem.features
    return first if isinstance(first, Grid) else None


def find_references(problem: Problem, first: Policy) -> References:
    """Find out what the first policy of training, the uniform one and, if it does not take long, the best are worth."""
    env = problem.env
    if not isinstance(env, TabularMDP):
        return References(float(assess(problem, [first]).utilities[0]))
    uniform, evaluator = (
        np.full((env.num_states, env.num_actions), 1 / env.num_actions),
        exact.Evaluator(problem),
    )
    values = evaluator.utilities(
        evaluator.occupancies(np.array([probabilities(problem, first), uniform]))
    )
    best = quick_optimum(problem)
    return References(*map(float, values), *(() if best is None else (best.value, best.gap)))


_solved: list[tuple[Problem, Optimum | None]] = []
"""The problem that was solved last, and its optimum: the references and the map of a report need
the same one."""


def quick_optimum(problem: Problem) -> Optimum | None:
    """Return the optimum of a tabular problem, unless the table is too large or it is not certified well enough.

    With a horizon the optimum is over policies that depend on time, so that no policy is better.
    """
    if not (problem.utility.concave and _quick(problem)):
        return None
    if not (_solved and bool(eqx.tree_equal(_solved[0][0], problem))):
        _solved[:] = [(problem, _rough_optimum(problem))]
    return _solved[0][1]


def _rough_optimum(problem: Problem) -> Optimum | None:
    try:
        return solve_roughly(problem, ROUGHLY, MOST_ITERATIONS)
    except ValueError:  # infinitely steep where a policy never goes, or limits that nobody can keep
        return None


def _quick(problem: Problem) -> bool:
    """Return whether the optimum of a table is found in a few seconds."""
    env: Any = problem.env
    pairs = env.num_states * env.num_actions
    numbers = pairs * (problem.horizon or 1)
    if problem.utility.linear and not problem.constraints:
        return numbers <= MOST_NUMBERS_LINEAR
    return pairs <= MOST_PAIRS and numbers <= MOST_NUMBERS


def _assess_tables(problem: Problem, tables: Float[np.ndarray, "seed S A"]) -> Assessment:
    evaluator = exact.Evaluator(problem)
    occupancies, gaps, reason = evaluator.occupancies(tables), None, ""
    if problem.utility.concave and (not problem.constraints or _quick(problem)):
        try:
            gaps = evaluator.gaps(occupancies)
        except (
            ValueError
        ) as error:  # infinitely steep where a policy never goes, or limits that nobody can keep
            reason = f"There is no certificate: {error}"
    nothing = np.full(tables.shape[:2], np.nan)
    visits = [
        exact.occupancy(problem, it).sum(1) if np.isfinite(it).all() else no
        for it, no in zip(tables, nothing, strict=True)
    ]
    excesses = evaluator.excesses(occupancies) if problem.constraints else None
    return Assessment(
        evaluator.utilities(occupancies), "exact", gaps, reason, np.array(visits), excesses
    )


@eqx.filter_jit
def _estimate(source: ProgramSource, policy: Policy, key: Key[Array, ""]) -> Float[Array, " d"]:
    return source.draw(policy, EPISODES, key).occupancy()


def _play(runner: EpisodeRunner, problem: Problem, policy: Policy) -> Float[Array, " d"]:
    n = GYMNASIUM_EPISODES
    drawn = runner.draw(policy, jax.random.key(0), 0, n, n, problem.sampling_horizon())
    return estimators.occupancy(problem, drawn, policy)

"""What trained policies are worth, found out at the end of training and kept with the run."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
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
from occupax.outcome import Assessment, Outcome, References
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.kernel import program_sampler
from occupax.samplers.program import ProgramSource

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


def assess_with_references(outcome: Outcome) -> Assessment | None:
    """Return the evaluation of the policies of a run beside other policies, None if unknown."""
    assessment = outcome.saved_assessment
    if assessment is None and outcome.problem is not None:
        assessment = assess(outcome.problem, outcome.policies)
    if assessment is None or assessment.references is not None:
        return assessment
    if outcome.problem is None or outcome.initial_policy is None:
        return assessment
    references = find_references(outcome.problem, outcome.initial_policy)
    return replace(assessment, references=references)


def find_references(problem: Problem, first: Policy) -> References:
    """Return the utilities of the initial, the uniform and, if quickly solved, the optimal policy."""
    return _latest_references(problem, first)


def _find_references(problem: Problem, first: Policy) -> References:
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


class LatestValue:
    """Function of pytrees that keeps its last value, for the callers that need the same value."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._arguments: Any = None
        self._value: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Return the value of the function, computed only if the arguments have changed."""
        if self._arguments is None or not bool(eqx.tree_equal(self._arguments, arguments)):
            self._value = self._function(*arguments)
            self._arguments = arguments
        return self._value


def quick_optimum(problem: Problem) -> Optimum | None:
    """Return the optimum of a tabular problem, unless the table is too large or it is not certified well enough.

    With a horizon the optimum is over policies that depend on time, so that no policy is better.
    """
    if not (problem.utility.concave and _quick(problem)):
        return None
    return _latest_optimum(problem)


def _rough_optimum(problem: Problem) -> Optimum | None:
    try:
        return solve_roughly(problem, ROUGHLY, MOST_ITERATIONS)
    except ValueError:  # infinitely steep where a policy never goes, or limits that nobody can keep
        return None


_latest_optimum = LatestValue(_rough_optimum)
_latest_references = LatestValue(_find_references)


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

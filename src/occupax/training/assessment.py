"""Evaluation of trained policies beside the initial, the uniform and the optimal policy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from occupax import exact
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.tabular import TabularMDP
from occupax.exact.optimum import Optimum, search_optimum
from occupax.exact.probabilities import probabilities
from occupax.features import Grid, Stack
from occupax.outcome import Assessment, Outcome, References
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.training.evaluation import Occupancies, PolicyEvaluator

EPISODES = 1000
"""Number of new episodes of an estimate."""
GYMNASIUM_EPISODES = 100
"""Number of new episodes in Gymnasium, where they take longer."""
SECONDS = 4.0
"""Time limit of the search for the optimum."""
MAX_ENTRIES = 20_000_000
"""Largest number of state-action pairs times horizon for the optimum of a concave utility."""
MAX_LINEAR_ENTRIES = 2_000_000
"""Largest number of state-action pairs times horizon for one planning problem: one second."""
TOLERANCE = 0.002
"""Gap of the optimum as a fraction of the difference to the uniform policy."""
MAX_GAP = 0.5
"""Largest gap of a reported optimum, as a fraction of the difference to the uniform policy."""
MIN_TOLERANCE = 1e-9
"""Gap of the optimum, relative to its value, where the uniform policy is as good."""


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


def assess(problem: Problem, policies: Sequence[Policy]) -> Assessment:
    """Evaluate policies: exactly on a table, else from new episodes."""
    episodes = EPISODES
    if isinstance(problem.env, GymnasiumEnv):
        episodes = GYMNASIUM_EPISODES
    evaluator = PolicyEvaluator(problem, policies[0], episodes)
    occupancies = evaluator.occupancies(policies, jax.random.key(0))
    assessment = Assessment(
        utilities=evaluator.utilities(occupancies),
        source=f"estimate from {episodes:,} new episodes",
        excesses=evaluator.excesses(occupancies),
    )
    if evaluator.exact is None:
        return replace(assessment, visits=_grid_visits(problem, occupancies))
    gaps, reason = _certified_gaps(problem, evaluator.exact, occupancies)
    visits = _state_visits(problem, policies)
    return replace(assessment, source="exact", gaps=gaps, reason=reason, visits=visits)


def _certified_gaps(
    problem: Problem, evaluator: exact.Evaluator, occupancies: Occupancies
) -> tuple[Float[np.ndarray, " seed"] | None, str]:
    """Return the certified gaps, or None with the reason if their computation failed."""
    if not problem.utility.concave or (problem.constraints and not _is_quick(problem)):
        return None, ""
    try:
        return evaluator.gaps(occupancies), ""
    except ValueError as error:  # an infinite gradient, or infeasible constraints
        return None, f"There is no certificate: {error}"


def _state_visits(problem: Problem, policies: Sequence[Policy]) -> Float[np.ndarray, "seed S"]:
    """Return the exact discounted visits of each state, NaN for policies that are not finite."""
    rows: list[np.ndarray] = []
    for policy in policies:
        table = probabilities(problem, policy)
        if np.isfinite(table).all():
            rows.append(exact.occupancy(problem, table).sum(1))
        else:
            rows.append(np.full(len(table), np.nan))
    return np.array(rows)


def _grid_visits(
    problem: Problem, occupancies: Occupancies
) -> Float[np.ndarray, "seed cell"] | None:
    """Return the estimated visits of each cell, if the features are a grid."""
    grid = counted_grid(problem)
    if grid is None:
        return None
    return occupancies[:, : math.prod(grid.bins)].astype(float)


def counted_grid(problem: Problem) -> Grid | None:
    """Return the grid whose cells the first entries of the occupancy count, or None."""
    feature = problem.features
    if isinstance(feature, Stack):
        feature = feature.parts[0]
    if isinstance(feature, Grid):
        return feature
    return None


def find_references(problem: Problem, first: Policy) -> References:
    """Return the utilities of the initial, the uniform and, if quick, the optimal policy."""
    return _latest_references(problem, first)


def _find_references(problem: Problem, first: Policy) -> References:
    env = problem.env
    if not isinstance(env, TabularMDP):
        return References(float(assess(problem, [first]).utilities[0]))
    evaluator = exact.Evaluator(problem)
    uniform = np.full((env.num_states, env.num_actions), 1 / env.num_actions)
    tables = np.array([probabilities(problem, first), uniform])
    utilities = evaluator.utilities(evaluator.occupancies(tables))
    references = References(float(utilities[0]), float(utilities[1]))
    optimum = quick_optimum(problem)
    if optimum is None or optimum.gap > MAX_GAP * (optimum.value - utilities[1]):
        return references
    return replace(references, optimum=optimum.value, gap=optimum.gap)


def quick_optimum(problem: Problem) -> Optimum | None:
    """Return the optimum of a tabular problem, or None if a few seconds do not suffice.

    With a horizon the optimum is over policies that depend on time, and bounds all policies.
    """
    if not problem.utility.concave or not _is_quick(problem):
        return None
    return _latest_optimum(problem)


def _rough_optimum(problem: Problem) -> Optimum | None:
    try:
        return search_optimum(problem, MIN_TOLERANCE, TOLERANCE, SECONDS)
    except ValueError:  # an infinite gradient, or infeasible constraints
        return None


_latest_optimum = LatestValue(_rough_optimum)
_latest_references = LatestValue(_find_references)


def _is_quick(problem: Problem) -> bool:
    """Return whether a few seconds suffice for the optimum of a table."""
    env: Any = problem.env
    pairs = env.num_states * env.num_actions
    entries = pairs * (problem.horizon or 1)
    if problem.utility.linear and not problem.constraints:
        return entries <= MAX_LINEAR_ENTRIES
    return entries <= MAX_ENTRIES

"""The exact optimum of a concave utility over all policies of a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from occupax.display import Description, in_words, shown_number
from occupax.errors import check_number, unknown
from occupax.exact import conic, feasibility, mirror_descent, occupancy_program
from occupax.exact.dynamics import Dynamics, StateActionArray
from occupax.exact.objective import concave_dynamics
from occupax.exact.occupancies import uniform_policy
from occupax.exact.reachability import (
    expand_policy,
    expand_values,
    reachable_states,
    restrict,
)
from occupax.exact.returns import best_response
from occupax.exact.search import Search, SearchEnded, Status
from occupax.forking import begin_jax_use
from occupax.problem import Problem, ProblemSource, as_problem

Method = Literal[
    "auto", "policy-iteration", "interior-point", "mirror-descent", "frank-wolfe", "conic"
]

MAX_MIXED_ENTRIES = 2_000_000
"""Largest size of a policy of which Frank-Wolfe keeps many."""

TimedArray = Float[np.ndarray, "*H S A"]
Stage = tuple[str, Callable[[Search], object]]


@dataclass(frozen=True, repr=False)
class Optimum:
    """A policy with its exact utility and occupancy, and a certificate of its optimality."""

    value: float
    """Utility of the policy."""
    gap: float
    """Certified gap: no policy that satisfies the constraints is better by more than this."""
    occupancy: StateActionArray
    """State-action occupancy of the policy [S, A]."""
    policy: TimedArray
    """Action probabilities [S, A]; with a horizon they depend on time, [H, S, A]."""
    status: Status
    """"optimal": the tolerance was reached. "time limit", "interrupted" (Ctrl-C) or "stalled":
    the search ended before; value, gap and policy are valid."""
    method: str
    """Method that found the policy."""
    problem: Problem
    """The problem."""
    values: Float[np.ndarray, "*H S"] = field(repr=False)
    """Values of the states that prove the upper bound, for a horizon those of each step."""
    tangent: Float[np.ndarray, " d"] = field(repr=False)
    """Occupancy of the features at which the upper bound linearises the Lagrangian."""
    multipliers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Multiplier of each constraint by name: the gain of utility for each unit by which the
    threshold is relaxed."""
    excesses: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Violation of each constraint by name, negative for slack."""
    seconds: float = 0.0
    """Duration of the search."""

    @property
    def upper_bound(self) -> float:
        """Certified upper bound of the utility of every feasible policy."""
        return self.value + self.gap

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        gap = shown_number(self.gap)
        title = f"Optimum: {shown_number(self.value)}; no policy is better by more than {gap}"
        names = ["status", "policy", "occupancy"]
        if self.multipliers:
            names.extend(["multipliers", "excesses"])
        rows = [(name, in_words(getattr(self, name))) for name in names]
        return Description(title, rows)


def solve(
    problem: ProblemSource,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
    progress: bool = True,
    method: Method = "auto",
) -> Optimum:
    """Maximise a concave utility over all policies of a tabular problem.

    The search ends at the tolerance, at the time limit or at Ctrl-C, and returns the best policy so
    far with its certified gap and a `status`. With a horizon the optimum is over policies that
    depend on time, which is an upper bound for stationary ones.

    Args:
        problem: a tabular problem with a concave utility; an environment or its name stands for its
            discounted return.
        tolerance: certified gap to reach, relative to the size of the utility: the search ends when
            upper bound - value <= tolerance * max(1, |value|).
        time_limit: seconds after which the search ends, not limited by default. A step that is
            under way is completed.
        progress: whether to show value, bound and gap of a search that takes longer than a second.
        method: "policy-iteration" is for linear utilities without constraints.
            "interior-point" is for utilities that are separable or of few features, and tables
            whose sparse factors fit. "mirror-descent" is for large tables without constraints.
            "frank-wolfe" takes everything. "auto" chooses the first of these that applies, and
            goes on with "frank-wolfe" where it stalls. "conic" is Clarabel through cvxpy (the extra
            `exact`), for utilities with a conic form, and goes on with "frank-wolfe" too.

    Returns:
        The optimum. Its `gap` is valid whatever the status.

    Raises:
        ValueError: if the constraints are infeasible; the message has the smallest violation.
    """
    begin_jax_use()
    problem = as_problem(problem)
    if method not in get_args(Method):
        raise unknown("method", method, get_args(Method))
    tolerance = check_number("tolerance", tolerance, low=0.0, open_low=True)
    if time_limit is not None:
        time_limit = check_number("time_limit", time_limit, low=0.0, open_low=True)
    return search_optimum(problem, tolerance, 0.0, time_limit, progress, method)


def search_optimum(
    problem: Problem,
    tolerance: float,
    share: float,
    time_limit: float | None,
    progress: bool = False,
    method: Method = "auto",
) -> Optimum:
    """Return the optimum within a tolerance or a share of the difference to the uniform policy."""
    whole = concave_dynamics(problem)
    states = reachable_states(whole)
    model = whole
    if len(states) < whole.shape[0]:
        model = restrict(whole, states)
    search = Search(problem, model, tolerance, share, time_limit, progress)
    status: Status = "stalled"
    names: list[str] = []
    try:
        search.propose(uniform_policy(model))
        _propose_simple_bound(search)
        search.check()
        for name, run in _stages(search, method):
            names.append(name)
            run(search)
            search.check()
    except SearchEnded as ended:
        status = ended.status
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        search.close()
    if status != "optimal":
        search.propose_pending()
    return _optimum(search, whole, states, status, names)


def _stages(search: Search, method: Method) -> list[Stage]:
    """Return the methods to run one after the other until the tolerance is reached."""
    problem = search.problem
    is_planning = problem.utility.linear and not problem.constraints
    if method == "auto":
        if is_planning:
            return [("policy-iteration", _plan)]
        return _automatic_stages(search)
    if method == "policy-iteration" and not is_planning:
        raise ValueError(
            "method 'policy-iteration' needs a linear utility without constraints; use 'auto'."
        )
    if method == "mirror-descent" and problem.constraints:
        raise ValueError("method 'mirror-descent' needs a problem without constraints; use 'auto'.")
    if method == "interior-point" and not occupancy_program.fits(search.model, search.objective):
        raise ValueError(
            "method 'interior-point' needs a utility that is separable or of few features, and "
            "factors that fit in memory; use 'auto'."
        )
    if method == "conic":
        return [(name, METHODS[name]) for name in ("conic", "frank-wolfe")]
    return [(method, METHODS[method])]


def _automatic_stages(search: Search) -> list[Stage]:
    horizon = search.problem.horizon
    entries = int(np.prod(search.model.shape)) * (horizon or 1)
    is_mixed = entries <= MAX_MIXED_ENTRIES or bool(search.problem.constraints)
    names: list[str] = []
    if occupancy_program.fits(search.model, search.objective):
        names.append("interior-point")
    elif not search.problem.constraints and (horizon is None or not is_mixed):
        names.append("mirror-descent")
    if is_mixed:
        names.append("frank-wolfe")
    return [(name, METHODS[name]) for name in names]


def _plan(search: Search) -> None:
    """Maximise a linear utility."""
    tangent = np.zeros(search.problem.size)
    response = best_response(search.model, search.quasi_reward(tangent))
    search.propose(response.policy)
    search.propose_bound(tangent, response.values)


METHODS: dict[str, Callable[[Search], object]] = {
    "policy-iteration": _plan,
    "interior-point": occupancy_program.maximise,
    "mirror-descent": mirror_descent.maximise,
    "frank-wolfe": feasibility.maximise,
    "conic": conic.improve,
}


def _propose_simple_bound(search: Search) -> None:
    """Propose the bound of values that are those of the largest reward for ever."""
    model = search.model
    if search.best is None or not model.shape[0]:
        return
    reward = search.quasi_reward(search.best.visits.features)
    largest = max(float(reward.max()), 0.0)
    if model.horizon is None:
        values = np.full(model.shape[0], largest / (1 - model.discount))
    else:
        steps = np.arange(model.horizon, 0, -1)
        values = np.repeat(largest * steps[:, None].astype(float), model.shape[0], axis=1)
    search.propose_bound(search.best.visits.features, values)


def _optimum(
    search: Search, whole: Dynamics, states: np.ndarray, status: Status, names: list[str]
) -> Optimum:
    best = search.best
    bound = search.bound
    if best is None or bound is None:
        raise RuntimeError("the search has ended before its first policy was evaluated.")
    problem = search.problem
    S, A = whole.shape
    mass = best.visits.mass.reshape(-1, *search.model.shape).sum(0)
    occupancy = np.zeros((S, A))
    occupancy[states] = mass
    gradient = search.objective.gradient(bound.tangent, bound.multipliers)
    reward = (whole.features @ gradient).reshape(S, A)
    constraint_names = [constraint.name for constraint in problem.constraints]
    return Optimum(
        value=best.value,
        gap=max(bound.value - best.value + best.error, 0.0),
        occupancy=occupancy,
        policy=expand_policy(best.policy, states, S),
        status=status,
        method=names[-1] if names else "auto",
        problem=problem,
        values=expand_values(bound.values, states, whole, reward),
        tangent=bound.tangent,
        multipliers=dict(zip(constraint_names, bound.multipliers.tolist(), strict=True)),
        excesses=dict(zip(constraint_names, best.excesses.tolist(), strict=True)),
        seconds=search.elapsed,
    )

"""The utility as a conic program over the occupancies of a table, solved by Clarabel through cvxpy.

The occupancy that Clarabel returns satisfies the flow equations approximately. Its policy and the
bound of a best response are exact.
"""

import warnings
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from occupax.constraints import Constraint
from occupax.exact.dynamics import Dynamics
from occupax.exact.occupancies import policy_of
from occupax.exact.returns import best_response
from occupax.exact.search import Search
from occupax.problem import Problem
from occupax.utilities.base import Sum

TOLERANCES = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 500}

TimedArray = Float[np.ndarray, "*H S A"]


class ClarabelError(RuntimeError):
    """Clarabel stopped without a solution."""


class Solution(NamedTuple):
    """Solution of a conic program."""

    mass: TimedArray
    """Occupancy, for a horizon that of each step."""
    multipliers: Float[np.ndarray, " K"]
    """Multipliers of the constraints."""


class Polytope(NamedTuple):
    """Flow equations of the visits in the states that can be reached.

    The visits of a step are not discounted, so that all of them have one size.
    """

    flow: sparse.csr_array
    initial: Float[np.ndarray, " m"]
    features: sparse.csc_array
    """Discounted features of each entry of the visits."""
    entries: np.ndarray
    """Indices of the entries among all steps, states and actions."""
    discounts: Float[np.ndarray, " H"]
    """Weights of the steps, a single 1 without a horizon."""


def improve(search: Search) -> None:
    """Propose the policy of the conic solution and the bound of a best response."""
    solution = maximise(search.problem, search.model)
    if solution is None:
        return
    candidate = search.propose(policy_of(solution.mass), solution.mass)
    features = candidate.visits.features
    reward = search.quasi_reward(features, solution.multipliers)
    response = best_response(search.model, reward)
    search.propose_bound(features, response.values, solution.multipliers)


def maximise(problem: Problem, model: Dynamics) -> Solution | None:
    """Maximise over the polytope of occupancies with Clarabel.

    Args:
        problem: the problem.
        model: its dynamics.

    Returns:
        The solution; None if no policy satisfies the constraints.

    Raises:
        ValueError: if cvxpy or Clarabel is not installed.
        NoConicFormError: if the utility, a constraint or a set has no conic form.
        ClarabelError: if Clarabel stopped without a solution.
    """
    if find_spec("cvxpy") is None or find_spec("clarabel") is None:
        raise ValueError(
            "method 'conic' needs cvxpy and Clarabel: install occupax[exact], or use 'auto'."
        )
    import cvxpy as cp  # optional, and slow to import

    polytope = _polytope(model)
    visits = cp.Variable(polytope.entries.size, nonneg=True)
    counted = polytope.features @ visits
    objective = problem.objective.conic(_part(problem, 0, counted))
    conditions = [polytope.flow @ visits == polytope.initial, *objective.conditions]
    limits: list[Any] = []
    for k, constraint in enumerate(problem.constraints):
        excess, needed = _excess(problem, k, constraint, counted)
        limits.append(excess <= 0)
        conditions.extend(needed)
    program = cp.Problem(cp.Maximize(objective.value), [*conditions, *limits])
    try:
        with warnings.catch_warnings():
            # the certificate says how accurate
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            program.solve(solver=cp.CLARABEL, **TOLERANCES)
    except cp.SolverError as error:
        raise ClarabelError(f"Clarabel failed ({error}); use method 'auto'.") from error
    if program.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE) and limits:
        return None
    if visits.value is None:
        raise ClarabelError(f"Clarabel stopped with status {program.status!r}; use method 'auto'.")
    multipliers = np.array([float(limit.dual_value) for limit in limits])
    mass = _discounted_mass(model, polytope, visits.value)
    return Solution(mass, np.maximum(multipliers, 0.0))


def _polytope(model: Dynamics) -> Polytope:
    """Return the flow equations, for a horizon those of each step."""
    S, A = model.shape
    reached = _reached(model)
    steps = len(reached)
    leaving = sparse.kron(sparse.eye_array(S), np.ones((1, A)))
    if model.horizon is None:
        flow = leaving - model.discount * model.transition.T
        discounts = np.ones(1)
    else:
        following = sparse.eye_array(steps, k=-1)
        arriving = sparse.kron(following, model.transition.T)
        flow = sparse.kron(sparse.eye_array(steps), leaving) - arriving
        discounts = model.discount ** np.arange(steps)
    rows = np.flatnonzero(reached)
    entries = np.flatnonzero(np.repeat(reached, A))
    initial = np.zeros(steps * S)
    initial[:S] = model.initial
    features = sparse.csc_array(sparse.kron(discounts[None], model.features.T))
    return Polytope(
        sparse.csr_array(flow)[rows][:, entries],
        initial[rows],
        features[:, entries],
        entries,
        discounts,
    )


def _discounted_mass(
    model: Dynamics, polytope: Polytope, visits: Float[np.ndarray, " n"]
) -> TimedArray:
    """Return the occupancy of all states, for a horizon that of each step."""
    steps = len(polytope.discounts)
    mass = np.zeros(steps * model.features.shape[0])
    mass[polytope.entries] = np.maximum(visits, 0.0)
    mass = mass.reshape(steps, *model.shape)
    if model.horizon is None:
        return mass[0]
    return polytope.discounts[:, None, None] * mass


def _part(problem: Problem, number: int, counted: Any) -> Any:
    """Return the features that a term of a constrained utility depends on."""
    if not problem.constraints or not isinstance(problem.utility, Sum):
        return counted
    return problem.utility.parts(counted)[number][2]


def _excess(
    problem: Problem, number: int, constraint: Constraint, counted: Any
) -> tuple[Any, list[Any]]:
    """Return the violation of a constraint as an expression, with the conditions it needs."""
    if not isinstance(problem.utility, Sum):
        raise ValueError("the problem has no constraints.")
    _, term, part = problem.utility.parts(counted)[1 + number]
    form = term.conic(part)
    return constraint.excess(form.value), list(form.conditions)


def _reached(model: Dynamics) -> Bool[np.ndarray, "H S"]:
    """Return the states that can be visited at each step, without a horizon at any step."""
    S, A = model.shape
    edges = model.transition.T > 0
    reached = [model.initial > 0]
    for _ in range((model.horizon or S) - 1):
        reached.append(edges @ np.repeat(reached[-1], A) > 0)
    if model.horizon is None:
        return np.any(reached, 0, keepdims=True)
    return np.stack(reached)

"""Maximisation over the polytope of occupancies by Clarabel, to compare with."""

import warnings
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from occupax.constraints import Constraint
from occupax.exact.dynamics import Dynamics
from occupax.problem import Problem
from occupax.utilities.base import Sum

SOLVER_SETTINGS = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 500}

Timed = Float[np.ndarray, "*H S A"]


class ClarabelError(RuntimeError):
    """Clarabel stopped without a solution."""


class Solution(NamedTuple):
    """The solution of a conic program."""

    mass: Timed
    """The occupancy, with a horizon that of each step."""
    multipliers: Float[np.ndarray, " K"]
    """The multipliers of the constraints."""


def maximise(problem: Problem, model: Dynamics) -> Solution | None:
    """Maximise over the polytope of occupancies with Clarabel.

    Returns:
        The solution; None if no policy satisfies the constraints.

    Raises:
        NoConicFormError: if the utility, a constraint or a set has no conic form.
        ClarabelError: if Clarabel stopped without a solution.
    """
    S, A = model.shape
    reached = _reached(model)
    steps = len(reached)
    leaving = sparse.kron(sparse.eye_array(S), np.ones((1, A)))
    if model.horizon is None:
        flow, discounts = leaving - model.discount * model.transition.T, np.ones(1)
    else:
        after = sparse.eye_array(steps, k=-1)
        flow = sparse.kron(sparse.eye_array(steps), leaving) - sparse.kron(
            after, model.transition.T
        )
        discounts = model.discount ** np.arange(steps)
    # The variables are the undiscounted visits of each step, so that they are all of one size, in
    # the states that can be reached, so that the polytope has an interior.
    rows, columns = np.flatnonzero(reached), np.flatnonzero(np.repeat(reached, A))
    visits = cp.Variable(columns.size, nonneg=True)
    start = np.concatenate([model.initial, np.zeros((steps - 1) * S)])
    conserved = sparse.csr_array(flow)[rows][:, columns] @ visits == start[rows]
    counted = sparse.csc_array(sparse.kron(discounts[None], model.features.T))[:, columns] @ visits
    objective = problem.objective.conic(_part(problem, 0, counted))
    conditions = list(objective.conditions)
    limits: list[Any] = []
    for k, constraint in enumerate(problem.constraints):
        value, more = _limited(problem, k, constraint, counted)
        limits.append(value <= 0)
        conditions.extend(more)
    program = cp.Problem(cp.Maximize(objective.value), [conserved, *limits, *conditions])
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Solution may be inaccurate"
            )  # the certificate tells by how much
            program.solve(solver=cp.CLARABEL, **SOLVER_SETTINGS)
    except cp.SolverError as error:
        raise ClarabelError(f"Clarabel failed ({error}).") from error
    if program.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE) and limits:
        return None
    if visits.value is None:
        raise ClarabelError(f"Clarabel stopped with status {program.status!r}.")
    mass = np.zeros(steps * S * A)
    mass[columns] = visits.value
    mass = discounts[:, None, None] * mass.reshape(steps, S, A)
    multipliers = np.array([float(limit.dual_value) for limit in limits])
    return Solution(mass[0] if model.horizon is None else mass, np.maximum(multipliers, 0.0))


def _part(problem: Problem, number: int, counted: Any) -> Any:
    """Part of the features that a term of a constrained utility depends on."""
    if not problem.constraints or not isinstance(problem.utility, Sum):
        return counted
    return problem.utility.parts(counted)[number][2]


def _limited(
    problem: Problem, number: int, constraint: Constraint, counted: Any
) -> tuple[Any, list[Any]]:
    """The excess over a limit as an expression, with the conditions it needs."""
    if not isinstance(problem.utility, Sum):
        raise ValueError("the problem has no constraints.")
    _, term, part = problem.utility.parts(counted)[1 + number]
    form = term.conic(part)
    return constraint.excess(form.value), list(form.conditions)


def _reached(model: Dynamics) -> Bool[np.ndarray, "H S"]:
    """The states that can be visited at each step, or at any step if the horizon is infinite."""
    S, A = model.shape
    edges, reached = model.transition.T > 0, [model.initial > 0]
    for _ in range((model.horizon or S) - 1):
        reached.append(edges @ np.repeat(reached[-1], A) > 0)
    return np.any(reached, 0, keepdims=True) if model.horizon is None else np.stack(reached)

"""The exact optimum of a concave utility over all policies."""

from importlib.util import find_spec
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from occupax._errors import check_integer, check_number, unknown
from occupax.exact import conic
from occupax.exact.certificates import certify, refuse_unless_concave
from occupax.exact.dynamics import StateActionArray, dynamics
from occupax.exact.evaluation import total_occupancy
from occupax.exact.frank_wolfe import frank_wolfe
from occupax.problem import Problem

Method = Literal["auto", "conic", "frank-wolfe"]


class Optimum(NamedTuple):
    """A policy with a certificate of its optimality."""

    value: float
    """The utility of `policy`, computed exactly from it."""
    gap: float
    """No policy is better than `value` by more than this."""
    occupancy: StateActionArray
    """The discounted state-action occupancy of `policy`, [S, A]."""
    policy: Float[np.ndarray, "*H S A"]
    """Action probabilities [S, A]; with a horizon they depend on time, [H, S, A]."""


def solve(problem: Problem, method: Method = "auto", tolerance: float = 1e-6, max_iterations: int = 1000) -> Optimum:
    """Maximise a concave utility over all policies of a tabular problem.

    With a horizon the optimum is over policies that depend on time: an upper bound for stationary ones.

    Args:
        problem: a tabular problem with a concave utility.
        method: "frank-wolfe" takes any concave utility and needs nothing installed. "conic" hands the problem to
            Clarabel through cvxpy (the extra `exact`) first, and to Frank-Wolfe only where its answer is not within
            the tolerance. "auto" is "frank-wolfe", which was the faster and the more accurate of the two.
        tolerance: the gap to reach.
        max_iterations: of Frank-Wolfe, each a planning problem.

    Raises:
        RuntimeError: if the tolerance was not reached; the message has the gap that was.
    """
    if method not in get_args(Method):
        raise unknown("method", method, get_args(Method))
    tolerance = check_number("tolerance", tolerance, low=0.0, open_low=True)
    max_iterations = check_integer("max_iterations", max_iterations)
    model = dynamics(problem)
    refuse_unless_concave(problem)
    if method == "conic":
        if find_spec("cvxpy") is None:
            raise ValueError("method 'conic' needs cvxpy: install occupax[exact], or use method 'frank-wolfe'.")
        start = _policy(conic.maximise(problem.utility, model))
    else:
        S, A = model.shape
        start = np.full((S, A) if model.horizon is None else (model.horizon, S, A), 1 / A)
    policy = _policy(frank_wolfe(problem, model, start, tolerance, max_iterations))
    occupancy = total_occupancy(model, policy)
    value, _, gap = certify(problem, model, model.features.T @ occupancy.ravel())
    if gap > tolerance:
        raise RuntimeError(
            f"{method} reached a certified gap of {gap:.3g}, not the tolerance of {tolerance:g}; allow a larger "
            "tolerance or more iterations."
        )
    return Optimum(value, gap, occupancy, policy)


def _policy(mass: Float[np.ndarray, "*H S A"]) -> Float[np.ndarray, "*H S A"]:
    """The policy with this occupancy; states that are never visited act uniformly."""
    mass = np.maximum(mass, 0.0)
    total = mass.sum(-1, keepdims=True)
    uniform = np.full_like(mass, 1 / mass.shape[-1])
    return np.divide(mass, total, out=uniform, where=total > 0)

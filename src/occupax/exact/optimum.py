"""The exact optimum of a concave utility over all policies.

It is found by fully corrective Frank-Wolfe with a planner, or as a conic program for the utilities that a conic solver
knows.
"""

import warnings
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from occupax._errors import check_integer, check_number, unknown
from occupax.exact import evaluation
from occupax.exact.dynamics import Dynamics, StateActionArray, best_response
from occupax.exact.evaluation import timed_occupancy, utility_gradient, utility_value
from occupax.problem import Problem
from occupax.utilities import sets
from occupax.utilities.base import Sum, Utility
from occupax.utilities.library import Entropy, Linear, LogCoverage, Reward, SetDistance

Method = Literal["auto", "conic", "frank-wolfe"]

NEWTON_STEPS = 100
PADDING = 64
ROUNDING = 1e-12
SOLVER_SETTINGS = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 500}

Timed = Float[np.ndarray, "*H S A"]
Vector = Float[np.ndarray, " k"]
Features = Float[np.ndarray, " d"]
Images = Float[np.ndarray, "k d"]


class Optimum(NamedTuple):
    """A policy with its exact utility and occupancy, and a certificate of its optimality."""

    value: float
    gap: float
    """No policy is better than `value` by more than this."""
    occupancy: StateActionArray
    policy: Timed
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
    model = evaluation.concave_dynamics(problem)
    if method == "conic":
        if find_spec("cvxpy") is None:
            raise ValueError("method 'conic' needs cvxpy: install occupax[exact], or use method 'frank-wolfe'.")
        start = _policy(_conic(problem.utility, model))
    else:
        start = _uniform(model)
    found = _certified(problem, model, _frank_wolfe(problem, model, start, tolerance, 0.0, max_iterations))
    if found.gap > tolerance:
        raise RuntimeError(
            f"{method} reached a certified gap of {found.gap:.3g}, not the tolerance of {tolerance:g}; allow a larger "
            "tolerance or more iterations."
        )
    return found


def solve_roughly(problem: Problem, share: float, max_iterations: int) -> Optimum | None:
    """The optimum to within a share of the way to it from the uniform policy; None if the iterations do not suffice."""
    model = evaluation.concave_dynamics(problem)
    start = _uniform(model)
    found = _certified(problem, model, _frank_wolfe(problem, model, start, 0.0, share, max_iterations))
    way = found.value - utility_value(problem.utility, _image(model, timed_occupancy(model, start)))
    return found if found.gap <= max(share * way, 1e3 * ROUNDING * (1 + abs(found.value))) else None


def _uniform(model: Dynamics) -> Timed:
    times = () if model.horizon is None else (model.horizon,)
    return np.full((*times, *model.shape), 1 / model.shape[1])


def _certified(problem: Problem, model: Dynamics, mass: Timed) -> Optimum:
    policy = _policy(mass)
    occupancy = evaluation.total_occupancy(model, policy)
    value, _, gap = evaluation.certify(problem, model, model.features.T @ occupancy.ravel())
    return Optimum(value, gap, occupancy, policy)


def _policy(mass: Timed) -> Timed:
    """The policy with this occupancy; states that are never visited act uniformly."""
    mass = np.maximum(mass, 0.0)
    total = mass.sum(-1, keepdims=True)
    return np.divide(mass, total, out=np.full_like(mass, 1 / mass.shape[-1]), where=total > 0)


def _frank_wolfe(
    problem: Problem, model: Dynamics, start: Timed, tolerance: float, share: float, max_iterations: int
) -> Timed:
    # each iteration adds the occupancy of the best policy for the quasi-reward, and mixes all that are kept anew;
    # the gap to reach is the tolerance, or a share of the way from the start
    corners = [timed_occupancy(model, start)]
    images, shares, way = _image(model, corners[0])[None], np.ones(1), 0.0
    first = utility_value(problem.utility, images[0]) if share else 0.0
    for _ in range(max_iterations):
        mixture = shares @ images
        quasi_reward = utility_gradient(problem.utility, mixture)
        if not np.isfinite(quasi_reward).all():
            raise ValueError("the utility has no finite gradient where nothing is visited: smooth it.")
        best = best_response(model, (model.features @ quasi_reward).reshape(model.shape))
        linear_value = float(quasi_reward @ mixture)
        gap, rounding = best.upper_bound - linear_value, ROUNDING * (1 + abs(linear_value))
        if gap <= max(0.5 * tolerance, 0.5 * share * way, rounding):
            break
        corner = timed_occupancy(model, best.policy)
        if problem.utility.linear:
            return corner
        corners.append(corner)
        images = np.concatenate([images, _image(model, corner)[None]])
        accuracy = max(rounding, 1e-4 * share * way)
        shares, slack = _best_mixture(problem.utility, images, np.append(shares, 0.0), accuracy)
        # a corner that falls short by more than the gap is not part of the optimum; dropping it must not cost anything
        kept = np.flatnonzero(slack <= gap)
        fewer = shares[kept] / shares[kept].sum()
        with_all, without = (utility_value(problem.utility, it) for it in (shares @ images, fewer @ images[kept]))
        if without >= with_all - rounding:
            corners, images, shares = [corners[i] for i in kept], images[kept], fewer
        way = with_all - first
    return np.tensordot(shares, np.stack(corners), 1)


def _image(model: Dynamics, mass: Timed) -> Features:
    return model.features.T @ mass.reshape(-1, model.transition.shape[0]).sum(0)


def _best_mixture(utility: Utility, images: Images, start: Vector, accuracy: float) -> tuple[Vector, Vector]:
    """Maximise F over the shares of a mixture; return them, and by how much the slope of each falls short of the best.

    A primal-dual interior-point method. Optimality reads slope + slack = level, shares * slack = 0 and sum of shares
    = 1, where `slope` is the derivative of F with respect to each share, and `level` belongs to the sum.
    """
    k = len(start)
    shares = 0.95 * start + 0.05 / k
    slope = images @ utility_gradient(utility, shares @ images)
    level = slope.max() + 1e-3 * (1 + np.abs(slope).max())
    slack = level - slope
    for _ in range(NEWTON_STEPS):
        mixture = shares @ images
        slope = images @ utility_gradient(utility, mixture)
        unbalanced = level - slack - slope
        if shares @ slack <= accuracy and np.abs(unbalanced).max() <= accuracy:
            break
        target = 0.1 * (shares @ slack) / k
        system = np.ones((k + 1, k + 1))
        curvature = _curvature(utility, mixture, images)
        damping = ROUNDING * (1 + np.abs(curvature).max())  # for a flat utility, or corners with the same image
        system[:k, :k] = np.diag(slack / shares + damping) - curvature
        system[k, k] = 0.0
        move = np.linalg.solve(system, np.append(target / shares - slack - unbalanced, 0.0))
        shares_move, level_move = move[:k], move[k]
        slack_move = (target - slack * shares_move) / shares - slack
        descent = _line_search(utility, images, shares, shares_move, target)
        length = min(1.0, 0.99 * _room(slack, slack_move))
        shares, slack = shares + descent * shares_move, slack + length * slack_move
        level += length * level_move
    return shares / shares.sum(), slack


def _line_search(utility: Utility, images: Images, shares: Vector, move: Vector, target: float) -> float:
    def barrier(at: Vector) -> float:
        return -utility_value(utility, at @ images) - target * float(np.log(at).sum())

    length, start = min(1.0, 0.99 * _room(shares, move)), barrier(shares)
    while length > 1e-12 and not barrier(shares + length * move) <= start:
        length *= 0.5
    return length


def _curvature(utility: Utility, mixture: Features, images: Images) -> Float[np.ndarray, "k k"]:
    k, d = images.shape
    padded = np.zeros((-(-k // PADDING) * PADDING, d))  # few shapes, few compilations
    padded[:k] = images
    with jax.enable_x64(True):
        return images @ np.asarray(_hessian_products(utility, mixture, padded))[:k].T


_hessian_products = eqx.filter_jit(
    lambda utility, mixture, rows: jax.lax.map(lambda row: jax.jvp(utility.gradient, (mixture,), (row,))[1], rows)
)


def _room(position: Vector, move: Vector) -> float:
    shrinking = move < 0
    return float(np.min(-position[shrinking] / move[shrinking], initial=np.inf))


def _conic(utility: Utility, model: Dynamics) -> Timed:
    """Maximise over the polytope of occupancies with Clarabel; return the occupancy, of each step if timed."""
    import cvxpy as cp

    S, A = model.shape
    reached = _reached(model)
    steps = len(reached)
    leaving = sparse.kron(sparse.eye_array(S), np.ones((1, A)))
    if model.horizon is None:
        flow, discounts = leaving - model.discount * model.transition.T, np.ones(1)
    else:
        after = sparse.eye_array(steps, k=-1)
        flow = sparse.kron(sparse.eye_array(steps), leaving) - sparse.kron(after, model.transition.T)
        discounts = model.discount ** np.arange(steps)
    # The variables are the undiscounted visits of each step, so that they are all of one size, in the states that can
    # be reached, so that the polytope has an interior.
    rows, columns = np.flatnonzero(reached), np.flatnonzero(np.repeat(reached, A))
    visits = cp.Variable(columns.size, nonneg=True)
    start = np.concatenate([model.initial, np.zeros((steps - 1) * S)])
    conserved = sparse.csr_array(flow)[rows][:, columns] @ visits == start[rows]
    counted = sparse.csc_array(sparse.kron(discounts[None], model.features.T))[:, columns] @ visits
    objective, constraints = _expression(utility, counted)
    program = cp.Problem(cp.Maximize(objective), [conserved, *constraints])
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")  # the certificate tells by how much
            program.solve(solver=cp.CLARABEL, **SOLVER_SETTINGS)
    except cp.SolverError as error:
        raise RuntimeError(f"Clarabel failed ({error}); use method 'frank-wolfe'.") from error
    if visits.value is None:
        raise RuntimeError(f"Clarabel stopped with status {program.status!r}; use method 'frank-wolfe'.")
    mass = np.zeros(steps * S * A)
    mass[columns] = visits.value
    mass = discounts[:, None, None] * mass.reshape(steps, S, A)
    return mass[0] if model.horizon is None else mass


def _reached(model: Dynamics) -> Bool[np.ndarray, "H S"]:
    """The states that can be visited at each step, or at any step if the horizon is infinite."""
    S, A = model.shape
    edges, reached = model.transition.T > 0, [model.initial > 0]
    for _ in range((model.horizon or S) - 1):
        reached.append(edges @ np.repeat(reached[-1], A) > 0)
    return np.any(reached, 0, keepdims=True) if model.horizon is None else np.stack(reached)


def _expression(utility: Utility, features: Any) -> tuple[Any, list[Any]]:
    import cvxpy as cp

    match utility:
        case Reward():
            return cp.sum(features), []
        case Linear():
            return utility.weights @ features, []
        case Entropy():
            return cp.sum(cp.entr((utility.scale or 1.0) * features + utility.smoothing)), []
        case LogCoverage():
            return cp.sum(cp.log(features + utility.sigma)), []
        case SetDistance():
            nearest = cp.Variable(utility.set.size)
            return -cp.sum_squares(features - nearest), _membership(utility.set, nearest)
        case Sum():
            parts = [(weight, *_expression(term, part)) for weight, term, part in utility.parts(features)]
            total = sum(weight * part for weight, part, _ in parts)
            return total, [constraint for _, _, constraints in parts for constraint in constraints]
        case _:
            raise ValueError(f"method 'conic' does not know {type(utility).__name__}; use method 'frank-wolfe'.")


def _membership(region: sets.ConvexSet, point: Any) -> list[Any]:
    import cvxpy as cp

    match region:
        case sets.Box():
            return [point >= region.low, point <= region.high]
        case sets.Ball():
            return [cp.norm(point - region.center) <= region.radius]
        case sets.Halfspace():
            return [region.normal @ point <= region.offset]
        case sets.Polyhedron():
            return [region.matrix @ point <= region.bounds]
        case sets.Point():
            return [point == region.point]
        case _:
            raise ValueError(f"method 'conic' does not know the set {type(region).__name__}; use 'frank-wolfe'.")

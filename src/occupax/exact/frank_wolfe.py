"""Fully corrective Frank-Wolfe over the polytope of occupancies, with a planner as its oracle."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from occupax.exact.dynamics import Dynamics
from occupax.exact.evaluation import timed_occupancy, total_occupancy, utility_gradient, utility_value
from occupax.exact.planning import best_response
from occupax.problem import Problem
from occupax.utilities.base import Utility

NEWTON_STEPS = 100
PADDING = 64
ROUNDING = 1e-12

Timed = Float[np.ndarray, "*H S A"]
Vector = Float[np.ndarray, " k"]
Features = Float[np.ndarray, " d"]
Images = Float[np.ndarray, "k d"]


def frank_wolfe(problem: Problem, model: Dynamics, start: Timed, tolerance: float, max_iterations: int) -> Timed:
    """Maximise the utility from the policy `start`; return the occupancy. With a horizon both are for each step.

    Each iteration adds the occupancy of the policy that is best for the current quasi-reward, then finds the best
    mixture of all that are kept.
    """
    corners = [_occupancy(model, start)]
    images, shares = _image(model, corners[0])[None], np.ones(1)
    for _ in range(max_iterations):
        mixture = shares @ images
        quasi_reward = utility_gradient(problem.utility, mixture)
        if not np.isfinite(quasi_reward).all():
            raise ValueError("the utility has no finite gradient where nothing is visited: smooth it.")
        best = best_response(model, (model.features @ quasi_reward).reshape(model.shape))
        linear_value = float(quasi_reward @ mixture)
        gap, rounding = best.upper_bound - linear_value, ROUNDING * (1 + abs(linear_value))
        if gap <= max(0.5 * tolerance, rounding):
            break
        corner = _occupancy(model, best.policy)
        if problem.utility.linear:
            return corner
        corners.append(corner)
        images = np.concatenate([images, _image(model, corner)[None]])
        shares, slack = _best_mixture(problem.utility, images, np.append(shares, 0.0), rounding)
        # a corner that falls short by more than the gap is not part of the optimum; dropping it must not cost anything
        kept = np.flatnonzero(slack <= gap)
        fewer = shares[kept] / shares[kept].sum()
        with_all, without = (utility_value(problem.utility, it) for it in (shares @ images, fewer @ images[kept]))
        if without >= with_all - rounding:
            corners, images, shares = [corners[i] for i in kept], images[kept], fewer
    return np.tensordot(shares, np.stack(corners), 1)


def _occupancy(model: Dynamics, policy: Timed) -> Timed:
    return total_occupancy(model, policy) if model.horizon is None else timed_occupancy(model, policy)


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
    """How far to go along `move`, which descends the barrier function, so that it does go down."""

    def barrier(at: Vector) -> float:
        return -utility_value(utility, at @ images) - target * float(np.log(at).sum())

    length, start = min(1.0, 0.99 * _room(shares, move)), barrier(shares)
    while length > 1e-12 and not barrier(shares + length * move) <= start:
        length *= 0.5
    return length


def _curvature(utility: Utility, mixture: Features, images: Images) -> Float[np.ndarray, "k k"]:
    """The Hessian of F as a function of the shares."""
    k, d = images.shape
    padded = np.zeros((-(-k // PADDING) * PADDING, d))  # few shapes, few compilations
    padded[:k] = images
    with jax.enable_x64(True):
        return images @ np.asarray(_hessian_products(utility, mixture, padded))[:k].T


_hessian_products = eqx.filter_jit(
    lambda utility, mixture, rows: jax.lax.map(lambda row: jax.jvp(utility.gradient, (mixture,), (row,))[1], rows)
)


def _room(position: Vector, move: Vector) -> float:
    """How far one can go along `move` before an entry of `position` reaches zero."""
    shrinking = move < 0
    return float(np.min(-position[shrinking] / move[shrinking], initial=np.inf))

"""The lemmas: bounds of weights, gradients and errors, and the step sizes that follow from them."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from occupax.theory.constants import Constants, check_discount, check_non_negative, check_positive


class VarianceConstants(NamedTuple):
    """The constants C_1, C_2, C_3 and C_4 of lemma:SIVR-variance, in this order.

    The mean squared error of the gradient estimate at iteration j of an epoch is at most `snapshot` / N + `truncation`
    gamma^(2H) + `drift` / B sum_{i<=j} ||theta_i - theta_{i-1}||^2 + `last_step` ||theta_j - theta_{j-1}||^2.
    """

    snapshot: float
    truncation: float
    drift: float
    last_step: float


def horizon(epsilon: float, discount: float) -> int:
    """Steps after which a trajectory is cut, H = 2 log(1/epsilon) / (1 - gamma) rounded up (theorem:ncvx)."""
    if not 0 < epsilon < 1:
        raise ValueError(f"`epsilon` is {epsilon}; it must lie strictly between 0 and 1.")
    check_discount(discount)
    return round_up(2 * math.log(1 / epsilon) / (1 - discount))


def radius(horizon: int, lipschitz_psi: float) -> float:
    """Truncation radius that keeps importance weights at most e, delta = 1 / (2 H l_psi) (theorem:ncvx)."""
    check_positive(horizon=horizon, lipschitz_psi=lipschitz_psi)
    return 1 / (2 * horizon * lipschitz_psi)


def weight_bound(step: int, distance: float, lipschitz_psi: float) -> float:
    """Largest importance weight w_t of steps 0..t, exp(2 (t + 1) l_psi ||theta_1 - theta_2||) (lemma:Weight-Var0)."""
    check_non_negative(step=step, distance=distance)
    check_positive(lipschitz_psi=lipschitz_psi)
    return _exp(2 * (step + 1) * lipschitz_psi * distance)


def weight_variance(step: int, radius: float, lipschitz_psi: float, smoothness_psi: float) -> float:
    """Variance of the importance weight of steps 0..t per squared distance, C_w(t + 1) (lemma:Weight-Var).

    Var(w_t) <= C_w(t + 1) ||theta_1 - theta_2||^2 for parameters no further apart than `radius`, delta. The printed
    C_w(t) = t (4 l^2 (t + 1/2) + 2 L) (e^{4 delta t} + 1) fails for a large l; the argument behind it gives
    C_w(t) = t (8 l^2 t + 2 (l^2 + L)) e^{2 t l delta}, with l = l_psi and L = L_psi.
    """
    check_non_negative(radius=radius, smoothness_psi=smoothness_psi)
    count = step + 1
    curvature = count * (8 * lipschitz_psi**2 * count + 2 * (lipschitz_psi**2 + smoothness_psi))
    return curvature * weight_bound(step, radius, lipschitz_psi)


def gradient_bound(constants: Constants) -> float:
    """Bound of ||grad F(lambda(theta))||, 2 l_psi l_{lambda,inf} / (1 - gamma)^2 (lemma:importance, i)."""
    return occupancy_lipschitz(constants) * constants.lipschitz_utility


def occupancy_lipschitz(constants: Constants) -> float:
    """Lipschitz constant of the occupancy in the 1-norm, 2 l_psi / (1 - gamma)^2 (lemma:importance, ii)."""
    return 2 * constants.lipschitz_psi / (1 - constants.discount) ** 2


def smoothness_theta(constants: Constants) -> float:
    """Smoothness of F(lambda(theta)) in theta, L_theta (lemma:importance, iii)."""
    left = 1 - constants.discount
    squared = constants.lipschitz_psi**2
    return (
        4 * constants.smoothness_utility_l1 * squared / left**4
        + 8 * squared * constants.lipschitz_utility / left**3
        + 2 * constants.lipschitz_utility * (constants.smoothness_psi + squared) / left**2
    )


def variance_constants(constants: Constants, horizon: int, radius: float) -> VarianceConstants:
    """The constants C_1 to C_4 for a horizon H and a radius delta (lemma:SIVR-variance, detailed in the appendix).

    Two are printed wrongly. In C_1 the term in l_{lambda,inf}^2 lacks a factor 4 l_psi^2. In C_3 the first term has
    l_psi for l_psi^2, and the second has l_{lambda,inf}^2 for l_psi^2 in front of the bracket.
    """
    check_positive(horizon=horizon)
    check_non_negative(radius=radius)
    left = 1 - constants.discount
    squared = constants.lipschitz_psi**2
    slope = constants.lipschitz_utility**2
    curvature = constants.smoothness_utility**2
    growth = _exp(2 * horizon * constants.lipschitz_psi * radius) + 1
    weights = horizon * squared * (8 * squared + constants.smoothness_psi) * growth
    tail = (horizon + 1) ** 2 / left**2 + 1 / left**4
    return VarianceConstants(
        snapshot=112 * squared * curvature / left**6 + 48 * squared * slope / left**4,
        truncation=32 * squared * curvature / left**6 + 64 * squared * slope * tail,
        drift=48 * (squared + constants.smoothness_psi) ** 2 * slope / left**4
        + 96 * weights / left**5 * (12 * slope + 4 * curvature / (3 * left**2)),
        last_step=32 * weights * curvature / left**7 if curvature else 0.0,
    )


def step_size_stationary(smoothness: float, variance: VarianceConstants) -> float:
    """Step size of theorem:ncvx, eta = 1 / (2 L_theta (1 + (C_3 + C_4) / L_theta^2)); `smoothness` is L_theta."""
    check_positive(smoothness=smoothness)
    return 1 / (2 * (smoothness + (variance.drift + variance.last_step) / smoothness))


def step_size_global(smoothness: float, variance: VarianceConstants) -> float:
    """Largest step size of theorem:convergence-rate, 1 / (2 L_theta + 8 (C_3 + C_4) / L_theta)."""
    check_positive(smoothness=smoothness)
    return 1 / (2 * smoothness + 8 * (variance.drift + variance.last_step) / smoothness)


def gradient_mapping(gradient: Float[ArrayLike, "*n"], step_size: float, radius: float) -> Float[np.ndarray, "*n"]:
    """The measure of stationarity of theorem:ncvx, G_eta: the truncated step over the step size.

    This is (Proj(theta + eta g) - theta) / eta with the ball of the radius around theta, so g itself while eta ||g||
    (over all entries) is at most the radius. The projection maximises <g, x - theta> - ||x - theta||^2 / (2 eta) over
    that ball; defn:TR prints the minus as a plus.
    """
    check_positive(step_size=step_size, radius=radius)
    vector = np.asarray(gradient, dtype=float)
    length = step_size * float(np.linalg.norm(vector.ravel()))
    return vector * (radius / length) if length > radius else vector.copy()


def round_up(value: float) -> int:
    """Round up, but not because of the last bits: 1 / (1 / 49) is 49."""
    return math.ceil(value * (1 - 1e-12))


def _exp(value: float) -> float:
    """Infinity, not an error, where the exponential is larger than any float."""
    return math.exp(value) if value < 709 else math.inf

"""Lemmas and theorems: bounds of weights, gradients and errors, and the settings that follow from them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from occupax.theory.constants import Constants, check_discount, check_finite


class VarianceConstants(NamedTuple):
    """The constants C_1, C_2, C_3 and C_4 of lemma:SIVR-variance, in this order.

    The mean squared error of the gradient estimate at iteration j of an epoch is at most `snapshot` / N + `truncation`
    gamma^(2H) + `drift` / B sum_{i<=j} ||theta_i - theta_{i-1}||^2 + `last_step` ||theta_j - theta_{j-1}||^2.
    """

    snapshot: float
    truncation: float
    drift: float
    last_step: float


@dataclass(frozen=True, kw_only=True)
class Prescription:
    """What one theorem asks for: a step size (eta), a number of epochs (T) and the samples these cost."""

    step_size: float
    epochs: int
    trajectories: int
    environment_steps: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the theory prescribes for an accuracy of order `epsilon`; `print` it to see a table.

    Attributes:
        epsilon: The accuracy aimed at. Both theorems promise O(epsilon), with constants of their own.
        constants: The constants of the problem.
        horizon: Steps per trajectory, H.
        radius: Truncation radius of a step, delta.
        batch: Trajectories per iteration after the first of an epoch, B.
        epoch_length: Iterations per epoch, m.
        snapshot_batch: Trajectories of the first iteration of an epoch, N.
        smoothness_theta: Smoothness of the objective in the parameters, L_theta.
        variance: The constants C_1 to C_4.
        stationary: What theorem:ncvx asks for, to reach a stationary point.
        global_optimum: What theorem:convergence-rate asks for; it needs a concave utility and assumption:over-para,
            which a linear utility with a softmax over a table does not satisfy (its optimum is at infinity).
    """

    epsilon: float
    constants: Constants
    horizon: int
    radius: float
    batch: int
    epoch_length: int
    snapshot_batch: int
    smoothness_theta: float
    variance: VarianceConstants
    stationary: Prescription
    global_optimum: Prescription

    def __str__(self) -> str:
        one, two = self.stationary, self.global_optimum
        rows: list[tuple[str, *tuple[int | float | str, ...]]] = [
            ("horizon, H", self.horizon),
            ("radius, delta", self.radius),
            ("batch, B", self.batch),
            ("epoch length, m", self.epoch_length),
            ("snapshot batch, N", self.snapshot_batch),
            ("smoothness, L_theta", self.smoothness_theta),
            *((f"variance, C_{index}", value) for index, value in enumerate(self.variance, 1)),
            ("", "stationary point", "global optimum"),
            ("step size, eta", one.step_size, two.step_size),
            ("epochs, T", one.epochs, two.epochs),
            ("trajectories", one.trajectories, two.trajectories),
            ("environment steps", one.environment_steps, two.environment_steps),
        ]
        lines = [f"What the theory of TSIVR-PG prescribes for an accuracy of order epsilon = {self.epsilon:g}"]
        lines += [f"{name:<26}" + "".join(f"{_cell(value):>20}" for value in values) for name, *values in rows]
        lines += [
            "These step sizes guarantee convergence but are far too small for practice (for tabular FrozenLake eta is",
            "below 1e-7): tune eta and delta instead, and read the table for how the cost grows as epsilon shrinks.",
        ]
        return "\n".join(lines)


def horizon(epsilon: float, discount: float) -> int:
    """Steps after which a trajectory is cut, H = 2 log(1/epsilon) / (1 - gamma) rounded up (theorem:ncvx)."""
    if not 0 < epsilon < 1:
        raise ValueError(f"`epsilon` is {epsilon}; it must lie strictly between 0 and 1.")
    check_discount(discount)
    return _ceiling(2 * math.log(1 / epsilon) / (1 - discount))


def radius(horizon: int, lipschitz_psi: float) -> float:
    """Truncation radius that keeps importance weights at most e, delta = 1 / (2 H l_psi) (theorem:ncvx)."""
    check_finite("positive", horizon=horizon, lipschitz_psi=lipschitz_psi)
    return 1 / (2 * horizon * lipschitz_psi)


def weight_bound(step: int, distance: float, lipschitz_psi: float) -> float:
    """Largest importance weight w_t of steps 0..t, exp(2 (t + 1) l_psi ||theta_1 - theta_2||) (lemma:Weight-Var0)."""
    check_finite("non-negative", step=step, distance=distance)
    check_finite("positive", lipschitz_psi=lipschitz_psi)
    return _exp(2 * (step + 1) * lipschitz_psi * distance)


def weight_variance(step: int, radius: float, lipschitz_psi: float, smoothness_psi: float) -> float:
    """Variance of the importance weight of steps 0..t per squared distance, C_w(t + 1) (lemma:Weight-Var).

    Var(w_t) <= C_w(t + 1) ||theta_1 - theta_2||^2 for parameters no further apart than `radius`, delta. The printed
    C_w(t) = t (4 l^2 (t + 1/2) + 2 L) (e^{4 delta t} + 1) fails for a large l; the argument behind it gives
    C_w(t) = t (8 l^2 t + 2 (l^2 + L)) e^{2 t l delta}, with l = l_psi and L = L_psi.
    """
    check_finite("non-negative", radius=radius, smoothness_psi=smoothness_psi)
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
    check_finite("positive", horizon=horizon)
    check_finite("non-negative", radius=radius)
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
    check_finite("positive", smoothness=smoothness)
    return 1 / (2 * (smoothness + (variance.drift + variance.last_step) / smoothness))


def step_size_global(smoothness: float, variance: VarianceConstants) -> float:
    """Largest step size of theorem:convergence-rate, 1 / (2 L_theta + 8 (C_3 + C_4) / L_theta)."""
    check_finite("positive", smoothness=smoothness)
    return 1 / (2 * smoothness + 8 * (variance.drift + variance.last_step) / smoothness)


def gradient_mapping(gradient: Float[ArrayLike, "*n"], step_size: float, radius: float) -> Float[np.ndarray, "*n"]:
    """The measure of stationarity of theorem:ncvx, G_eta: the truncated step over the step size.

    This is (Proj(theta + eta g) - theta) / eta with the ball of the radius around theta, so g itself while eta ||g||
    (over all entries) is at most the radius. The projection maximises <g, x - theta> - ||x - theta||^2 / (2 eta) over
    that ball; defn:TR prints the minus as a plus.
    """
    check_finite("positive", step_size=step_size, radius=radius)
    vector = np.asarray(gradient, dtype=float)
    length = step_size * float(np.linalg.norm(vector.ravel()))
    return vector * (radius / length) if length > radius else vector.copy()


def plan(epsilon: float, constants: Constants) -> Plan:
    """Work out all that theorem:ncvx and theorem:convergence-rate prescribe.

    Counts are rounded up. An epoch draws N + (m - 1) B trajectories of H steps; for theorem:ncvx the paper prints
    T m (B H + N), which is of order epsilon^-4 and not what its algorithm draws. The accuracy `epsilon` is at most
    1/2, as in the proof of theorem:convergence-rate.
    """
    if not 0 < epsilon <= 0.5:
        raise ValueError(f"`epsilon` is {epsilon}; it must be positive and at most 0.5.")
    steps = horizon(epsilon, constants.discount)
    delta = radius(steps, constants.lipschitz_psi)
    batch = _ceiling(1 / epsilon)
    snapshot_batch = _ceiling((1 / epsilon) ** 2)
    smoothness = smoothness_theta(constants)
    variance = variance_constants(constants, steps, delta)

    def prescribe(step_size: float, epochs: int) -> Prescription:
        drawn = epochs * ((batch - 1) * batch + snapshot_batch)
        return Prescription(step_size=step_size, epochs=epochs, trajectories=drawn, environment_steps=drawn * steps)

    return Plan(
        epsilon=epsilon,
        constants=constants,
        horizon=steps,
        radius=delta,
        batch=batch,
        epoch_length=batch,
        snapshot_batch=snapshot_batch,
        smoothness_theta=smoothness,
        variance=variance,
        stationary=prescribe(step_size_stationary(smoothness, variance), batch),
        global_optimum=prescribe(step_size_global(smoothness, variance), _ceiling(math.log2(1 / epsilon))),
    )


def _ceiling(value: float) -> int:
    """Round up, but not because of the last bits: 1 / (1 / 49) is 49."""
    return math.ceil(value * (1 - 1e-12))


def _exp(value: float) -> float:
    """Infinity, not an error, where the exponential is larger than any float."""
    return math.exp(value) if value < 709 else math.inf


def _cell(value: int | float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value

"""Calculator of constants, step sizes and sample counts in the theory of TSIVR-PG.

The source is Zhang, Ni, Yu, Szepesvari and Wang, "On the Convergence and Sample Efficiency of
Variance-Reduced Policy Gradient Method". Each docstring names the lemma or theorem by its label in
that paper. Constants that do not follow from the paper's own proofs are corrected, and their
docstrings mark the corrections.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import ArrayLike, Float

from occupax.envs.tabular import TabularMDP
from occupax.errors import check_number
from occupax.exact.dynamics import dynamics
from occupax.features import Reward
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.steps import TABULAR_LIPSCHITZ, theory_radius
from occupax.utilities.base import Smoothness

WARNING = (
    "These settings guarantee convergence but are far too small for practice (for tabular "
    "FrozenLake eta is below 1e-7): tune eta and delta instead, and read the numbers for how the "
    "cost grows as epsilon shrinks."
)
TABULAR_SOFTMAX = MappingProxyType({"lipschitz_psi": TABULAR_LIPSCHITZ, "smoothness_psi": 0.0})
"""Sharper constants for a softmax over a table of logits: `Constants(..., **TABULAR_SOFTMAX)`.

The proofs use them only to bound ||grad log pi|| and ||hess log pi||, which are at most sqrt(2) and
1/2 for a table.
"""
MAX_EXPONENT = 709.0
"""Exponents above this overflow a float."""


@dataclass(frozen=True)
class Constants:
    """Constants of a problem in the theory (assumption:psi-Lip and assumption:F-Lip)."""

    discount: float
    """Discount factor gamma."""
    lipschitz_psi: float
    """Bound of ||grad psi||_2 for the logits psi, l_psi."""
    smoothness_psi: float
    """Bound of the spectral norm of the Hessian of psi, L_psi (printed once as L_h)."""
    lipschitz_utility: float
    """Bound of ||grad F||_inf, l_{lambda,inf}."""
    smoothness_utility: float
    """Lipschitz constant of grad F from the 2-norm to the inf-norm, L_lambda."""
    smoothness_utility_l1: float
    """Lipschitz constant of grad F from the 1-norm to the inf-norm, L_{lambda,inf}."""

    def __post_init__(self) -> None:
        check_discount(self.discount)
        _check_positive("lipschitz_psi", self.lipschitz_psi)
        _check_positive("lipschitz_utility", self.lipschitz_utility)
        check_number("smoothness_psi", self.smoothness_psi, low=0.0)
        check_number("smoothness_utility", self.smoothness_utility, low=0.0)
        check_number("smoothness_utility_l1", self.smoothness_utility_l1, low=0.0)


def problem_constants(
    problem: ProblemSource,
    lipschitz_psi: float | None = None,
    smoothness_psi: float | None = None,
    reward_bound: float | None = None,
) -> Constants:
    """Return the constants of a problem whose utility has finite ones.

    Args:
        problem: The problem. An environment or its name stands for its discounted return.
        lipschitz_psi: Bound of the gradient of the policy's logits. By default the bound of a
            softmax over a table, for tabular environments.
        smoothness_psi: Bound of the Hessian of the policy's logits. Required if and only if
            `lipschitz_psi` is passed.
        reward_bound: Largest absolute reward of a step. Required for environments that are not
            tabular.

    Returns:
        The constants.

    Raises:
        ValueError: if a constant is missing or infinite.
    """
    problem = as_problem(problem)
    if lipschitz_psi is None and smoothness_psi is None and isinstance(problem.env, TabularMDP):
        lipschitz_psi = TABULAR_SOFTMAX["lipschitz_psi"]
        smoothness_psi = TABULAR_SOFTMAX["smoothness_psi"]
    if lipschitz_psi is None or smoothness_psi is None:
        raise ValueError(
            "lipschitz_psi and smoothness_psi must both be given, or left out for the softmax over "
            f"the table of a tabular environment, got {lipschitz_psi} and {smoothness_psi} for "
            f"{type(problem.env).__name__}."
        )
    smoothness = occupancy_smoothness(problem, reward_bound)
    return Constants(problem.discount, lipschitz_psi, smoothness_psi, *smoothness)


def occupancy_smoothness(problem: ProblemSource, reward_bound: float | None = None) -> Smoothness:
    """Return the constants of the utility as a function of the state-action occupancy lambda.

    With the features Phi, [S * A, d], this function is F(Phi^T lambda). Let R bound the 1-norm of
    the rows of Phi and C the 1-norm of the columns. Then the norm of Phi from inf-norm to inf-norm
    is at most R. The norm of Phi^T is at most R between 1-norms and sqrt(R C) between 2-norms.

    Args:
        problem: The problem. An environment or its name stands for its discounted return.
        reward_bound: Largest absolute reward of a step. Required for environments that are not
            tabular.

    Returns:
        The bound of the gradient and its Lipschitz constants.

    Raises:
        ValueError: if a constant is infinite, or `reward_bound` does not fit the environment.
    """
    problem = as_problem(problem)
    own = problem.utility.smoothness
    if not all(math.isfinite(constant) for constant in own):
        values = [f"{name}={constant:g}" for name, constant in own._asdict().items()]
        raise ValueError(
            "the theory needs a utility with finite constants, but "
            f"{type(problem.utility).__name__} has {', '.join(values)}; log coverage has finite "
            "ones, and so has the entropy with a smoothing above 0."
        )
    row, column = _feature_norms(problem, reward_bound)
    l2 = row * math.sqrt(row * column) * own.l2
    return Smoothness(row * own.gradient_bound, l2, row**2 * own.l1)


def _feature_norms(problem: Problem, reward_bound: float | None) -> tuple[float, float]:
    """Return the largest 1-norm of a row and of a column of the features."""
    env = problem.env
    if isinstance(env, TabularMDP):
        if reward_bound is not None:
            raise ValueError(
                f"reward_bound must be left out for a tabular environment, got {reward_bound}."
            )
        # estimates add sampled rewards, which may be larger than the expected reward of the table
        largest = np.abs(env.outcome_rewards).max(-1, keepdims=True)
        rewards = np.broadcast_to(largest, env.outcome_rewards.shape)
        bounded = eqx.tree_at(lambda problem: problem.env.outcome_rewards, problem, rewards)
        model = dynamics(bounded)
        counting = np.repeat(model.counting, env.num_actions)
        sizes = abs(model.features) * counting[:, None]
        return float(sizes.sum(1).max()), float(sizes.sum(0).max())
    if reward_bound is None or not isinstance(problem.features, Reward):
        raise ValueError(
            "reward_bound must be given, and the utility be the reward, for an environment that is "
            f"not tabular, got {reward_bound} and {type(problem.utility).__name__} for "
            f"{type(env).__name__}."
        )
    _check_positive("reward_bound", reward_bound)
    return float(reward_bound), 0.0  # a linear utility does not use the column


class VarianceConstants(NamedTuple):
    """Constants C_1, C_2, C_3 and C_4 of lemma:SIVR-variance, in this order.

    The mean squared error of the gradient estimate at iteration j of an epoch is at most `snapshot`
    / N + `truncation` gamma^(2H) + `drift` / B sum_{i<=j} ||theta_i - theta_{i-1}||^2 + `last_step`
    ||theta_j - theta_{j-1}||^2.
    """

    snapshot: float
    """C_1, the factor of 1 / N."""
    truncation: float
    """C_2, the factor of gamma^(2H)."""
    drift: float
    """C_3, the factor of the sum of squared steps of the epoch."""
    last_step: float
    """C_4, the factor of the last squared step."""


@dataclass(frozen=True)
class Prescription:
    """Step size (eta), number of epochs (T) and sample counts that a theorem requires."""

    step_size: float
    """Step size eta."""
    epochs: int
    """Number of epochs T."""
    trajectories: int
    """Number of trajectories of all epochs."""
    environment_steps: int
    """Number of environment steps of all epochs."""


@dataclass(frozen=True)
class Plan:
    """Prescriptions of the theory for an accuracy of order `epsilon`. `print` shows a table.

    The `global_optimum` requires assumption:over-para, which a linear utility with a softmax over a
    table does not satisfy.
    """

    epsilon: float
    """Target accuracy."""
    constants: Constants
    """Constants of the problem."""
    horizon: int
    """Truncation horizon H."""
    radius: float
    """Truncation radius delta."""
    batch: int
    """Batch size B within an epoch."""
    epoch_length: int
    """Number of iterations m of an epoch."""
    snapshot_batch: int
    """Batch size N at the start of an epoch."""
    smoothness_theta: float
    """Smoothness constant L_theta of the utility in the parameters."""
    variance: VarianceConstants
    """Constants of the variance bound."""
    stationary: Prescription
    """Prescription for a stationary point."""
    global_optimum: Prescription
    """Prescription for the global optimum."""

    def __str__(self) -> str:
        return f"{WARNING}\n{self.table()}"

    def table(self) -> str:
        """Return the prescriptions as a table, without the warning that they are impractical."""
        stationary = self.stationary
        optimum = self.global_optimum
        lines = [
            f"Prescriptions of the theory of TSIVR-PG for accuracy of order {self.epsilon:g}",
            _table_row("horizon, H", self.horizon),
            _table_row("radius, delta", self.radius),
            _table_row("batch, B", self.batch),
            _table_row("epoch length, m", self.epoch_length),
            _table_row("snapshot batch, N", self.snapshot_batch),
            _table_row("smoothness, L_theta", self.smoothness_theta),
        ]
        for number, constant in enumerate(self.variance, 1):
            lines.append(_table_row(f"variance, C_{number}", constant))
        lines += [
            _table_row("", "stationary point", "global optimum"),
            _table_row("step size, eta", stationary.step_size, optimum.step_size),
            _table_row("epochs, T", stationary.epochs, optimum.epochs),
            _table_row("trajectories", stationary.trajectories, optimum.trajectories),
            _table_row(
                "environment steps", stationary.environment_steps, optimum.environment_steps
            ),
        ]
        return "\n".join(lines)


def _table_row(name: str, *values: float | int | str) -> str:
    """Return a line with a name and right-aligned values."""
    line = f"{name:<26}"
    for value in values:
        match value:
            case float():
                cell = f"{value:.3g}"
            case int():
                cell = f"{value:,}"
            case _:
                cell = value
        line += f"{cell:>20}"
    return line


def horizon(epsilon: float, discount: float) -> int:
    """Return the truncation horizon H = 2 log(1/epsilon) / (1 - gamma), rounded up (theorem:ncvx).

    Args:
        epsilon: Accuracy, between 0 and 1.
        discount: Discount factor gamma.

    Returns:
        Number of steps of a trajectory.
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must lie in (0, 1), got {epsilon}.")
    check_discount(discount)
    return _ceiling(2 * math.log(1 / epsilon) / (1 - discount))


def radius(horizon: int, lipschitz_psi: float) -> float:
    """Return the truncation radius delta = 1 / (2 H l_psi) (theorem:ncvx).

    Steps within this radius keep importance weights at most e.

    Args:
        horizon: Number of steps of a trajectory, H.
        lipschitz_psi: Bound of the gradient of the logits, l_psi.

    Returns:
        The radius.
    """
    _check_positive("horizon", horizon)
    _check_positive("lipschitz_psi", lipschitz_psi)
    return theory_radius(horizon, lipschitz_psi)


def weight_bound(step: int, distance: float, lipschitz_psi: float) -> float:
    """Return a bound on the importance weight of steps 0..t (lemma:Weight-Var0).

    The bound is exp(2 (t + 1) l_psi ||theta_1 - theta_2||).

    Args:
        step: Last step t.
        distance: Distance ||theta_1 - theta_2|| of the parameters.
        lipschitz_psi: Bound of the gradient of the logits, l_psi.

    Returns:
        The bound, infinity if larger than any float.
    """
    check_number("step", step, low=0.0)
    check_number("distance", distance, low=0.0)
    _check_positive("lipschitz_psi", lipschitz_psi)
    return _exp(2 * (step + 1) * lipschitz_psi * distance)


def weight_variance(step: int, radius: float, lipschitz_psi: float, smoothness_psi: float) -> float:
    """Return the variance of the weight of steps 0..t per squared distance (lemma:Weight-Var).

    The printed C_w(t) = t (4 l^2 (t + 1/2) + 2 L) (e^{4 delta t} + 1) fails for a large l. The
    argument of its proof gives C_w(t) = t (8 l^2 t + 2 (l^2 + L)) e^{2 t l delta}, with l = l_psi
    and L = L_psi. The result is C_w(t + 1).

    Args:
        step: Last step t.
        radius: Truncation radius delta.
        lipschitz_psi: Bound of the gradient of the logits, l_psi.
        smoothness_psi: Bound of the Hessian of the logits, L_psi.

    Returns:
        The constant C_w(t + 1).
    """
    check_number("radius", radius, low=0.0)
    check_number("smoothness_psi", smoothness_psi, low=0.0)
    count = step + 1
    curvature = 8 * lipschitz_psi**2 * count + 2 * (lipschitz_psi**2 + smoothness_psi)
    return count * curvature * weight_bound(step, radius, lipschitz_psi)


def gradient_bound(constants: Constants) -> float:
    """Return a bound on ||grad F(lambda(theta))|| (lemma:importance, i).

    The bound is 2 l_psi l_{lambda,inf} / (1 - gamma)^2.

    Args:
        constants: Constants of the problem.

    Returns:
        The bound.
    """
    return occupancy_lipschitz(constants) * constants.lipschitz_utility


def occupancy_lipschitz(constants: Constants) -> float:
    """Return the Lipschitz constant of the occupancy in the 1-norm (lemma:importance, ii).

    The constant is 2 l_psi / (1 - gamma)^2.

    Args:
        constants: Constants of the problem.

    Returns:
        The Lipschitz constant.
    """
    return 2 * constants.lipschitz_psi / (1 - constants.discount) ** 2


def smoothness_theta(constants: Constants) -> float:
    """Return the smoothness L_theta of F(lambda(theta)) in theta (lemma:importance, iii).

    Args:
        constants: Constants of the problem.

    Returns:
        The Lipschitz constant of the gradient.
    """
    remainder = 1 - constants.discount
    lipschitz_sq = constants.lipschitz_psi**2
    slope = constants.lipschitz_utility
    utility_term = 4 * constants.smoothness_utility_l1 * lipschitz_sq / remainder**4
    score_term = 8 * lipschitz_sq * slope / remainder**3
    logits_term = 2 * slope * (constants.smoothness_psi + lipschitz_sq) / remainder**2
    return utility_term + score_term + logits_term


def variance_constants(constants: Constants, horizon: int, radius: float) -> VarianceConstants:
    """Return the constants C_1 to C_4 (lemma:SIVR-variance, detailed in the appendix).

    Two are printed wrongly. In C_1 the term in l_{lambda,inf}^2 lacks a factor 4 l_psi^2. In C_3
    the first term has l_psi for l_psi^2, and the second has l_{lambda,inf}^2 for l_psi^2 in front
    of the bracket.

    Args:
        constants: Constants of the problem.
        horizon: Number of steps of a trajectory, H.
        radius: Truncation radius delta.

    Returns:
        The four constants.
    """
    _check_positive("horizon", horizon)
    check_number("radius", radius, low=0.0)
    remainder = 1 - constants.discount
    lipschitz_sq = constants.lipschitz_psi**2
    smoothness_psi = constants.smoothness_psi
    slope_sq = constants.lipschitz_utility**2
    curvature_sq = constants.smoothness_utility**2
    growth = _exp(2 * horizon * constants.lipschitz_psi * radius) + 1
    weights = horizon * lipschitz_sq * (8 * lipschitz_sq + smoothness_psi) * growth
    snapshot = 112 * lipschitz_sq * curvature_sq / remainder**6
    snapshot += 48 * lipschitz_sq * slope_sq / remainder**4
    tail = (horizon + 1) ** 2 / remainder**2 + 1 / remainder**4
    truncation = 32 * lipschitz_sq * curvature_sq / remainder**6
    truncation += 64 * lipschitz_sq * slope_sq * tail
    drift = 48 * (lipschitz_sq + smoothness_psi) ** 2 * slope_sq / remainder**4
    bracket = 12 * slope_sq + 4 * curvature_sq / (3 * remainder**2)
    drift += 96 * weights / remainder**5 * bracket
    last_step = 0.0
    if curvature_sq:  # the weights may be infinite
        last_step = 32 * weights * curvature_sq / remainder**7
    return VarianceConstants(snapshot, truncation, drift, last_step)


def step_size_stationary(smoothness: float, variance: VarianceConstants) -> float:
    """Return the step size of theorem:ncvx.

    The step size is eta = 1 / (2 L_theta (1 + (C_3 + C_4) / L_theta^2)).

    Args:
        smoothness: Smoothness L_theta.
        variance: Constants C_1 to C_4.

    Returns:
        The step size.
    """
    _check_positive("smoothness", smoothness)
    noise = variance.drift + variance.last_step
    return 1 / (2 * (smoothness + noise / smoothness))


def step_size_global(smoothness: float, variance: VarianceConstants) -> float:
    """Return the largest step size of theorem:convergence-rate.

    The step size is 1 / (2 L_theta + 8 (C_3 + C_4) / L_theta).

    Args:
        smoothness: Smoothness L_theta.
        variance: Constants C_1 to C_4.

    Returns:
        The step size.
    """
    _check_positive("smoothness", smoothness)
    noise = variance.drift + variance.last_step
    return 1 / (2 * smoothness + 8 * noise / smoothness)


def gradient_mapping(
    gradient: Float[ArrayLike, "*n"], step_size: float, radius: float
) -> Float[np.ndarray, "*n"]:
    """Return the gradient mapping G_eta, the measure of stationarity of theorem:ncvx.

    The mapping is the truncated step over the step size, (Proj(theta + eta g) - theta) / eta with
    the ball of the radius around theta. The projection maximises <g, x - theta> - ||x - theta||^2 /
    (2 eta) over that ball. defn:TR prints the minus as a plus.

    Args:
        gradient: Gradient g.
        step_size: Step size eta.
        radius: Truncation radius delta.

    Returns:
        An array with the shape of the gradient.
    """
    _check_positive("step_size", step_size)
    _check_positive("radius", radius)
    vector = np.asarray(gradient, dtype=float)
    length = step_size * float(np.linalg.norm(vector.ravel()))
    if length <= radius:
        return vector.copy()
    return vector * (radius / length)


def plan(epsilon: float, constants: Constants) -> Plan:
    """Compute the prescriptions of theorem:ncvx and theorem:convergence-rate.

    Counts are rounded up. An epoch samples N + (m - 1) B trajectories of H steps. For theorem:ncvx
    the paper prints T m (B H + N), which is not the number that its algorithm samples.

    Args:
        epsilon: Order of the accuracy, at most 1/2.
        constants: Constants of the problem.

    Returns:
        Sizes, step sizes and sample counts.
    """
    if not 0 < epsilon <= 0.5:
        raise ValueError(f"epsilon must lie in (0, 0.5], got {epsilon}.")
    steps = horizon(epsilon, constants.discount)
    delta = radius(steps, constants.lipschitz_psi)
    batch = _ceiling(1 / epsilon)
    snapshot_batch = _ceiling((1 / epsilon) ** 2)
    smoothness = smoothness_theta(constants)
    variance = variance_constants(constants, steps, delta)

    def prescription(step_size: float, epochs: int) -> Prescription:
        trajectories = epochs * ((batch - 1) * batch + snapshot_batch)
        return Prescription(step_size, epochs, trajectories, trajectories * steps)

    optimum_epochs = _ceiling(math.log2(1 / epsilon))
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
        stationary=prescription(step_size_stationary(smoothness, variance), batch),
        global_optimum=prescription(step_size_global(smoothness, variance), optimum_epochs),
    )


def _check_positive(name: str, value: float) -> None:
    check_number(name, value, low=0.0, open_low=True)


def check_discount(value: float) -> None:
    """Raise ValueError for a discount that the theory does not allow.

    Args:
        value: discount factor gamma.

    Raises:
        ValueError: if it is not in [0, 1).
    """
    if not 0 <= value < 1:
        raise ValueError(f"discount must lie in [0, 1), got {value}.")


def _ceiling(value: float) -> int:
    """Return a number rounded up, except for rounding errors: 1 / (1 / 49) is 49."""
    return math.ceil(value * (1 - 1e-12))


def _exp(value: float) -> float:
    """Return the exponential, infinity if larger than any float."""
    if value >= MAX_EXPONENT:
        return math.inf
    return math.exp(value)

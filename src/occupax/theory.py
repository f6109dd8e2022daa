"""The constants, step sizes and sample counts of the theory of TSIVR-PG, as a calculator.

The source is Zhang, Ni, Yu, Szepesvari and Wang, "On the Convergence and Sample Efficiency of
Variance-Reduced Policy Gradient Method"; each docstring names the lemma or theorem by its label
there. Where the constants printed in the paper do not follow from its own proofs, the corrected
ones are used and the docstring says so.
"""

import math
from dataclasses import astuple, dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

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
    "These settings guarantee convergence but are far too small for practice (for tabular FrozenLake eta is below "
    "1e-7): tune eta and delta instead, and read the numbers for how the cost grows as epsilon shrinks."
)
TABULAR_SOFTMAX = MappingProxyType({"lipschitz_psi": TABULAR_LIPSCHITZ, "smoothness_psi": 0.0})
"""Sharper constants for a softmax over a table of logits: `Constants(..., **TABULAR_SOFTMAX)`.

The proofs use them only to bound ||grad log pi|| and ||hess log pi||, which are at most sqrt(2) and
1/2 for a table.
"""


@dataclass(frozen=True)
class Constants:
    """What the theory asks of a problem with the discount gamma (assumption:psi-Lip and assumption:F-Lip)."""

    discount: float
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
        _check_discount(self.discount)
        _check_finite(
            "positive", lipschitz_psi=self.lipschitz_psi, lipschitz_utility=self.lipschitz_utility
        )
        _check_finite(
            "non-negative",
            smoothness_psi=self.smoothness_psi,
            smoothness_utility=self.smoothness_utility,
        )
        _check_finite("non-negative", smoothness_utility_l1=self.smoothness_utility_l1)


def problem_constants(
    problem: ProblemSource,
    lipschitz_psi: float | None = None,
    smoothness_psi: float | None = None,
    reward_bound: float | None = None,
) -> Constants:
    """The constants of a problem whose utility has finite ones; a tabular one brings what is not given.

    Args:
        problem: the problem, or an environment or its name for its discounted return.
        lipschitz_psi: bound of the gradient of the policy's logits; by default that of a softmax
            over a table.
        smoothness_psi: bound of the Hessian of the policy's logits; given if and only if
            `lipschitz_psi` is.
        reward_bound: the largest reward of a step, up to its sign, where the environment is not
            tabular.
    """
    problem = as_problem(problem)
    if lipschitz_psi is None and smoothness_psi is None and isinstance(problem.env, TabularMDP):
        lipschitz_psi, smoothness_psi = TABULAR_SOFTMAX.values()
    if lipschitz_psi is None or smoothness_psi is None:
        raise ValueError(
            "lipschitz_psi and smoothness_psi must both be given, or left out for the softmax over the table of a "
            f"tabular environment, got {lipschitz_psi} and {smoothness_psi} for {type(problem.env).__name__}."
        )
    return Constants(
        problem.discount,
        lipschitz_psi,
        smoothness_psi,
        *occupancy_smoothness(problem, reward_bound),
    )


def occupancy_smoothness(problem: ProblemSource, reward_bound: float | None = None) -> Smoothness:
    """The constants of the utility as a function of the state-action occupancy, lambda.

    With the features Phi, [S * A, d], this function is F(Phi^T lambda). If a row of Phi has at most
    the l1 norm R and a column C, Phi takes the inf-norm to at most R times as much, and Phi^T the
    1-norm to R and the 2-norm to sqrt(R C).
    """
    problem = as_problem(problem)
    own = problem.utility.smoothness
    if not all(map(math.isfinite, own)):
        shown = ", ".join(f"{name}={constant:g}" for name, constant in own._asdict().items())
        raise ValueError(
            f"the theory needs a utility with finite constants, but {type(problem.utility).__name__} has {shown}; "
            "log coverage has finite ones, and so has the entropy with a smoothing above 0."
        )
    row, column = _norms(problem, reward_bound)
    return Smoothness(
        row * own.gradient_bound, row * math.sqrt(row * column) * own.l2, row**2 * own.l1
    )


def _norms(problem: Problem, reward_bound: float | None) -> tuple[float, float]:
    env = problem.env
    if isinstance(env, TabularMDP):
        if reward_bound is not None:
            raise ValueError(
                f"reward_bound must be left out where a table says it, got {reward_bound}."
            )
        # Estimates add up the rewards that are drawn, which may be larger than the expected reward
        # of the table.
        largest = np.abs(env.outcome_rewards).max(-1, keepdims=True)
        drawn = np.broadcast_to(largest, env.outcome_rewards.shape)
        model = dynamics(eqx.tree_at(lambda it: it.env.outcome_rewards, problem, drawn))
        size = abs(model.features) * np.repeat(model.counting, env.num_actions)[:, None]
        return float(size.sum(1).max()), float(size.sum(0).max())
    if reward_bound is None or not isinstance(problem.features, Reward):
        raise ValueError(
            f"reward_bound must be given, and the utility be the reward, where there is no table, got {reward_bound} "
            f"and {type(problem.utility).__name__} for {type(env).__name__}."
        )
    # a linear utility has no use for the column
    return check_number("reward_bound", reward_bound, low=0.0, open_low=True), 0.0


class VarianceConstants(NamedTuple):
    """The constants C_1, C_2, C_3 and C_4 of lemma:SIVR-variance, in this order.

    The mean squared error of the gradient estimate at iteration j of an epoch is at most `snapshot`
    / N + `truncation` gamma^(2H) + `drift` / B sum_{i<=j} ||theta_i - theta_{i-1}||^2 + `last_step`
    ||theta_j - theta_{j-1}||^2.
    """

    snapshot: float
    truncation: float
    drift: float
    last_step: float


@dataclass(frozen=True)
class Prescription:
    """What one theorem asks for: a step size (eta), a number of epochs (T) and the samples these cost."""

    step_size: float
    epochs: int
    trajectories: int
    environment_steps: int


@dataclass(frozen=True)
class Plan:
    """Everything the theory prescribes for an accuracy of order `epsilon`; `print` it to see a table.

    The `global_optimum` needs assumption:over-para, which a linear utility with a softmax over a
    table does not meet.
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
        return f"{WARNING}\n{self.table()}"

    def table(self) -> str:
        """What is prescribed, without the warning that it is of no use in practice."""
        names = ("step size, eta", "epochs, T", "trajectories", "environment steps")
        rows: list[tuple[Any, ...]] = [
            ("horizon, H", self.horizon),
            ("radius, delta", self.radius),
            ("batch, B", self.batch),
            ("epoch length, m", self.epoch_length),
            ("snapshot batch, N", self.snapshot_batch),
            ("smoothness, L_theta", self.smoothness_theta),
            *((f"variance, C_{index}", value) for index, value in enumerate(self.variance, 1)),
            ("", "stationary point", "global optimum"),
            *zip(names, astuple(self.stationary), astuple(self.global_optimum), strict=True),
        ]
        lines = [
            f"What the theory of TSIVR-PG prescribes for an accuracy of order epsilon = {self.epsilon:g}"
        ]
        for name, *values in rows:
            cells = (
                f"{it:.3g}" if isinstance(it, float) else f"{it:,}" if isinstance(it, int) else it
                for it in values
            )
            lines.append(f"{name:<26}" + "".join(f"{cell:>20}" for cell in cells))
        return "\n".join(lines)


def horizon(epsilon: float, discount: float) -> int:
    """Steps after which a trajectory is cut, H = 2 log(1/epsilon) / (1 - gamma) rounded up (theorem:ncvx)."""
    if not 0 < epsilon < 1:
        raise ValueError(f"`epsilon` is {epsilon}; it must lie strictly between 0 and 1.")
    _check_discount(discount)
    return _ceiling(2 * math.log(1 / epsilon) / (1 - discount))


def radius(horizon: int, lipschitz_psi: float) -> float:
    """Truncation radius that keeps importance weights at most e, delta = 1 / (2 H l_psi) (theorem:ncvx)."""
    _check_finite("positive", horizon=horizon, lipschitz_psi=lipschitz_psi)
    return theory_radius(horizon, lipschitz_psi)


def weight_bound(step: int, distance: float, lipschitz_psi: float) -> float:
    """Largest importance weight w_t of steps 0..t, exp(2 (t + 1) l_psi ||theta_1 - theta_2||) (lemma:Weight-Var0)."""
    _check_finite("non-negative", step=step, distance=distance)
    _check_finite("positive", lipschitz_psi=lipschitz_psi)
    return _exp(2 * (step + 1) * lipschitz_psi * distance)


def weight_variance(step: int, radius: float, lipschitz_psi: float, smoothness_psi: float) -> float:
    """Variance of the importance weight of steps 0..t per squared distance, C_w(t + 1) (lemma:Weight-Var).

    The printed C_w(t) = t (4 l^2 (t + 1/2) + 2 L) (e^{4 delta t} + 1) fails for a large l; the
    argument behind it gives C_w(t) = t (8 l^2 t + 2 (l^2 + L)) e^{2 t l delta}, with l = l_psi and
    L = L_psi.
    """
    _check_finite("non-negative", radius=radius, smoothness_psi=smoothness_psi)
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
    left, squared = 1 - constants.discount, constants.lipschitz_psi**2
    utility, slope = (
        4 * constants.smoothness_utility_l1 * squared / left**4,
        constants.lipschitz_utility,
    )
    return (
        utility
        + 8 * squared * slope / left**3
        + 2 * slope * (constants.smoothness_psi + squared) / left**2
    )


def variance_constants(constants: Constants, horizon: int, radius: float) -> VarianceConstants:
    """The constants C_1 to C_4 for a horizon H and a radius delta (lemma:SIVR-variance, detailed in the appendix).

    Two are printed wrongly. In C_1 the term in l_{lambda,inf}^2 lacks a factor 4 l_psi^2. In C_3
    the first term has l_psi for l_psi^2, and the second has l_{lambda,inf}^2 for l_psi^2 in front
    of the bracket.
    """
    _check_finite("positive", horizon=horizon)
    _check_finite("non-negative", radius=radius)
    left, squared = 1 - constants.discount, constants.lipschitz_psi**2
    slope, curvature = constants.lipschitz_utility**2, constants.smoothness_utility**2
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
    _check_finite("positive", smoothness=smoothness)
    return 1 / (2 * (smoothness + (variance.drift + variance.last_step) / smoothness))


def step_size_global(smoothness: float, variance: VarianceConstants) -> float:
    """Largest step size of theorem:convergence-rate, 1 / (2 L_theta + 8 (C_3 + C_4) / L_theta)."""
    _check_finite("positive", smoothness=smoothness)
    return 1 / (2 * smoothness + 8 * (variance.drift + variance.last_step) / smoothness)


def gradient_mapping(
    gradient: Float[ArrayLike, "*n"], step_size: float, radius: float
) -> Float[np.ndarray, "*n"]:
    """The measure of stationarity of theorem:ncvx, G_eta: the truncated step over the step size.

    This is (Proj(theta + eta g) - theta) / eta with the ball of the radius around theta. The
    projection maximises <g, x - theta> - ||x - theta||^2 / (2 eta) over that ball; defn:TR prints
    the minus as a plus.
    """
    _check_finite("positive", step_size=step_size, radius=radius)
    vector = np.asarray(gradient, dtype=float)
    length = step_size * float(np.linalg.norm(vector.ravel()))
    return vector * (radius / length) if length > radius else vector.copy()


def plan(epsilon: float, constants: Constants) -> Plan:
    """Work out all that theorem:ncvx and theorem:convergence-rate prescribe.

    Counts are rounded up. An epoch draws N + (m - 1) B trajectories of H steps; for theorem:ncvx
    the paper prints T m (B H + N), which is not what its algorithm draws. The accuracy `epsilon` is
    at most 1/2.
    """
    if not 0 < epsilon <= 0.5:
        raise ValueError(f"`epsilon` is {epsilon}; it must be positive and at most 0.5.")
    steps = horizon(epsilon, constants.discount)
    delta = radius(steps, constants.lipschitz_psi)
    batch, snapshot_batch = _ceiling(1 / epsilon), _ceiling((1 / epsilon) ** 2)
    smoothness, variance = smoothness_theta(constants), variance_constants(constants, steps, delta)

    def prescribe(step_size: float, epochs: int) -> Prescription:
        drawn = epochs * ((batch - 1) * batch + snapshot_batch)
        return Prescription(step_size, epochs, drawn, drawn * steps)

    stationary = prescribe(step_size_stationary(smoothness, variance), batch)
    best = prescribe(step_size_global(smoothness, variance), _ceiling(math.log2(1 / epsilon)))
    sizes = (steps, delta, batch, batch, snapshot_batch)
    return Plan(epsilon, constants, *sizes, smoothness, variance, stationary, best)


def _check_finite(sign: Literal["positive", "non-negative"], **values: int | float) -> None:
    for name, value in values.items():
        if not (0 < value < math.inf or (value == 0 and sign == "non-negative")):
            raise ValueError(f"`{name}` is {value}; it must be a {sign} finite number.")


def _check_discount(value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"`discount` is {value}; it must be at least 0 and less than 1.")


def _ceiling(value: float) -> int:
    """Round up, but not because of the last bits: 1 / (1 / 49) is 49."""
    return math.ceil(value * (1 - 1e-12))


def _exp(value: float) -> float:
    """Infinity, not an error, where the exponential is larger than any float."""
    return math.exp(value) if value < 709 else math.inf

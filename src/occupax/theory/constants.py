"""What the theory asks of a problem: the constants of its policy and of its utility."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import equinox as eqx
import numpy as np

from occupax._errors import check_number
from occupax.envs.tabular import TabularMDP
from occupax.exact.dynamics import dynamics
from occupax.features import Reward
from occupax.problem import Problem
from occupax.utilities.base import Smoothness

TABULAR_SOFTMAX: Final[Mapping[str, float]] = MappingProxyType({"lipschitz_psi": math.sqrt(0.5), "smoothness_psi": 0.0})
"""Sharper constants for a softmax over a table of logits: `Constants(..., **TABULAR_SOFTMAX)`.

The table has l_psi = 1 and L_psi = 0, but the proofs use them only through ||grad log pi|| <= 2 l_psi and
||hess log pi|| <= 2 (L_psi + l_psi^2). For the table these norms are at most sqrt(2) and 1/2, so every result here also
holds with l_psi = 1/sqrt(2) and L_psi = 0, which stand for the bounds sqrt(2) and 1.
"""


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the theory asks of a problem (assumption:psi-Lip and assumption:F-Lip).

    Attributes:
        discount: The discount factor, gamma.
        lipschitz_psi: Bound of ||grad psi||_2 for the logits psi, l_psi.
        smoothness_psi: Bound of the spectral norm of the Hessian of psi, L_psi (printed once as L_h).
        lipschitz_utility: Bound of ||grad F||_inf, l_{lambda,inf}.
        smoothness_utility: Lipschitz constant of grad F from the 2-norm to the inf-norm, L_lambda.
        smoothness_utility_l1: Lipschitz constant of grad F from the 1-norm to the inf-norm, L_{lambda,inf}.
    """

    discount: float
    lipschitz_psi: float
    smoothness_psi: float
    lipschitz_utility: float
    smoothness_utility: float
    smoothness_utility_l1: float

    def __post_init__(self) -> None:
        check_discount(self.discount)
        check_finite("positive", lipschitz_psi=self.lipschitz_psi, lipschitz_utility=self.lipschitz_utility)
        check_finite("non-negative", smoothness_psi=self.smoothness_psi, smoothness_utility=self.smoothness_utility)
        check_finite("non-negative", smoothness_utility_l1=self.smoothness_utility_l1)


def problem_constants(
    problem: Problem,
    lipschitz_psi: float | None = None,
    smoothness_psi: float | None = None,
    reward_bound: float | None = None,
) -> Constants:
    """The constants of a problem; a tabular one brings what is not given.

    Args:
        problem: the problem, with a utility whose own constants are finite.
        lipschitz_psi: bound of the gradient of the policy's logits; by default that of a softmax over a table.
        smoothness_psi: bound of the Hessian of the policy's logits; given if and only if `lipschitz_psi` is.
        reward_bound: the largest reward of a step, up to its sign, where the environment is not tabular.
    """
    if lipschitz_psi is not None and smoothness_psi is not None:
        psi = {"lipschitz_psi": lipschitz_psi, "smoothness_psi": smoothness_psi}
    elif lipschitz_psi is None and smoothness_psi is None and isinstance(problem.env, TabularMDP):
        psi = TABULAR_SOFTMAX
    else:
        raise ValueError(
            "lipschitz_psi and smoothness_psi must both be given, or left out for the softmax over the table of a "
            f"tabular environment, got {lipschitz_psi} and {smoothness_psi} for {type(problem.env).__name__}."
        )
    bound, l2, l1 = occupancy_smoothness(problem, reward_bound)
    return Constants(
        discount=problem.discount,
        lipschitz_utility=bound,
        smoothness_utility=l2,
        smoothness_utility_l1=l1,
        **psi,
    )


def occupancy_smoothness(problem: Problem, reward_bound: float | None = None) -> Smoothness:
    """The constants of the utility as a function of the state-action occupancy, lambda.

    With the features Phi, [S * A, d], this function is F(Phi^T lambda), and its gradient Phi grad F. A row of Phi has
    at most the l1 norm R and a column C, so Phi takes the inf-norm to at most R times as much, Phi^T the 1-norm
    likewise, and Phi^T the 2-norm to at most math.sqrt(R C) times as much. State features have R = 1 and C = A.
    """
    own = problem.utility.smoothness
    if not all(map(math.isfinite, own)):
        shown = ", ".join(f"{name}={constant:g}" for name, constant in own._asdict().items())
        raise ValueError(
            f"the theory needs a utility with finite constants, but {type(problem.utility).__name__} has {shown}; "
            "log coverage has finite ones, and so has the entropy with a smoothing above 0."
        )
    row, column = _norms(problem, reward_bound)
    return Smoothness(row * own.gradient_bound, row * math.sqrt(row * column) * own.l2, row**2 * own.l1)


def _norms(problem: Problem, reward_bound: float | None) -> tuple[float, float]:
    """The largest l1 norms of a row and of a column of the features."""
    env = problem.env
    if isinstance(env, TabularMDP):
        if reward_bound is not None:
            raise ValueError(f"reward_bound must be left out where a table says it, got {reward_bound}.")
        # Estimates add up the rewards that are drawn, which may be larger than the expected reward of the table.
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


def check_finite(sign: Literal["positive", "non-negative"], **values: int | float) -> None:
    """Refuse arguments that are not finite, or not of this sign."""
    for name, value in values.items():
        if not (0 < value < math.inf or (value == 0 and sign == "non-negative")):
            raise ValueError(f"`{name}` is {value}; it must be a {sign} finite number.")


def check_discount(value: float) -> None:
    """Refuse a discount factor outside of [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"`discount` is {value}; it must be at least 0 and less than 1.")

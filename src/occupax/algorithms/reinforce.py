"""REINFORCE with quasi-rewards (Williams, 1992)."""

from math import inf
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from occupax.algorithms.base import Algorithm, fresh, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class ReinforceState(eqx.Module):
    """The policy, and the estimate it was reached by."""

    policy: Policy
    gradient: Policy
    memory: Any


class REINFORCE(Algorithm[ReinforceState]):
    """Ascent along a fresh estimate: g = mean g_hat(theta, grad F(u)) with u = mean u_hat(theta).

    Args:
        batch: trajectories an iteration (N).
        step_size: eta.
        radius: bound of each displacement (delta); none by default.
        rule: "gradient", "normalised" or an optax transformation.
    """

    batch: int = eqx.field(static=True, default=100)
    step_size: Float[Array, ""] | float = 0.05
    radius: Float[Array, ""] | float = inf
    rule: Any = eqx.field(static=True, default="gradient")

    @property
    def cycle(self) -> tuple[int, ...]:
        """A fresh batch every time."""
        return (self.batch,)

    def init(self, policy: Policy, size: int) -> ReinforceState:
        """Only the policy is carried over."""
        del size
        return ReinforceState(policy, no_gradient(policy), self.step().init(policy))

    def start(self, state: ReinforceState, batch: Batch) -> ReinforceState:
        """Estimate, and step."""
        _, g = fresh(batch)
        policy, memory = self.step()(state.policy, g, state.memory)
        return ReinforceState(policy, g, memory)

    def refine(self, state: ReinforceState, batch: Batch) -> ReinforceState:
        """Every iteration is a first one."""
        return self.start(state, batch)

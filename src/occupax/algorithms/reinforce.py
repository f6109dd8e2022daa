"""REINFORCE with quasi-rewards (Williams, 1992)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import Algorithm, fresh, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class ReinforceState(eqx.Module):
    """The policy, and the estimates it was reached by."""

    policy: Policy
    occupancy: Float[Array, " d"]
    gradient: Policy
    memory: Any


class REINFORCE(Algorithm[ReinforceState]):
    """Ascent along a fresh estimate: g = mean g_hat(theta, grad F(u)) with u = mean u_hat(theta).

    Args:
        batch: trajectories an iteration (N).
        step_size, radius, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    batch: int = eqx.field(static=True, default=100)

    @property
    def cycle(self) -> tuple[int, ...]:
        """A fresh batch every time."""
        return (self.batch,)

    def init(self, policy: Policy, size: int) -> ReinforceState:
        """Only the policy is carried over."""
        return ReinforceState(policy, jnp.zeros(size), no_gradient(policy), self.step().init(policy))

    def start(self, state: ReinforceState, batch: Batch) -> ReinforceState:
        """Estimate, and step."""
        u, g = fresh(batch, self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return ReinforceState(policy, u, g, memory)

    def refine(self, state: ReinforceState, batch: Batch) -> ReinforceState:
        """Every iteration is a first one."""
        return self.start(state, batch)

    def reference(self, state: ReinforceState) -> Policy:
        """Every estimate is fresh: the present policy."""
        return state.policy

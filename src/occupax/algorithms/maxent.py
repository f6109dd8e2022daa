"""MaxEnt with one gradient step as its planner (Hazan et al., 2019)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from occupax.algorithms.base import Algorithm, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class MaxEntState(eqx.Module):
    """The policy and its occupancy, and that of the mixture of all policies so far."""

    policy: Policy
    mixture: Float[Array, " d"]
    occupancy: Float[Array, " d"]
    gradient: Policy
    iterations: Int[Array, ""]
    memory: Any


class MaxEnt(Algorithm[MaxEntState]):
    """Improves the policy for the quasi-reward of a mixture: u_mix <- (1 - alpha) u_mix + alpha mean u_hat(theta_k).

    Args:
        batch: trajectories an iteration (N).
        mixing: alpha, the share of the newest policy in the mixture; the first one has all of it.
        step_size, radius, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    batch: int = eqx.field(static=True, default=100)
    mixing: Float[Array, ""] | float = 0.1

    def __check_init__(self) -> None:
        if isinstance(self.mixing, (int, float)) and not 0 < self.mixing <= 1:
            raise ValueError(f"mixing must lie in (0, 1], got {self.mixing!r}.")

    @property
    def cycle(self) -> tuple[int, ...]:
        """A fresh batch every time."""
        return (self.batch,)

    def init(self, policy: Policy, size: int) -> MaxEntState:
        """An empty mixture."""
        nothing = jnp.zeros(size)
        memory = self.step().init(policy)
        return MaxEntState(policy, nothing, nothing, no_gradient(policy), jnp.zeros((), jnp.int32), memory)

    def start(self, state: MaxEntState, batch: Batch) -> MaxEntState:
        """Add to the mixture, and step along its quasi-reward."""
        share = jnp.where(state.iterations == 0, 1.0, self.mixing)
        u = batch.occupancy()
        mixture = (1 - share) * state.mixture + share * u
        g = batch.gradient(None, batch.quasi_reward(mixture), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return MaxEntState(policy, mixture, u, g, state.iterations + 1, memory)

    def refine(self, state: MaxEntState, batch: Batch) -> MaxEntState:
        """Every iteration is a first one."""
        return self.start(state, batch)

    def reference(self, state: MaxEntState) -> Policy:
        """Every estimate is fresh: the present policy."""
        return state.policy

"""MaxEnt with one gradient step as its planner (Hazan et al., 2019)."""

from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from occupax.algorithms.base import Algorithm, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class MaxEntState(eqx.Module):
    """The policy, and the occupancy of the mixture of all policies so far."""

    policy: Policy
    mixture: Float[Array, " d"]
    gradient: Policy
    iterations: Int[Array, ""]
    memory: Any


class MaxEnt(Algorithm[MaxEntState]):
    """Improves the policy for the quasi-reward of a mixture: u_mix <- (1 - alpha) u_mix + alpha mean u_hat(theta_k).

    Args:
        batch: trajectories an iteration (N).
        mixing: alpha, the share of the newest policy in the mixture; the first one has all of it.
        step_size: eta.
        radius: bound of each displacement (delta); none by default.
        rule: "gradient", "normalised" or an optax transformation.
    """

    batch: int = eqx.field(static=True, default=100)
    mixing: Float[Array, ""] | float = 0.1
    step_size: Float[Array, ""] | float = 0.05
    radius: Float[Array, ""] | float = inf
    rule: Any = eqx.field(static=True, default="gradient")

    def __check_init__(self) -> None:
        if isinstance(self.mixing, (int, float)) and not 0 < self.mixing <= 1:
            raise ValueError(f"mixing must lie in (0, 1], got {self.mixing!r}.")

    @property
    def cycle(self) -> tuple[int, ...]:
        """A fresh batch every time."""
        return (self.batch,)

    def init(self, policy: Policy, size: int) -> MaxEntState:
        """An empty mixture."""
        return MaxEntState(
            policy, jnp.zeros(size), no_gradient(policy), jnp.zeros((), jnp.int32), self.step().init(policy)
        )

    def start(self, state: MaxEntState, batch: Batch) -> MaxEntState:
        """Add to the mixture, and step along its quasi-reward."""
        share = jnp.where(state.iterations == 0, 1.0, self.mixing)
        mixture = (1 - share) * state.mixture + share * batch.occupancy()
        g = batch.gradient(batch.quasi_reward(mixture))
        policy, memory = self.step()(state.policy, g, state.memory)
        return MaxEntState(policy, mixture, g, state.iterations + 1, memory)

    def refine(self, state: MaxEntState, batch: Batch) -> MaxEntState:
        """Every iteration is a first one."""
        return self.start(state, batch)

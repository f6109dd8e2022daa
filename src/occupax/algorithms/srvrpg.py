"""SRVR-PG: recursive variance reduction (Xu, Gao and Gu, 2019)."""

from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import Algorithm, carried, fresh, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class SRVRPGState(eqx.Module):
    """Two consecutive policies, and the running estimates."""

    policy: Policy
    previous: Policy
    occupancy: Float[Array, " d"]
    gradient: Policy
    memory: Any


class SRVRPG(Algorithm[SRVRPGState]):
    """Carries the estimate along: g_j = g_{j-1} + mean[ g_hat(theta_j, r) - g_hat(theta_{j-1}, r) ].

    For a utility that is not linear, r is grad F at the occupancy carried along in the same way.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each refinement (B).
        epoch_length: iterations in a cycle, the snapshot included (m).
        step_size: eta.
        radius: bound of each displacement (delta); none by default.
        rule: "gradient", "normalised" or an optax transformation.
    """

    snapshot_batch: int = eqx.field(static=True, default=100)
    batch: int = eqx.field(static=True, default=10)
    epoch_length: int = eqx.field(static=True, default=10)
    step_size: Float[Array, ""] | float = 0.05
    radius: Float[Array, ""] | float = inf
    rule: Any = eqx.field(static=True, default="gradient")

    @property
    def cycle(self) -> tuple[int, ...]:
        """N, then B each time."""
        return (self.snapshot_batch, *[self.batch] * (self.epoch_length - 1))

    def init(self, policy: Policy, size: int) -> SRVRPGState:
        """Nothing is known yet."""
        return SRVRPGState(policy, policy, jnp.zeros(size), no_gradient(policy), self.step().init(policy))

    def start(self, state: SRVRPGState, batch: Batch) -> SRVRPGState:
        """Take a snapshot."""
        u, g = fresh(batch)
        policy, memory = self.step()(state.policy, g, state.memory)
        return SRVRPGState(policy, state.policy, u, g, memory)

    def refine(self, state: SRVRPGState, batch: Batch) -> SRVRPGState:
        """Carry the estimates over to the new policy."""
        then, now = state.previous, state.policy
        u, g = carried(batch, state.occupancy, state.gradient, then, now)
        policy, memory = self.step()(now, g, state.memory)
        return SRVRPGState(policy, now, u, g, memory)

"""SRVR-PG: recursive variance reduction (Xu, Gao and Gu, 2019)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import EpochAlgorithm, carried, fresh, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class SRVRPGState(eqx.Module):
    """Two consecutive policies, and the running estimates."""

    policy: Policy
    previous: Policy
    occupancy: Float[Array, " d"]
    gradient: Policy
    memory: Any


class SRVRPG(EpochAlgorithm[SRVRPGState]):
    """Carries the estimate along: g_j = g_{j-1} + mean[ g_hat(theta_j, r) - g_hat(theta_{j-1}, r) ].

    For a utility that is not linear, r is grad F at the occupancy carried along in the same way.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each refinement (B).
        epoch_length: iterations in a cycle, the snapshot included (m).
        step_size, radius, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    @property
    def cycle(self) -> tuple[int, ...]:
        """N, then B each time."""
        return (self.snapshot_batch, *[self.batch] * (self.epoch_length - 1))

    def init(self, policy: Policy, size: int) -> SRVRPGState:
        """Nothing is known yet."""
        return SRVRPGState(policy, policy, jnp.zeros(size), no_gradient(policy), self.step().init(policy))

    def start(self, state: SRVRPGState, batch: Batch) -> SRVRPGState:
        """Take a snapshot."""
        u, g = fresh(batch, self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return SRVRPGState(policy, state.policy, u, g, memory)

    def refine(self, state: SRVRPGState, batch: Batch) -> SRVRPGState:
        """Carry the estimates over to the new policy."""
        then, now = state.previous, state.policy
        u, g = carried(batch, state.occupancy, state.gradient, then, now, self.baseline)
        policy, memory = self.step()(now, g, state.memory, batch)
        return SRVRPGState(policy, now, u, g, memory)

    def reference(self, state: SRVRPGState) -> Policy:
        """The policy before the last step."""
        return state.previous

"""SVRPG: variance reduction by a snapshot (Papini et al., 2018; Xu et al., 2020)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import EpochAlgorithm, carried, fresh, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class SVRPGState(eqx.Module):
    """The policy, and what was estimated at the snapshot."""

    policy: Policy
    snapshot: Policy
    snapshot_occupancy: Float[Array, " d"]
    snapshot_gradient: Policy
    occupancy: Float[Array, " d"]
    gradient: Policy
    memory: Any


class SVRPG(EpochAlgorithm[SVRPGState]):
    """Corrects the snapshot's gradient: g = g_0 + mean[ g_hat(theta_j, r) - g_hat(snapshot, r) ].

    For a utility that is not linear, r is grad F at u_0 + mean[ u_hat(theta_j) - u_hat(snapshot) ].

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

    def init(self, policy: Policy, size: int) -> SVRPGState:
        """Nothing is known yet."""
        nothing = jnp.zeros(size)
        none = no_gradient(policy)
        return SVRPGState(policy, policy, nothing, none, nothing, none, self.step().init(policy))

    def start(self, state: SVRPGState, batch: Batch) -> SVRPGState:
        """Take a snapshot."""
        u, g = fresh(batch, self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return SVRPGState(policy, state.policy, u, g, u, g, memory)

    def refine(self, state: SVRPGState, batch: Batch) -> SVRPGState:
        """Correct the snapshot."""
        then, now = state.snapshot, state.policy
        u, g = carried(batch, state.snapshot_occupancy, state.snapshot_gradient, then, now, self.baseline)
        policy, memory = self.step()(now, g, state.memory, batch)
        return SVRPGState(policy, then, state.snapshot_occupancy, state.snapshot_gradient, u, g, memory)

    def reference(self, state: SVRPGState) -> Policy:
        """The snapshot."""
        return state.snapshot

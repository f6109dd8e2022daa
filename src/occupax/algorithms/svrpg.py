"""SVRPG: variance reduction by a snapshot (Papini et al., 2018; Xu et al., 2020)."""

from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import Algorithm, carried, fresh, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy


class SVRPGState(eqx.Module):
    """The policy, and what was estimated at the snapshot."""

    policy: Policy
    snapshot: Policy
    snapshot_occupancy: Float[Array, " d"]
    snapshot_gradient: Policy
    gradient: Policy
    memory: Any


class SVRPG(Algorithm[SVRPGState]):
    """Corrects the snapshot's gradient: g = g_0 + mean[ g_hat(theta_j, r) - g_hat(snapshot, r) ].

    For a utility that is not linear, r is grad F at u_0 + mean[ u_hat(theta_j) - u_hat(snapshot) ].

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

    def init(self, policy: Policy, size: int) -> SVRPGState:
        """Nothing is known yet."""
        none = no_gradient(policy)
        return SVRPGState(policy, policy, jnp.zeros(size), none, none, self.step().init(policy))

    def start(self, state: SVRPGState, batch: Batch) -> SVRPGState:
        """Take a snapshot."""
        u, g = fresh(batch)
        policy, memory = self.step()(state.policy, g, state.memory)
        return SVRPGState(policy, state.policy, u, g, g, memory)

    def refine(self, state: SVRPGState, batch: Batch) -> SVRPGState:
        """Correct the snapshot."""
        then, now = state.snapshot, state.policy
        _, g = carried(batch, state.snapshot_occupancy, state.snapshot_gradient, then, now)
        policy, memory = self.step()(now, g, state.memory)
        return SVRPGState(policy, then, state.snapshot_occupancy, state.snapshot_gradient, g, memory)

"""TSIVR-PG, Algorithm 1 of the paper."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import EpochAlgorithm, add, no_gradient, subtract
from occupax.batch import Batch
from occupax.policies import Policy
from occupax.steps import Radius


class TSIVRPGState(eqx.Module):
    """Two consecutive policies, the running estimates, and the last two quasi-rewards."""

    policy: Policy
    """theta_j."""
    previous: Policy
    """theta_{j-1}."""
    occupancy: Float[Array, " d"]
    """u_{j-1}, raw: it may be negative."""
    gradient: Policy
    """g_{j-1}."""
    quasi_reward: Float[Array, " d"]
    """r_{j-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """r_{j-2}."""
    memory: Any


class TSIVRPG(EpochAlgorithm[TSIVRPGState]):
    """Truncated stochastic incremental variance-reduced policy gradient.

    g_j = g_{j-1} + mean[ g_hat(theta_j, r_{j-1}) - g_hat(theta_{j-1}, r_{j-2}) ], where u_j is carried along likewise
    and r_j = grad F(u_j). The quasi-rewards are one step old because r_j depends on the batch of iteration j: used
    there, it would bias the estimate.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each refinement (B).
        epoch_length: iterations in a cycle, the snapshot included (m).
        radius: bound of each displacement (delta).
        step_size, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    radius: Radius = eqx.field(kw_only=True, default=0.2)

    @property
    def cycle(self) -> tuple[int, ...]:
        """N, then B each time."""
        return (self.snapshot_batch, *[self.batch] * (self.epoch_length - 1))

    def init(self, policy: Policy, size: int) -> TSIVRPGState:
        """Nothing is known yet."""
        zero = jnp.zeros(size)
        return TSIVRPGState(policy, policy, zero, no_gradient(policy), zero, zero, self.step().init(policy))

    def start(self, state: TSIVRPGState, batch: Batch) -> TSIVRPGState:
        """Take a snapshot; r_{-1} is r_0."""
        u = batch.occupancy()
        r = batch.quasi_reward(u)
        g = batch.gradient(None, r, self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return TSIVRPGState(policy, state.policy, u, g, r, r, memory)

    def refine(self, state: TSIVRPGState, batch: Batch) -> TSIVRPGState:
        """Carry the estimates over to the new policy."""
        then, now = state.previous, state.policy
        u = state.occupancy + batch.occupancy(now) - batch.occupancy(then)
        new = batch.gradient(now, state.quasi_reward, self.baseline)
        old = batch.gradient(then, state.previous_quasi_reward, self.baseline)
        g = add(state.gradient, subtract(new, old))
        policy, memory = self.step()(now, g, state.memory, batch)
        return TSIVRPGState(policy, now, u, g, batch.quasi_reward(u), state.quasi_reward, memory)

    def reference(self, state: TSIVRPGState) -> Policy:
        """The policy before the last step."""
        return state.previous

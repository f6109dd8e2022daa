"""SVRPG: variance reduction around a snapshot (Papini et al., 2018)."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from occupax.algorithms.base import EpochAlgorithm, Phase, WeightedState, add, choose, no_gradient, subtract
from occupax.batches import Batch
from occupax.policies import Policy
from occupax.problem import Problem


class SVRPGState(WeightedState):
    """The estimates, and those of the last snapshot."""

    snapshot: Policy
    """theta~."""
    snapshot_occupancy: Float[Array, " d"]
    snapshot_gradient: Policy


class SVRPG(EpochAlgorithm[SVRPGState]):
    """Corrects a snapshot theta~: g_j = g_0 + mean[ g_hat(theta_j, r) - g_hat(theta~, r) ].

    For a utility that is not linear, r is grad F at the occupancy corrected in the same way.

    Args:
        snapshot_batch, batch, epoch_length: N, B and m; see `EpochAlgorithm`.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    @property
    def phases(self) -> tuple[Phase[SVRPGState], ...]:
        """N trajectories, then B each time."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._correction)

    def init(self, problem: Problem, policy: Policy) -> SVRPGState:
        """No estimates yet."""
        u, g = jnp.zeros(problem.size), no_gradient(policy)
        return SVRPGState(policy, u, g, self.step().init(policy), jnp.zeros((), bool), policy, u, g)

    def _snapshot(self, state: SVRPGState, batch: Batch, key: Key[Array, ""]) -> SVRPGState:
        u = batch.occupancy()
        g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return SVRPGState(policy, u, g, memory, jnp.zeros((), bool), state.policy, u, g)

    def _correction(self, state: SVRPGState, batch: Batch, key: Key[Array, ""]) -> SVRPGState:
        then, now = state.snapshot, state.policy
        trusted, fresh_u = self.trusts(batch, then), batch.occupancy()
        u = choose(trusted, state.snapshot_occupancy + fresh_u - batch.occupancy(then), fresh_u)
        r = batch.quasi_reward(u)
        new, old = batch.gradient(None, r, self.baseline), batch.gradient(then, r, self.baseline)
        g = choose(trusted, add(state.snapshot_gradient, subtract(new, old)), new)
        policy, memory = self.step()(now, g, state.memory, batch)
        return SVRPGState(policy, u, g, memory, ~trusted, then, state.snapshot_occupancy, state.snapshot_gradient)

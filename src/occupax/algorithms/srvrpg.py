"""SRVR-PG: recursive variance reduction (Xu, Gao and Gu, 2019)."""

from jaxtyping import Array, Key

from occupax.algorithms.base import Phase, RecursiveAlgorithm, RecursiveState, add, choose, subtract
from occupax.batches import Batch


class SRVRPG(RecursiveAlgorithm):
    """Carries the estimate along: g_j = g_{j-1} + mean[ g_hat(theta_j, r) - g_hat(theta_{j-1}, r) ].

    For a utility that is not linear, r is grad F at the occupancy carried along in the same way.

    Args:
        snapshot_batch, batch, epoch_length: N, B and m; see `EpochAlgorithm`.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    @property
    def phases(self) -> tuple[Phase[RecursiveState], ...]:
        """N trajectories, then B each time."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._recursion)

    def _recursion(self, state: RecursiveState, batch: Batch, key: Key[Array, ""]) -> RecursiveState:
        then, now = state.previous, state.policy
        trusted, fresh_u = self.trusts(batch, then), batch.occupancy()
        u = choose(trusted, state.occupancy + fresh_u - batch.occupancy(then), fresh_u)
        r = batch.quasi_reward(u)
        new, old = batch.gradient(None, r, self.baseline), batch.gradient(then, r, self.baseline)
        g = choose(trusted, add(state.gradient, subtract(new, old)), new)
        policy, memory = self.step()(now, g, state.memory, batch)
        return RecursiveState(policy, u, g, memory, ~trusted, now)

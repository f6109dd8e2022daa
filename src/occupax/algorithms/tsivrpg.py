"""TSIVR-PG, Algorithm 1 of the paper."""

from jaxtyping import Array, Key

from occupax.algorithms.base import EpochAlgorithm, Phase
from occupax.algorithms.carrying import CarriedState, CarryingAlgorithm
from occupax.batches import Batch


class TSIVRPG(EpochAlgorithm[CarriedState], CarryingAlgorithm):
    """Truncated stochastic incremental variance-reduced policy gradient.

    g_j = g_{j-1} + mean[ g_hat(theta_j, r_{j-1}) - g_hat(theta_{j-1}, r_{j-2}) ], where u_j is carried along likewise
    and r_j = grad F(u_j).

    Args:
        snapshot_batch, batch, epoch_length: N, B and m; see `EpochAlgorithm`.
        weight_guard: see `WeightedAlgorithm`; the fresh estimate of the gradient has r_{j-1}, too.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    @property
    def phases(self) -> tuple[Phase[CarriedState], ...]:
        """N trajectories, then B each time."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._recursion)

    def _recursion(self, state: CarriedState, batch: Batch, key: Key[Array, ""]) -> CarriedState:
        return self._carry(state, batch, 1.0, self.step())

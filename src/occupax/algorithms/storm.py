"""STORM-PG: recursive estimates with momentum (Yuan, Lian, Liu and Zhou, 2020)."""

from jaxtyping import Array, Key

from occupax._errors import check_share
from occupax.algorithms.carrying import CarriedState, CarryingAlgorithm
from occupax.batches import Batch
from occupax.steps import Number


class STORM(CarryingAlgorithm):
    """One large batch, then small ones for ever, each of which refreshes a share of the estimate.

    d_t = g_hat(theta_t, r_{t-1}) + (1 - h)(d_{t-1} - g_hat(theta_{t-1}, r_{t-2})), where u_t is carried along likewise
    and r_t = grad F(u_t).

    Args:
        snapshot_batch: trajectories of the first iteration (N).
        batch: trajectories of each later one (B).
        fresh: the share of the estimate that is made anew (h), in (0, 1].
        weight_guard, weight_bound: see `WeightedAlgorithm`.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    fresh: Number = 0.7

    def __check_init__(self) -> None:
        check_share("fresh", self.fresh)

    def _recursion(self, state: CarriedState, batch: Batch, key: Key[Array, ""]) -> CarriedState:
        return self._carry(state, batch, 1 - self.fresh, self.step())

"""N-VR-PG: normalised steps along estimates with momentum (Barakat, Fatkhullin and He, 2023)."""

from dataclasses import replace
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from occupax._errors import check_share
from occupax.algorithms.carrying import CarriedState, CarryingAlgorithm
from occupax.batches import Batch
from occupax.steps import Number


class NVRPG(CarryingAlgorithm):
    """STORM's recursion with shares h_t = (2 / (t + 1))^p, and steps of a length that falls with t.

    d_t = g_hat(theta_t, r_{t-1}) + (1 - h_t)(d_{t-1} - g_hat(theta_{t-1}, r_{t-2})), where u_t is carried along
    likewise and r_t = grad F(u_t); theta_{t+1} = theta_t + alpha_t d_t / ||d_t|| with alpha_t = eta (2 / (t + 1))^q.

    Args:
        snapshot_batch: trajectories of the first iteration (N).
        batch: trajectories of each later one (B).
        decay: the power with which the share of the fresh estimate falls (p), in (0, 1]; 2/3 in the paper.
        step_decay: the power with which the length of the steps falls (q), in (0, 1].
        weight_guard, weight_bound: see `WeightedAlgorithm`.
        step_size: eta, the length of the first steps.
        rule: "normalised", unless told otherwise.
        radius, baseline, output: see `Algorithm`.
    """

    decay: Number = 0.5
    step_decay: Number = 1 / 3
    step_size: Number | None = eqx.field(kw_only=True, default=0.3)
    rule: Any = eqx.field(kw_only=True, static=True, default="normalised")

    def __check_init__(self) -> None:
        check_share("decay", self.decay)
        check_share("step_decay", self.step_decay)

    def _recursion(self, state: CarriedState, batch: Batch, key: Key[Array, ""]) -> CarriedState:
        share = 2 / (state.memory.steps.astype(state.occupancy.dtype) + 1)
        step = replace(self.step(), size=share**self.step_decay * self.step_size_for(state.policy))
        return self._carry(state, batch, 1 - share**self.decay, step)

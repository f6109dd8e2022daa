"""HSPGA: a hybrid of recursive and fresh estimates (Pham et al., 2020)."""

from math import sqrt
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.algorithms.base import EpochAlgorithm, add, carried, fresh, no_gradient, scale
from occupax.batch import Batch
from occupax.policies import Policy


class HSPGAState(eqx.Module):
    """Two consecutive policies, and the running estimates."""

    policy: Policy
    previous: Policy
    occupancy: Float[Array, " d"]
    gradient: Policy
    memory: Any


class HSPGA(EpochAlgorithm[HSPGAState]):
    """Mixes: g_j = beta (g_{j-1} + mean[ g_hat(theta_j, r) - g_hat(theta_{j-1}, r) ]) + (1 - beta) mean g_hat(theta_j).

    The second mean is over a batch of its own, so a refinement draws 2 B trajectories. The occupancy is mixed alike.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each of the two batches of a refinement (B).
        epoch_length: iterations in a cycle, the snapshot included (m).
        mixing: beta, in [0, 1]; by default 1 - sqrt(B / (N (m + 1))).
        step_size, radius, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    mixing: Float[Array, ""] | float | None = None

    def __check_init__(self) -> None:
        if isinstance(self.mixing, (int, float)) and not 0 <= self.mixing <= 1:
            raise ValueError(f"mixing must lie in [0, 1], got {self.mixing!r}.")

    def _mixing(self) -> Float[Array, ""] | float:
        if self.mixing is not None:
            return self.mixing
        return 1 - sqrt(min(1.0, self.batch / (self.snapshot_batch * (self.epoch_length + 1))))

    @property
    def cycle(self) -> tuple[int, ...]:
        """N, then twice B each time."""
        return (self.snapshot_batch, *[2 * self.batch] * (self.epoch_length - 1))

    def init(self, policy: Policy, size: int) -> HSPGAState:
        """Nothing is known yet."""
        return HSPGAState(policy, policy, jnp.zeros(size), no_gradient(policy), self.step().init(policy))

    def start(self, state: HSPGAState, batch: Batch) -> HSPGAState:
        """Take a snapshot."""
        u, g = fresh(batch, self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return HSPGAState(policy, state.policy, u, g, memory)

    def refine(self, state: HSPGAState, batch: Batch) -> HSPGAState:
        """Carry the estimates over, and mix in fresh ones."""
        then, now, beta = state.previous, state.policy, self._mixing()
        first, second = batch.halves()
        old = carried(first, state.occupancy, state.gradient, then, now, self.baseline)
        u, g = add(scale(beta, old), scale(1 - beta, fresh(second, self.baseline)))
        policy, memory = self.step()(now, g, state.memory, batch)
        return HSPGAState(policy, now, u, g, memory)

    def reference(self, state: HSPGAState) -> Policy:
        """The policy before the last step."""
        return state.previous

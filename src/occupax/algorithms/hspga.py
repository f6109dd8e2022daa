"""HSPGA: a hybrid of recursive and fresh estimates (Pham et al., 2020)."""

from math import sqrt

from jaxtyping import Array, Float, Key

from occupax._errors import check_number, is_traced
from occupax.algorithms.base import Phase, RecursiveAlgorithm, RecursiveState, add, choose, scale, subtract
from occupax.batches import Batch


class HSPGA(RecursiveAlgorithm):
    """Mixes: g_j = beta (g_{j-1} + mean[ g_hat(theta_j, r) - g_hat(theta_{j-1}, r) ]) + (1 - beta) mean g_hat(theta_j).

    The second mean is over a batch of its own, so a refinement draws 2 B trajectories. The occupancy is mixed alike.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each of the two batches of a refinement (B).
        epoch_length: iterations in an epoch, the snapshot included (m).
        mixing: beta, in [0, 1]; by default 1 - sqrt(B / (N (m + 1))).
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    mixing: Float[Array, ""] | float | None = None

    def __check_init__(self) -> None:
        given = self.mixing is not None and not is_traced(self.mixing)
        if given and check_number("mixing", self.mixing, low=0.0) > 1:
            raise ValueError(f"mixing must lie in [0, 1], got {self.mixing!r}.")

    @property
    def phases(self) -> tuple[Phase[RecursiveState], ...]:
        """N trajectories, then twice B each time."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(2 * self.batch, self._hybrid)

    def _hybrid(self, state: RecursiveState, batch: Batch, key: Key[Array, ""]) -> RecursiveState:
        then, now, beta = state.previous, state.policy, self._mixing()
        trusted = self.trusts(batch, then)
        first, second = batch.halves()
        carried_u = state.occupancy + first.occupancy() - first.occupancy(then)
        r = batch.quasi_reward(carried_u)
        new, old = first.gradient(None, r, self.baseline), first.gradient(then, r, self.baseline)
        carried_g = add(state.gradient, subtract(new, old))
        fresh_u = second.occupancy()
        fresh_g = second.gradient(None, batch.quasi_reward(fresh_u), self.baseline)
        u = choose(trusted, beta * carried_u + (1 - beta) * fresh_u, fresh_u)
        g = choose(trusted, add(scale(beta, carried_g), scale(1 - beta, fresh_g)), fresh_g)
        policy, memory = self.step()(now, g, state.memory, batch)
        return RecursiveState(policy, u, g, memory, ~trusted, now)

    def _mixing(self) -> Float[Array, ""] | float:
        if self.mixing is not None:
            return self.mixing
        return 1 - sqrt(min(1.0, self.batch / (self.snapshot_batch * (self.epoch_length + 1))))

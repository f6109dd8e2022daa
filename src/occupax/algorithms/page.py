"""PAGE-PG: a coin decides between a large batch and a recursive estimate (Gargiani et al., 2022)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from occupax._errors import check_integer
from occupax.algorithms.carrying import CarriedState, CarryingAlgorithm
from occupax.batches import Batch


class PAGE(CarryingAlgorithm):
    """With probability p = B / (N + B) a fresh batch of N trajectories, else the recursion of TSIVR-PG with B.

    g_t = g_{t-1} + mean[ g_hat(theta_t, r_{t-1}) - g_hat(theta_{t-1}, r_{t-2}) ], where u_t is carried along likewise
    and r_t = grad F(u_t). The coin is tossed from the number of the iteration, so that all runs toss alike and the
    number of episodes is known beforehand.

    Args:
        snapshot_batch: trajectories of a large batch (N), which the first iteration has.
        batch: trajectories of a recursion (B).
        coin: the seed of the coin.
        weight_guard, weight_bound: see `WeightedAlgorithm`; the fresh estimate of the gradient has r_{t-1}, too.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    coin: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_integer("coin", self.coin, minimum=0)

    def phase(self, iteration: int | Int[Array, ""]) -> Int[Array, ""]:
        """The toss of the coin; the first iteration is large."""
        key = jax.random.fold_in(jax.random.key(self.coin), iteration)
        toss = jax.random.uniform(key, (), jnp.float32)  # the same in every precision
        large = toss < self.batch / (self.snapshot_batch + self.batch)
        return jnp.where(large | (iteration == 0), 0, 1)

    def _recursion(self, state: CarriedState, batch: Batch, key: Key[Array, ""]) -> CarriedState:
        return self._carry(state, batch, 1.0, self.step())

"""A batch that is larger than memory: its trajectories are drawn again, block by block, at every question."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from occupax.batch import Baseline, Batch, Statistics
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Block, Sampler, Tally, half_of


class StreamedBatch(Block):
    """Trajectories number `first` to `first + n` of those that `key` stands for, never all in memory.

    Those from number `stop` on are empty. A baseline is the mean over the other trajectories of a block.
    """

    sampler: Sampler
    policy: Policy
    key: Key[Array, ""]
    first: int | Int[Array, ""]
    n: int = eqx.field(static=True)
    stop: Int[Array, ""]

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the trajectories were drawn from."""
        return self.sampler.problem

    def occupancy(self, target: Policy | None = None) -> Float[Array, " d"]:
        """The mean over all blocks."""
        return self._mean(lambda block: block.occupancy(target))

    def gradient(self, target: Policy | None, quasi_reward: Float[Array, " d"], baseline: Baseline = "none") -> Policy:
        """The mean over all blocks."""
        return self._mean(lambda block: block.gradient(target, quasi_reward, baseline))

    def statistics(self, target: Policy | None = None) -> Statistics:
        """Averages over the trajectories."""
        return self.tally(target).statistics(self.n)

    def tally(self, target: Policy | None = None) -> Tally:
        """Sums over the trajectories that took a step."""
        return self._total(lambda block: block.tally(target), Tally.__add__)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the numbers."""
        half = half_of(self.n)
        middle = self.first + half
        first = replace(self, n=half, stop=jnp.minimum(self.stop, middle))
        return first, replace(self, first=middle, n=half)

    def _mean(self, ask: Callable[[Block], Any]) -> Any:
        def add(left: Any, right: Any) -> Any:
            return jax.tree.map(jnp.add, left, right)

        share = self.sampler.block_size / self.n
        return jax.tree.map(lambda leaf: leaf * share, self._total(ask, add))

    def _total(self, ask: Callable[[Block], Any], add: Callable[[Any, Any], Any]) -> Any:
        """What is asked of each block, added up in order."""

        def draw(number: Int[Array, ""]) -> Block:
            first = self.first + number * self.sampler.block_size
            return self.sampler.block(self.policy, self.key, first, self.stop, self.sampler.block_size)

        def step(total: Any, number: Int[Array, ""]) -> tuple[Any, None]:
            return add(total, ask(draw(number))), None

        shapes = jax.eval_shape(lambda: ask(draw(jnp.zeros((), int))))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.scan(step, nothing, jnp.arange(-(-self.n // self.sampler.block_size)))[0]


def draw(sampler: Sampler, policy: Policy, n: int, key: Key[Array, ""], wanted: bool | Bool[Array, ""] = True) -> Block:
    """A batch of `n` trajectories under `policy`, in memory if it is small; if it is not wanted, they are all empty."""
    return draw_part(sampler, policy, n, key, 0, jnp.where(wanted, n, 0))


def draw_part(
    sampler: Sampler, policy: Policy, n: int, key: Key[Array, ""], first: int | Int[Array, ""], stop: Int[Array, ""]
) -> Block:
    """Trajectories number `first` to `first + n`, of which those from number `stop` on are empty."""
    if n > sampler.block_size:
        return StreamedBatch(sampler, policy, key, first, n, stop)
    return sampler.block(policy, key, first, stop, n)

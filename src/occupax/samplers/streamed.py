"""A batch that is larger than memory: its trajectories are drawn again, block by block, at every question."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax.batch import Baseline, Batch, Statistics, Trajectories
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.device import trajectories
from occupax.samplers.sampled import SampledBatch, Tally, half_of

BLOCK_STEPS = 50_000


class StreamedBatch(Batch):
    """Trajectories number `first` to `first + n` of those that `key` stands for, never all in memory.

    A baseline is the mean over the other trajectories of a block.
    """

    problem: Problem
    policy: Policy
    key: Key[Array, ""]
    first: int = eqx.field(static=True)
    n: int = eqx.field(static=True)
    block: int = eqx.field(static=True)

    def occupancy(self, target: Policy | None = None) -> Float[Array, " d"]:
        """The mean over all blocks."""
        return self._mean(lambda block: block.occupancy(target))

    def gradient(
        self, quasi_reward: Float[Array, " d"], target: Policy | None = None, baseline: Baseline = "none"
    ) -> Policy:
        """The mean over all blocks."""
        return self._mean(lambda block: block.gradient(quasi_reward, target, baseline))

    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """See `Problem.quasi_reward`."""
        return self.problem.quasi_reward(occupancy)

    def statistics(self, target: Policy | None = None) -> Statistics:
        """Averages over the trajectories."""
        return self._total(lambda block: block.tally(target), Tally.__add__).statistics(self.n)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the numbers."""
        half = half_of(self.n)
        return tuple(  # pyright: ignore[reportReturnType]
            StreamedBatch(self.problem, self.policy, self.key, first, half, self.block)
            for first in (self.first, self.first + half)
        )

    def _mean(self, ask: Callable[[SampledBatch], Any]) -> Any:
        def add(left: Any, right: Any) -> Any:
            return jax.tree.map(jnp.add, left, right)

        total = self._total(ask, add)
        return jax.tree.map(lambda leaf: leaf * (self.block / self.n), total)

    def _total(self, ask: Callable[[SampledBatch], Any], add: Callable[[Any, Any], Any]) -> Any:
        """What is asked of each block, added up in order."""

        def step(total: Any, number: Int[Array, ""]) -> tuple[Any, None]:
            return add(total, ask(self._draw(number))), None

        nothing = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(lambda: ask(self._draw(jnp.zeros((), int))))
        )
        return jax.lax.scan(step, nothing, jnp.arange(-(-self.n // self.block)))[0]

    def _draw(self, number: Int[Array, ""]) -> SampledBatch:
        """One block; those of its trajectories that would be too many have no live step."""
        within = number * self.block + jnp.arange(self.block)
        drawn = trajectories(self.problem, self.policy, self.first + within, self.key)
        return SampledBatch(self.problem, _only(drawn, within < self.n), self.policy)


def _only(drawn: Trajectories, chosen: Array) -> Trajectories:
    return eqx.tree_at(
        lambda it: (it.live, it.terminated, it.rewards),
        drawn,
        (
            drawn.live & chosen[:, None],
            drawn.terminated & chosen,
            jnp.where(chosen[:, None], drawn.rewards, 0.0),
        ),
    )


def draw(problem: Problem, policy: Policy, n: int, key: Key[Array, ""]) -> Batch:
    """A batch of `n` trajectories under `policy`, in memory if it is small."""
    block = max(1, BLOCK_STEPS // problem.sampling_horizon())
    if n > block:
        return StreamedBatch(problem, policy, key, 0, n, block)
    return SampledBatch(problem, trajectories(problem, policy, jnp.arange(n), key), policy)

"""A batch that is larger than memory: its trajectories are drawn again, block by block, at every request."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource
from occupax.samplers.batches.block import Block, PartedBatch, Request, add, half_of


class StreamedBatch(PartedBatch):
    """Trajectories number `first` to `first + n` of those that `key` stands for, never all in memory.

    Those from number `stop` on are empty.
    """

    problem: Problem
    source: ProgramSource
    policy: Policy
    key: Key[Array, ""]
    first: int | Int[Array, ""]
    n: int = eqx.field(static=True)
    stop: Int[Array, ""]

    @property
    def size(self) -> int:
        """All of them, the empty ones included."""
        return self.n

    @property
    def part_size(self) -> int:
        """As many trajectories as the source holds in memory at once."""
        return self.source.block_size

    def total(self, request: Request) -> Any:
        """The answers of the blocks, added up in order."""

        def ask(number: Int[Array, ""]) -> Any:
            first = self.first + number * self.part_size
            block: Block = self.source.block(self.policy, self.key, first, self.stop, self.part_size)
            return block.answer(request)

        def step(total: Any, number: Int[Array, ""]) -> tuple[Any, None]:
            return add(total, ask(number)), None

        shapes = jax.eval_shape(lambda: ask(jnp.zeros((), int)))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.scan(step, nothing, jnp.arange(-(-self.size // self.part_size)))[0]

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the numbers."""
        half = half_of(self.size)
        middle = self.first + half
        first = replace(self, n=half, stop=jnp.minimum(self.stop, middle))
        return first, replace(self, first=middle, n=half)


def draw_part(
    source: ProgramSource,
    policy: Policy,
    n: int,
    key: Key[Array, ""],
    first: int | Int[Array, ""],
    stop: Int[Array, ""],
) -> Block:
    """Trajectories number `first` to `first + n`, of which those from number `stop` on are empty; streamed if many."""
    if n > source.block_size:
        return StreamedBatch(source.problem, source, policy, key, first, n, stop)
    return source.block(policy, key, first, stop, n)

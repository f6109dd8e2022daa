"""Batches in shards: each is drawn and queried on its own, anywhere, any number of times, with the same answer.

Answers are merged in the order of the shards. So neither who computed them, nor when, nor how often
changes a bit of the result.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar, final

import equinox as eqx
import jax

from occupax.batches.batch import Batch, half_of
from occupax.batches.parted import Parts
from occupax.batches.query import Query
from occupax.compiled import arrays_of, bind, is_array

Answer = TypeVar("Answer")
Path = tuple[int, ...]
"""Which half of a shard is queried (0 or 1), which half of that half, and so on; empty for all of
the shard."""


class Shard(NamedTuple):
    """Trajectories `first` to `stop` of a batch."""

    first: int
    stop: int


@final
class Shards(Parts):
    """Shards of a batch, for each of which `ask` computes an answer."""

    shards: tuple[Shard, ...]
    n: int
    """Number of trajectories."""
    space: int
    """Number of trajectories that each shard makes space for."""
    ask: Callable[[tuple[Shard, ...], Query[Any], Path], Sequence[Any]] = eqx.field(static=True)
    path: Path = eqx.field(static=True, default=())

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self.n

    @property
    def part_size(self) -> int:
        """Number of trajectories that each shard makes space for."""
        return self.space

    @property
    def count(self) -> int:
        """Number of shards."""
        return len(self.shards)

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of the shards, merged in order."""
        return reduce(query.merge, self.ask(self.shards, query, self.path))

    def halves(self) -> tuple[Parts, Parts]:
        """Return the shards of the first and of the second half or, of one shard alone, its halves."""
        half = half_of(self.size)
        if self.count == 1:
            return self._half_of_shard(half, 0), self._half_of_shard(half, 1)
        middle = self.count // 2
        first = Shards(self.shards[:middle], half, self.space, self.ask, self.path)
        return first, Shards(self.shards[middle:], half, self.space, self.ask, self.path)

    def _half_of_shard(self, size: int, which: int) -> "Shards":
        return Shards(self.shards, size, size, self.ask, (*self.path, which))


def split(n: int, shards: int) -> tuple[tuple[Shard, ...], int]:
    """Split `n` trajectories into at most about `shards` parts, and return for how many each makes space.

    No part reaches over the middle of an even number of trajectories, because a batch may be
    halved.
    """
    if shards == 1:
        return (Shard(0, n),), n
    if n % 2 == 0:
        half = n // 2
        parts, size = split(half, max(1, shards // 2))
        return (*parts, *(Shard(half + first, half + stop) for first, stop in parts)), size
    size = -(-n // shards)
    return tuple(Shard(first, min(first + size, n)) for first in range(0, n, size)), size


def answering(batch: Batch) -> Callable[[Query[Any], Path], Any]:
    """Return the answers of a batch as a compiled function: equal batches give equal bits on every machine of a kind.

    Queries of one form share a program.
    """
    compiled = bind(_answer, batch)

    def answer(query: Query[Any], path: Path = ()) -> Any:
        leaves, structure = jax.tree.flatten(query)
        rest = tuple(None if is_array(leaf) else leaf for leaf in leaves)
        return compiled(arrays_of(leaves), fixed=(structure, rest, path))

    return answer


def _answer(batch: Any, arrays: list[Any], fixed: tuple[Any, tuple[Any, ...], Path]) -> Any:
    structure, rest, path = fixed
    remaining = iter(arrays)
    leaves = [next(remaining) if leaf is None else leaf for leaf in rest]
    for which in path:
        batch = batch.halves()[which]
    return batch.answer(jax.tree.unflatten(structure, leaves))

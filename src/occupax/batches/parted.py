"""Batches in parts with merged answers: blocks of a scan, devices, or shards."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar, final

import equinox as eqx
import jax

from occupax.batches.batch import Batch, half_of
from occupax.batches.queries import Query
from occupax.compiled import arrays_of, bind, is_array
from occupax.problem import Problem

Answer = TypeVar("Answer")
Path = tuple[int, ...]
"""Position of a part of a shard: 0 or 1 for its halves, the next number for a half of that half.
Empty for the whole shard."""


class Parts(eqx.Module):
    """Parts of equal size of a batch, the last of which may be padded with empty trajectories."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of trajectories of all parts together."""

    @property
    @abstractmethod
    def part_size(self) -> int:
        """Number of trajectories that the mean of each part is over."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of parts."""

    @abstractmethod
    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of all parts, merged in order."""

    @abstractmethod
    def halves(self) -> "tuple[Parts, Parts]":
        """Return the parts of the first and of the second half of the trajectories."""


@final
class PartedBatch(Batch, eqx.Module):
    """A batch that merges the answers of its parts."""

    problem: Problem
    """Problem that the trajectories were sampled from."""
    members: Parts
    """Parts of the batch."""

    @property
    def size(self) -> int:
        """Number of trajectories, without the padding of the last part."""
        return self.members.size

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.members.count

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the merged answers of the parts. A mean is over the trajectories of all parts."""
        if self.parts > 1:
            query = query.completed(self)
        merged = self.members.answer(query)
        fraction = self.members.part_size / self.size
        if not query.is_mean or fraction == 1:
            return merged
        return jax.tree.map(lambda leaf: leaf * fraction, merged)

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the trajectories."""
        first, second = self.members.halves()
        return PartedBatch(self.problem, first), PartedBatch(self.problem, second)


class Shard(NamedTuple):
    """Trajectories `first` to `stop` of a batch.

    A shard may be drawn and queried in any process, and repeatedly: the answers are bitwise
    identical.
    """

    first: int
    stop: int


@final
class Shards(Parts):
    """Shards of a batch, with answers that `compute` returns for each shard.

    Answers are merged in the order of the shards.
    """

    shards: tuple[Shard, ...]
    n: int
    """Number of trajectories."""
    capacity: int
    """Number of trajectories that each shard has a buffer for."""
    compute: Callable[[tuple[Shard, ...], Query[Any], Path], Sequence[Any]] = eqx.field(static=True)
    path: Path = eqx.field(static=True, default=())

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self.n

    @property
    def part_size(self) -> int:
        """Number of trajectories that each shard has a buffer for."""
        return self.capacity

    @property
    def count(self) -> int:
        """Number of shards."""
        return len(self.shards)

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of the shards, merged in order."""
        return reduce(query.merge, self.compute(self.shards, query, self.path))

    def halves(self) -> tuple[Parts, Parts]:
        """Return the shards of both halves. A single shard is halved itself."""
        half = half_of(self.size)
        if self.count == 1:
            return self._half_of_shard(half, 0), self._half_of_shard(half, 1)
        middle = self.count // 2
        first = Shards(self.shards[:middle], half, self.capacity, self.compute, self.path)
        return first, Shards(self.shards[middle:], half, self.capacity, self.compute, self.path)

    def _half_of_shard(self, half: int, index: int) -> "Shards":
        return Shards(self.shards, half, half, self.compute, (*self.path, index))


def split(n: int, shards: int) -> tuple[tuple[Shard, ...], int]:
    """Split `n` trajectories into about `shards` shards. Return these and their capacity.

    No shard contains the middle of an even number of trajectories, because a batch may be halved.
    """
    if shards == 1:
        return (Shard(0, n),), n
    if n % 2 == 0:
        half = n // 2
        first_half, capacity = split(half, max(1, shards // 2))
        second_half = tuple(Shard(half + first, half + stop) for first, stop in first_half)
        return first_half + second_half, capacity
    capacity = -(-n // shards)
    starts = range(0, n, capacity)
    return tuple(Shard(first, min(first + capacity, n)) for first in starts), capacity


def compiled_answers(batch: Batch) -> Callable[[Query[Any], Path], Any]:
    """Return the answers of a batch as a compiled function of a query and a path.

    Equal batches give bitwise identical answers on all machines of a kind. Queries of the same form
    share a program.
    """
    program = bind(_answer, batch)

    def answer(query: Query[Any], path: Path = ()) -> Any:
        leaves, structure = jax.tree.flatten(query)
        static = tuple(None if is_array(leaf) else leaf for leaf in leaves)
        return program(arrays_of(leaves), static=(structure, static, path))

    return answer


def _answer(batch: Any, arrays: list[Any], static: tuple[Any, tuple[Any, ...], Path]) -> Any:
    structure, static_leaves, path = static
    remaining = iter(arrays)
    leaves = [next(remaining) if leaf is None else leaf for leaf in static_leaves]
    for half in path:
        batch = batch.halves()[half]
    return batch.answer(jax.tree.unflatten(structure, leaves))

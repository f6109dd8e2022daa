"""A batch in parts that answer one by one: blocks of a scan, devices, or shards here or on a cluster."""

from abc import abstractmethod
from typing import TypeVar, final

import equinox as eqx
import jax

from occupax.batches.batch import Batch
from occupax.batches.query import Query
from occupax.problem import Problem

Answer = TypeVar("Answer")


class Parts(eqx.Module):
    """Parts of equal size of a batch, of which the last may be filled up with empty trajectories."""

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
    of: Parts

    @property
    def size(self) -> int:
        """Number of trajectories, without those that fill up the last part."""
        return self.of.size

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.of.count

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the merged answers of the parts; a mean is over the trajectories of all of them."""
        if self.parts > 1:
            query = query.completed(self)
        merged = self.of.answer(query)
        fraction = self.of.part_size / self.size
        if query.is_sum or fraction == 1:
            return merged
        return jax.tree.map(lambda leaf: leaf * fraction, merged)

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the trajectories."""
        first, second = self.of.halves()
        return PartedBatch(self.problem, first), PartedBatch(self.problem, second)

"""Which phase each iteration of an algorithm is, and how many trajectories are drawn up to it."""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from occupax.algorithms import Algorithm
from occupax.errors import check_integer

BLOCK = 1024
"""Iterations that are looked up at once."""
LOOKED_AHEAD = 16 * BLOCK
"""In how many iterations a phase must come again to count as one that recurs."""


class Schedule:
    """The phases of an algorithm in the order of its iterations; one that does not fit into a budget is not begun."""

    def __init__(self, algorithm: Algorithm[Any]):
        self._algorithm = algorithm
        self.sizes = tuple(
            check_integer("trajectories of a phase", phase.trajectories)
            for phase in algorithm.phases
        )
        """How many trajectories each phase draws."""
        self._ends = [0]  # trajectories drawn before each block, as far as they are known
        self._block = lru_cache(maxsize=64)(self._look_up)

    def phases(self, first: int, count: int) -> Int[np.ndarray, " count"]:
        """The phases of `count` iterations from number `first` on."""
        if len(self.sizes) == 1:
            return np.zeros(count, np.int32)
        blocks = range(first // BLOCK, (first + count - 1) // BLOCK + 1) if count else ()
        found = np.concatenate([np.zeros(0, np.int32), *(self._block(number) for number in blocks)])
        return found[first % BLOCK :][:count]

    def episodes(self, iterations: int) -> int:
        """Trajectories that so many iterations draw."""
        if len(self.sizes) == 1:
            return iterations * self.sizes[0]
        block, rest = divmod(iterations, BLOCK)
        while len(self._ends) <= block:
            self._ends.append(self._ends[-1] + int(self._drawn(len(self._ends) - 1).sum()))
        return self._ends[block] + int(self._drawn(block)[:rest].sum())

    def iterations(self, episodes: int) -> int:
        """Iterations that draw no more than `episodes` trajectories."""
        if len(self.sizes) == 1:
            return episodes // self.sizes[0]
        block = 0
        while self.episodes((block + 1) * BLOCK) <= episodes:
            block += 1
        after = self._ends[block] + np.cumsum(self._drawn(block))
        return block * BLOCK + int(np.searchsorted(after, episodes, side="right"))

    @cached_property
    def period(self) -> int:
        """After how many iterations the phases repeat; 1 if they do not."""
        phases = self.phases(0, BLOCK)
        repeats = (
            length for length in range(1, BLOCK // 2) if (phases[length:] == phases[:-length]).all()
        )
        return next(repeats, 1)

    @cached_property
    def judging(self) -> tuple[bool, ...]:
        """Whether each phase is compared for output "best": those with the largest batches that recur are."""
        if len(self.sizes) == 1 or self._algorithm.output != "best":
            return (True,) * len(self.sizes)
        counts = np.bincount(self.phases(0, LOOKED_AHEAD), minlength=len(self.sizes))
        largest = max(size for size, times in zip(self.sizes, counts, strict=True) if times > 1)
        return tuple(size == largest for size in self.sizes)

    def same_as(self, other: "Schedule") -> bool:
        """Whether both have the same phases in the same order, as far as is looked ahead at once."""
        return self.sizes == other.sizes and np.array_equal(
            self.phases(0, BLOCK), other.phases(0, BLOCK)
        )

    def _drawn(self, block: int) -> Int[np.ndarray, " count"]:
        return np.array(self.sizes, np.int64)[self._block(block)]

    def _look_up(self, block: int) -> Int[np.ndarray, " count"]:
        """Return the phases of a block of iterations."""
        phases = np.asarray(self._algorithm.phases_of(block * BLOCK, BLOCK))
        lowest = phases.min()
        highest = phases.max()
        if lowest < 0 or highest >= len(self.sizes):
            wrong = lowest if lowest < 0 else highest
            raise ValueError(
                f"phase of {type(self._algorithm).__name__} must return a number from 0 to {len(self.sizes) - 1}, the "
                f"place of a phase in `phases`, got {wrong}."
            )
        return phases

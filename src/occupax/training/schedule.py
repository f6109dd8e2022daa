"""Phases of the iterations of an algorithm, and the number of trajectories up to each of them."""

from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Int

from occupax.algorithms import Algorithm
from occupax.errors import check_integer

BLOCK = 1024
"""Number of iterations in a block, whose phases are computed together."""
RECURRENCE_WINDOW = 16 * BLOCK
"""Number of iterations in which a phase must occur twice to count as recurring."""


class Schedule:
    """Phases of an algorithm in the order of its iterations, and the iterations of a budget."""

    def __init__(self, algorithm: Algorithm[Any]):
        self._algorithm = algorithm
        check = partial(check_integer, "trajectories of a phase")
        self.sizes = tuple(check(phase.trajectories) for phase in algorithm.phases)
        """Number of trajectories of each phase."""
        self._block_ends = [0]
        """Trajectories before each block, as far as they are known."""
        self._phases_of_block = lru_cache(maxsize=64)(self._compute_block)

    def phases(self, first: int, count: int) -> Int[np.ndarray, " count"]:
        """Return the phases of `count` iterations from number `first` on."""
        if len(self.sizes) == 1 or not count:
            return np.zeros(count, np.int32)
        last_block = (first + count - 1) // BLOCK
        blocks = map(self._phases_of_block, range(first // BLOCK, last_block + 1))
        phases = np.concatenate(list(blocks))
        return phases[first % BLOCK :][:count]

    def episodes(self, iterations: int) -> int:
        """Return the number of trajectories of the first iterations."""
        if len(self.sizes) == 1:
            return iterations * self.sizes[0]
        block, rest = divmod(iterations, BLOCK)
        while len(self._block_ends) <= block:
            last = len(self._block_ends) - 1
            trajectories = int(self._trajectories(last).sum())
            self._block_ends.append(self._block_ends[last] + trajectories)
        return self._block_ends[block] + int(self._trajectories(block)[:rest].sum())

    def iterations(self, episodes: int) -> int:
        """Return the largest number of iterations with at most `episodes` trajectories."""
        if len(self.sizes) == 1:
            return episodes // self.sizes[0]
        block = 0
        while self.episodes((block + 1) * BLOCK) <= episodes:
            block += 1
        ends = self._block_ends[block] + np.cumsum(self._trajectories(block))
        return block * BLOCK + int(np.searchsorted(ends, episodes, side="right"))

    @cached_property
    def period(self) -> int:
        """Number of iterations after which the phases repeat, 1 if they do not."""
        phases = self.phases(0, BLOCK)
        for length in range(1, BLOCK // 2):
            if np.array_equal(phases[length:], phases[:-length]):
                return length
        return 1

    @cached_property
    def is_candidate(self) -> tuple[bool, ...]:
        """Whether the policies of each phase are candidates for output "best".

        Candidates have the largest batches among the recurring phases.
        """
        if len(self.sizes) == 1 or self._algorithm.output != "best":
            return (True,) * len(self.sizes)
        counts = np.bincount(self.phases(0, RECURRENCE_WINDOW), minlength=len(self.sizes))
        sizes = np.array(self.sizes)
        is_largest = sizes == sizes[counts > 1].max()
        return tuple(is_largest.tolist())

    def same_as(self, other: "Schedule") -> bool:
        """Return whether both have the same sizes and the same phases in the first block."""
        if self.sizes != other.sizes:
            return False
        return np.array_equal(self.phases(0, BLOCK), other.phases(0, BLOCK))

    def _trajectories(self, block: int) -> Int[np.ndarray, " count"]:
        """Return the number of trajectories of each iteration of a block."""
        return np.array(self.sizes, np.int64)[self._phases_of_block(block)]

    def _compute_block(self, block: int) -> Int[np.ndarray, " count"]:
        phases = np.asarray(self._algorithm.phases_of(block * BLOCK, BLOCK))
        for phase in (phases.min(), phases.max()):
            if phase < 0 or phase >= len(self.sizes):
                raise ValueError(
                    f"phase of {type(self._algorithm).__name__} must return an integer from 0 to "
                    f"{len(self.sizes) - 1}, the index of a phase in `phases`, got {phase}."
                )
        return phases

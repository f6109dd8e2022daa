"""Loggers: the base class and the console."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from occupax.io.records import RecordTable
from occupax.progress import ProgressBar


class Logger(ABC):
    """Base class of loggers. `log` receives every record exactly once, in chunks."""

    @abstractmethod
    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Begin a training run.

        Args:
            seeds: seed of each run.
            budget: number of episodes of each run.
            table: records of the part before a resumption, empty for a new run.
        """

    @abstractmethod
    def log(self, table: RecordTable) -> None:
        """Log further records.

        Args:
            table: consecutive records of all runs.
        """

    @abstractmethod
    def close(self) -> None:
        """End the training run, which may have failed."""


class ConsoleLogger(Logger):
    """Progress bar on the standard error, or occasional lines if that is not a terminal."""

    def __init__(self) -> None:
        self._bar: ProgressBar | None = None
        self._budget = 0
        self._first_steps = 0
        self._start = 0.0

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Show the progress at the start."""
        episodes, self._first_steps = _totals(table)
        self._budget = budget
        self._start = time.monotonic()
        plural = "s" * (len(seeds) > 1)
        self._bar = ProgressBar(budget, f"{len(seeds)} run{plural}, compiling", episodes)

    def log(self, table: RecordTable) -> None:
        """Show the number of episodes, the steps per second and the median utility."""
        if self._bar is None:
            return
        episodes, steps = _totals(table)
        seconds = max(time.monotonic() - self._start, 1e-9)
        speed = (steps - self._first_steps) / seconds
        utilities = table.metrics["utility"][:, -1]
        utility = "not finite"
        if np.isfinite(utilities).any():
            utility = f"{np.nanmedian(utilities):#.3g}".removesuffix(".")
        progress = f"{episodes:,} / {self._budget:,} episodes"
        self._bar.update(episodes, f"{progress}, {speed:,.0f} steps/s, utility {utility}")

    def close(self) -> None:
        """Leave the bar at the last progress."""
        if self._bar is not None:
            self._bar.close()


def _totals(table: RecordTable) -> tuple[int, int]:
    """Return the episodes of each run and the steps of all runs at the last record."""
    if not len(table.episodes):
        return 0, 0
    return int(table.episodes[-1]), int(table.steps[:, -1].sum())

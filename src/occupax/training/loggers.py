"""Loggers: the base class and the console."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from occupax.algorithms import Budget
from occupax.io.records import RecordTable
from occupax.progress import ProgressBar
from occupax.training.budgets import size, unit, used


class Logger(ABC):
    """Base class of loggers. `log` receives every record exactly once, in chunks."""

    @abstractmethod
    def open(self, seeds: Sequence[int], budget: Budget, table: RecordTable) -> None:
        """Begin a training run.

        Args:
            seeds: seed of each run.
            budget: number of episodes or of environment steps of each run.
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
        self._budget = Budget()
        self._first_steps = 0
        self._start = 0.0

    def open(self, seeds: Sequence[int], budget: Budget, table: RecordTable) -> None:
        """Show the progress at the start."""
        self._first_steps = _total_steps(table)
        self._budget = budget
        self._start = time.monotonic()
        plural = "s" * (len(seeds) > 1)
        self._bar = ProgressBar(
            size(budget), f"{len(seeds)} run{plural}, compiling", used(budget, table)
        )

    def log(self, table: RecordTable) -> None:
        """Show the used part of the budget, the steps per second and the median utility."""
        if self._bar is None:
            return
        steps = _total_steps(table)
        seconds = max(time.monotonic() - self._start, 1e-9)
        speed = (steps - self._first_steps) / seconds
        utilities = table.metrics["utility"][:, -1]
        utility = "not finite"
        if np.isfinite(utilities).any():
            utility = f"{np.nanmedian(utilities):#.3g}".removesuffix(".")
        completed = used(self._budget, table)
        progress = f"{completed:,} / {size(self._budget):,} {unit(self._budget)}"
        self._bar.update(completed, f"{progress}, {speed:,.0f} steps/s, utility {utility}")

    def close(self) -> None:
        """Leave the bar at the last progress."""
        if self._bar is not None:
            self._bar.close()


def _total_steps(table: RecordTable) -> int:
    """Return the steps of all runs at the last record."""
    if not len(table.episodes):
        return 0
    return int(table.steps[:, -1].sum())

"""Loggers: the abstract class and the console."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from occupax.io.records import RecordTable
from occupax.progress import ProgressBar


class Logger(ABC):
    """Something that is given every record once, several at a time."""

    @abstractmethod
    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Begin: `seeds` names the runs, `budget` is the number of episodes of each, `table` what there is already."""

    @abstractmethod
    def log(self, table: RecordTable) -> None:
        """Take further records."""

    @abstractmethod
    def close(self) -> None:
        """Finish, whether the training succeeded or failed."""


class Console(Logger):
    """A progress bar on the standard error; a line now and then if that is not a terminal."""

    def __init__(self) -> None:
        self._bar: ProgressBar | None = None
        self._budget = self._first_steps = self._began = 0.0

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Show how much is done already."""
        episodes, self._first_steps = _reached(table)
        self._budget, self._began = budget, time.monotonic()
        self._bar = ProgressBar(
            budget, f"{len(seeds)} run{'s' if len(seeds) > 1 else ''}, compiling", episodes
        )

    def log(self, table: RecordTable) -> None:
        """Show how far the training is, how fast, and the median utility."""
        if self._bar is not None:
            episodes, steps = _reached(table)
            pace = (steps - self._first_steps) / max(time.monotonic() - self._began, 1e-9)
            latest = table.metrics["utility"][:, -1]
            utility = f"{np.nanmedian(latest):.4g}" if np.isfinite(latest).any() else "not finite"
            text = f"{episodes:,} / {self._budget:,.0f} episodes, {pace:,.0f} steps/s, utility {utility}"
            self._bar.update(episodes, text)

    def close(self) -> None:
        """Leave the bar where it is."""
        if self._bar is not None:
            self._bar.close()


def _reached(table: RecordTable) -> tuple[int, int]:
    return (
        (int(table.episodes[-1]), int(table.steps[:, -1].sum())) if len(table.episodes) else (0, 0)
    )

"""How far all experiments have come, and how long they will take."""

import time
from collections.abc import Sequence
from typing import Any

from occupax.training.loggers import Logger
from occupax.training.records import Table


class Progress:
    """A bar over all the work, which is known beforehand and weighed by the seconds it should take."""

    def __init__(self, costs: Sequence[float], shown: bool = True):
        """Nothing is done yet."""
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("[bold]{task.fields[at]}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self._bar = Bar(*columns, console=Console(stderr=True))
        self._shown, self._live = shown, shown and self._bar.console.is_terminal
        self._total, self._count, self._number = sum(costs), len(costs), 0
        self._done = self._cost = 0.0
        self._task = self._bar.add_task("", total=self._total, at="", left="")
        self._began = time.monotonic()

    def __enter__(self) -> "Progress":
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live:
            self._bar.stop()

    def begin(self, name: str, cost: float) -> Logger:
        """Start a part; the logger moves the bar along with its training."""
        self._number += 1
        self._cost = cost
        self._bar.update(self._task, at=f"{self._number} of {self._count}: {name}")
        if self._shown and not self._live:
            self._bar.console.print(
                f"{self._number} of {self._count}: {name} ({self._left()})", highlight=False, soft_wrap=True
            )
        self.move(0.0)
        return _Watcher(self)

    def end(self) -> None:
        """Finish a part."""
        self._done += self._cost
        self._cost = 0.0
        self.move(0.0)

    def move(self, share: float) -> None:
        """Take note of the share of the present part that is done."""
        self._bar.update(self._task, completed=self._done + share * self._cost, left=self._left(share))

    def _left(self, share: float = 0.0) -> str:
        done, elapsed = self._done + share * self._cost, time.monotonic() - self._began
        pace = elapsed / done if done > 0 and elapsed > 5 else 1.0
        minutes, seconds = divmod(int(pace * (self._total - done)), 60)
        return f"about {minutes}:{seconds:02} left"


class _Watcher(Logger):
    """Tells the bar how far a training is."""

    def __init__(self, progress: Progress):
        """Nothing was sampled yet."""
        self._progress, self._budget = progress, 1

    def open(self, seeds: Sequence[int], budget: int, table: Table) -> None:
        """Remember where it ends."""
        self._budget = budget

    def log(self, table: Table) -> None:
        """Move the bar."""
        self._progress.move(int(table.episodes[-1]) / self._budget)

    def close(self) -> None:
        """Nothing is open."""

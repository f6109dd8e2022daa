"""Progress bar with an estimate of the remaining time."""

import time
from contextlib import suppress
from typing import Any

SECONDS_TO_MEASURE = 5.0
"""Time after which the measured pace replaces the first guess."""


class ProgressBar:
    """Progress bar on the standard error, with lines in its place where that is no terminal.

    Args:
        total: Amount of work, in any unit.
        text: Description in front of the bar.
        completed: Amount of work that was finished before.
        shown: Whether to show anything.
        seconds_a_unit: First guess of the pace.
        seconds_between_lines: Shortest time between two lines where there is no terminal.
    """

    def __init__(
        self,
        total: int | float,
        text: str,
        completed: int | float = 0,
        shown: bool = True,
        seconds_a_unit: float | None = None,
        seconds_between_lines: float = 15.0,
    ):
        # rich takes long to import, and few commands show a bar
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True, emoji=False),
        )
        is_terminal = self._bar.console.is_terminal
        self._prints_lines = shown and not is_terminal
        self._total = total
        self._first = completed
        self._guess = seconds_a_unit
        self._seconds_between_lines = seconds_between_lines
        self._start = time.monotonic()
        self._last_line = self._start
        self._task = self._bar.add_task(text, total=total, left="")
        self._bar.update(self._task, completed=completed)
        if shown and is_terminal:
            self._bar.start()

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar and leave it on the screen."""
        if not self._bar.live.is_started:  # rich would print an empty line
            return
        with suppress(OSError):  # the terminal may have been closed
            self._bar.stop()

    def update(self, completed: int | float, text: str | None = None) -> None:
        """Move the bar. Without a text the last text stays, and no line is printed."""
        left = self._time_left(completed)
        self._bar.update(self._task, completed=completed, description=text, left=left)
        if text is None or not self._prints_lines:
            return
        current = time.monotonic()
        if current - self._last_line < self._seconds_between_lines:
            return
        self._last_line = current
        with suppress(OSError):
            self._bar.console.print(
                f"{text} ({left})", highlight=False, markup=False, soft_wrap=True
            )

    def _time_left(self, completed: int | float) -> str:
        elapsed = time.monotonic() - self._start
        pace = self._guess
        if completed > self._first and (pace is None or elapsed > SECONDS_TO_MEASURE):
            pace = elapsed / (completed - self._first)
        if pace is None:
            return "ETA unknown"
        minutes, seconds = divmod(int(pace * (self._total - completed)), 60)
        return f"ETA {minutes}:{seconds:02}"

"""How far something is that takes a while, and how long it will take."""

import time
from contextlib import suppress
from typing import Any

SECONDS_TO_MEASURE = 5.0
"""After which the pace so far says more than a first guess."""


class ProgressBar:
    """A bar on the standard error; a line now and then where that is not a terminal.

    The `total` and what is `done` already are in any unit; `seconds_a_unit` is a first guess of the
    pace.
    """

    def __init__(
        self,
        total: int | float,
        text: str,
        done: int | float = 0,
        shown: bool = True,
        seconds_a_unit: float | None = None,
        seconds_between_lines: float = 15.0,
    ):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        description = TextColumn("{task.description}", style="bold", markup=False)
        columns = (description, BarColumn(), TextColumn("{task.fields[left]}"))
        self._bar = Progress(
            *columns, TimeElapsedColumn(), console=Console(stderr=True, emoji=False)
        )
        self._lines = shown and not self._bar.console.is_terminal
        self._total, self._first, self._guess, self._between = (
            total,
            done,
            seconds_a_unit,
            seconds_between_lines,
        )
        self._began = self._said = time.monotonic()
        self._task = self._bar.add_task(text, total=total, left="")
        self._bar.update(self._task, completed=done)
        if shown and self._bar.console.is_terminal:
            self._bar.start()

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar where it is."""
        if self._bar.live.is_started:  # otherwise rich would end with an empty line
            with suppress(OSError):  # the terminal may have been closed
                self._bar.stop()

    def update(self, done: int | float, text: str | None = None) -> None:
        """Move the bar to what is done by now; without a text it keeps the last one, and there is no line."""
        left = self._left(done)
        self._bar.update(self._task, completed=done, description=text, left=left)
        if self._lines and text is not None and time.monotonic() - self._said >= self._between:
            self._said = time.monotonic()
            with suppress(OSError):
                self._bar.console.print(
                    f"{text} ({left})", highlight=False, markup=False, soft_wrap=True
                )

    def _left(self, done: int | float) -> str:
        elapsed, pace = time.monotonic() - self._began, self._guess
        if done > self._first and (pace is None or elapsed > SECONDS_TO_MEASURE):
            pace = elapsed / (done - self._first)
        if pace is None:
            return "time left unknown"
        minutes, seconds = divmod(int(pace * (self._total - done)), 60)
        return f"about {minutes}:{seconds:02} left"

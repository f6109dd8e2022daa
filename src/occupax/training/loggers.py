"""Who is told about the records: the console, a CSV file, TensorBoard."""

import csv
import io
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax.training.records import RecordTable

SECONDS_BETWEEN_LINES = 15.0


class Logger(ABC):
    """Is given every record once, some at a time."""

    @abstractmethod
    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Begin: `seeds` names the runs, `budget` is the number of episodes of each, `table` what there is already."""

    @abstractmethod
    def log(self, table: RecordTable) -> None:
        """Take note of further records."""

    @abstractmethod
    def close(self) -> None:
        """End, in success or failure."""


class CSV(Logger):
    """`metrics.csv`: one line for each record and seed; numbers that are not known are left out."""

    def __init__(self, path: Path):
        """Keep the path."""
        self._path = path
        self._seeds: Sequence[int] = ()

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Write what there is already: after a crash the file may be ahead of the checkpoint."""
        self._seeds = seeds
        serial.write_text(self._path, csv_text(seeds, table))

    def log(self, table: RecordTable) -> None:
        """Append lines."""
        with self._path.open("a", newline="") as file:
            if file.tell() == 0:
                file.write(_header(table))
            file.write(_lines(self._seeds, table))

    def close(self) -> None:
        """Nothing is open between two calls."""


def csv_text(seeds: Sequence[int], table: RecordTable) -> str:
    """All of `metrics.csv`; nothing at all before the first record."""
    return _header(table) + _lines(seeds, table) if len(table.episodes) else ""


def read_csv(path: Path) -> tuple[tuple[int, ...], RecordTable]:
    """The seeds and the records of `metrics.csv`."""
    text = path.read_text()
    lines = list(csv.DictReader(io.StringIO(text if text.endswith("\n") else "")))
    try:
        seeds = tuple(dict.fromkeys(int(line["seed"]) for line in lines))
        columns = {
            name: np.array(["nan" if line[name] == "" else line[name] for line in lines], float)
            for name in (lines[0] if lines else ())
            if name != "seed"
        }
        columns = {name: column.reshape(-1, len(seeds)).T for name, column in columns.items()}
        episodes, steps = (columns.pop(name).astype(np.int64) for name in ("episodes", "steps"))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is not a complete file of records.") from None
    return seeds, RecordTable(episodes[0], steps, columns)


def _header(table: RecordTable) -> str:
    return ",".join(["seed", "episodes", "steps", *table.metrics]) + "\n"


def _lines(seeds: Sequence[int], table: RecordTable) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for j, episodes in enumerate(table.episodes):
        for i, seed in enumerate(seeds):
            numbers = (values[i, j] for values in table.metrics.values())
            writer.writerow([seed, episodes, table.steps[i, j], *("" if np.isnan(x) else str(x) for x in numbers)])
    return stream.getvalue()


class Console(Logger):
    """A progress bar on the standard error; a line now and then if that is not a terminal."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._progress: Any = None
        self._task: Any = None
        self._budget = self._first_episodes = self._first_steps = self._began = self._said = 0.0

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Show an empty bar."""
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=RichConsole(stderr=True), transient=False)
        plural = "s" if len(seeds) > 1 else ""
        episodes, steps = _reached(table)
        self._task = self._progress.add_task(
            f"{len(seeds)} run{plural}", total=budget, completed=episodes, said="compiling"
        )
        self._budget, self._first_episodes, self._first_steps = budget, episodes, steps
        self._began = self._said = time.monotonic()
        if self._progress.console.is_terminal:
            self._progress.start()

    def log(self, table: RecordTable) -> None:
        """Move the bar."""
        episodes, steps = _reached(table)
        elapsed = max(time.monotonic() - self._began, 1e-9)
        rate = (episodes - self._first_episodes) / elapsed
        left = (self._budget - episodes) / rate if rate > 0 else float("inf")
        latest = table.metrics["utility"][:, -1]
        utility = f"{np.nanmedian(latest):.4g}" if np.isfinite(latest).any() else "not finite"
        said = (
            f"{episodes:,} / {self._budget:,.0f} episodes, {(steps - self._first_steps) / elapsed:,.0f} steps/s, "
            f"utility {utility}, {left:,.0f} s left"
        )
        self._progress.update(self._task, completed=episodes, said=said)
        console = self._progress.console
        if not console.is_terminal and time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            console.print(said, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar where it is."""
        if self._progress is not None:
            self._progress.stop()


def _reached(table: RecordTable) -> tuple[int, int]:
    return (int(table.episodes[-1]), int(table.steps[:, -1].sum())) if len(table.episodes) else (0, 0)


class TensorBoard(Logger):
    """Event files for TensorBoard, one folder a seed; needs the extra `tensorboard`.

    Args:
        folder: where the event files go.
    """

    def __init__(self, folder: str | Path):
        """Refuse at once if TensorBoard is not installed."""
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise ValueError("TensorBoard(folder) needs tensorboard: install occupax[tensorboard].") from None
        self._make, self._folder, self._writers = EventFileWriter, Path(folder), []

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Write what there is already into new files."""
        self._writers = [self._make(str(self._folder / f"seed-{seed}")) for seed in seeds]
        self.log(table)

    def log(self, table: RecordTable) -> None:
        """Write every number, with the episodes as the step."""
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        for i, writer in enumerate(self._writers):
            for j, episodes in enumerate(table.episodes):
                values = [
                    Summary.Value(tag=name, simple_value=float(column[i, j])) for name, column in table.metrics.items()
                ]
                writer.add_event(Event(wall_time=time.time(), step=int(episodes), summary=Summary(value=values)))

    def close(self) -> None:
        """Finish the files."""
        for writer in self._writers:
            writer.close()

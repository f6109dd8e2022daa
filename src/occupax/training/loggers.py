"""Loggers, which are given the records of a training: the console, a CSV file, TensorBoard."""

import csv
import io
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from occupax import serial
from occupax._progress import ProgressBar
from occupax.training.records import RecordTable


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


class CSV(Logger):
    """`metrics.csv`: one line for each record and seed; numbers that are not known are left out."""

    def __init__(self, path: Path):
        self._path = path
        self._seeds: Sequence[int] = ()

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Write what there is already: after a crash the file may be ahead of the checkpoint."""
        self._seeds = seeds
        serial.write_text(self._path, csv_text(seeds, table))

    def log(self, table: RecordTable) -> None:
        """Append the lines of further records."""
        with self._path.open("a", newline="") as file:
            file.write(csv_text(self._seeds, table, header=file.tell() == 0))

    def close(self) -> None:
        """The file is closed after every call already."""


def csv_text(seeds: Sequence[int], table: RecordTable, header: bool = True) -> str:
    """The lines of `metrics.csv`, after its header if that is wanted; nothing at all before the first record."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header and len(table.episodes):
        writer.writerow(["seed", "episodes", "steps", *table.metrics])
    for j, episodes in enumerate(table.episodes):
        for i, seed in enumerate(seeds):
            numbers = (values[i, j] for values in table.metrics.values())
            writer.writerow([seed, episodes, table.steps[i, j], *("" if np.isnan(x) else str(x) for x in numbers)])
    return stream.getvalue()


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


class Console(Logger):
    """A progress bar on the standard error; a line now and then if that is not a terminal."""

    def __init__(self) -> None:
        self._bar: ProgressBar | None = None
        self._budget = self._first_steps = self._began = 0.0

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Show how much is done already."""
        episodes, self._first_steps = _reached(table)
        self._budget, self._began = budget, time.monotonic()
        self._bar = ProgressBar(budget, f"{len(seeds)} run{'s' if len(seeds) > 1 else ''}, compiling", episodes)

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
    return (int(table.episodes[-1]), int(table.steps[:, -1].sum())) if len(table.episodes) else (0, 0)


class TensorBoard(Logger):
    """Event files for TensorBoard in a folder, one folder a seed; needs the extra `tensorboard`."""

    def __init__(self, folder: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError("TensorBoard(folder) needs tensorboardX: install occupax[tensorboard].") from None
        self._make, self._folder, self._writers = SummaryWriter, Path(folder), []

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Write what there is already into new files."""
        self._writers = [self._make(str(self._folder / f"seed-{seed}")) for seed in seeds]
        self.log(table)

    def log(self, table: RecordTable) -> None:
        """Write every number, with the episodes as the step."""
        for i, writer in enumerate(self._writers):
            for name, column in table.metrics.items():
                for episodes, number in zip(table.episodes, column[i], strict=True):
                    writer.add_scalar(name, float(number), int(episodes))

    def close(self) -> None:
        """Write what is left, and close the files."""
        for writer in self._writers:
            writer.close()

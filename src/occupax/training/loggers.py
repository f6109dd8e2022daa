"""Where the records of a training go: `metrics.csv`, the console, and loggers such as those of `trackers`."""

import csv
import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occupax.io import codec
from occupax.progress import ProgressBar
from occupax.training.records import RecordTable, stride


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


class MetricsFile:
    """`metrics.csv`: one line for each record and seed, appended as they are made; unknown numbers are left out."""

    def __init__(self, path: Path, seeds: Sequence[int], mark: Any = None):
        """Begin a file or, with the mark of a checkpoint, go back to where it was when that was written."""
        self._path, self._seeds, self._hash, self._size = path, seeds, sha256(), 0
        if mark is None:
            codec.write_text(path, "")
            return
        with self._open("r+b") as file:
            while chunk := file.read(min(1 << 20, max(mark["bytes"] - self._size, 0))):
                self._take(chunk)
            if self._mark() != mark:
                raise ValueError(
                    f"{path} was changed after it was written, or is not that of the checkpoint: the run cannot go on "
                    "without its records; put the file back, or begin again in another folder."
                )
            file.truncate(self._size)

    def append(self, table: RecordTable) -> None:
        """Write the lines of further records."""
        lines = csv_text(self._seeds, table, header=self._size == 0).encode()
        with self._open("ab") as file:
            file.write(lines)
        self._take(lines)

    def mark(self) -> dict[str, Any]:
        """How long the file is, and its checksum, once all of it is on the disk."""
        with self._open("ab") as file:
            os.fsync(file.fileno())
        return self._mark()

    def _take(self, lines: bytes) -> None:
        self._hash.update(lines)
        self._size += len(lines)

    def _mark(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def _open(self, mode: str) -> Any:
        if self._path.is_symlink() or not self._path.is_file():
            raise ValueError(
                f"{self._path} must be a file: the run cannot go on without its records."
            )
        return self._path.open(mode)


def csv_text(seeds: Sequence[int], table: RecordTable, header: bool = True) -> str:
    """The lines of `metrics.csv`, after its header if that is wanted; nothing at all before the first record."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header and len(table.episodes):
        writer.writerow(["seed", "episodes", "steps", *table.metrics])
    for j, episodes in enumerate(table.episodes):
        for i, seed in enumerate(seeds):
            numbers = (values[i, j] for values in table.metrics.values())
            writer.writerow(
                [
                    seed,
                    episodes,
                    table.steps[i, j],
                    *("" if np.isnan(x) else str(x) for x in numbers),
                ]
            )
    return stream.getvalue()


def read_csv(path: Path) -> tuple[tuple[int, ...], RecordTable]:
    """The seeds and the records of `metrics.csv`; of very many records those that `Records` keeps, too."""
    try:
        with path.open("rb") as file:
            ended = [chunk.count(b"\n") for chunk in iter(partial(file.read, 1 << 20), b"")]
        with path.open(newline="") as file:
            rows = csv.reader(file)
            names = next(rows, [])
            seeds: list[str] = []
            for row in rows:
                if not row or row[0] in seeds:
                    break
                seeds.append(row[0])
        total, left = divmod(sum(ended) - 1, max(len(seeds), 1))
        if (
            left
            or names[:3] != ["seed", "episodes", "steps"]
            or len(set(names)) != len(names)
            or not seeds
        ):
            raise ValueError  # noqa: TRY301 - all that is wrong with a file is said below
        with path.open(newline="") as file:
            kept = list(_kept_rows(csv.reader(file), len(seeds), total))
        shaped = np.array(kept, dtype=object).reshape(-1, len(seeds), len(names))
        if (shaped[:, :, 0] != np.array(seeds, dtype=object)).any():
            raise ValueError  # noqa: TRY301
        columns = {name: _numbers(shaped[:, :, i]) for i, name in enumerate(names) if i > 2}
        episodes, steps = (shaped[:, :, i].astype(np.int64).T for i in (1, 2))
        increasing = (np.diff(episodes, axis=1) > 0).all() and (np.diff(steps, axis=1) >= 0).all()
        if (
            not increasing
            or (episodes != episodes[0]).any()
            or episodes[0, 0] < 1
            or (steps < 0).any()
        ):
            raise ValueError  # noqa: TRY301
        return tuple(map(int, seeds)), RecordTable(episodes[0], steps, columns)
    except (ValueError, IndexError, OverflowError, csv.Error):
        raise ValueError(f"{path} is not a complete file of records.") from None


def _kept_rows(rows: Iterable[list[str]], seeds: int, total: int) -> Iterator[list[str]]:
    """The rows of those records, of `total`, that are kept."""
    every = stride(total)
    for i, row in enumerate(islice(rows, 1, None)):
        number = i // seeds + 1
        if number % every == 0 or number == total:
            yield row


def _numbers(column: np.ndarray) -> Float[np.ndarray, "seed record"]:
    return np.where(column == "", "nan", column).astype(float).T


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

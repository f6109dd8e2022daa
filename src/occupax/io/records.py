"""Tables of metrics, and `metrics.csv`."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax.io.files import write_text

RECORDS = "metrics.csv"
EXACT = ("exact_utility", "gap")
"""Metrics that are computed exactly, on tables."""
RECORDED = ("utility", "return", "discounted_return", "episode_length", "grad_norm")
"""Metrics of every algorithm."""
MAX_RECORDS = 10_000
"""Largest number of records of a run in memory. `metrics.csv` has all records."""
INDEX_COLUMNS = ["seed", "episodes", "steps"]
CHUNK = 1 << 20
"""Number of bytes that are read at once."""


class RecordTable(NamedTuple):
    """Consecutive records of all runs."""

    episodes: Int[np.ndarray, " record"]
    """Trajectories that each run has sampled so far."""
    steps: Int[np.ndarray, "run record"]
    """Environment steps that each run has taken so far."""
    metrics: dict[str, Float[np.ndarray, "run record"]]


def stride(records: int) -> int:
    """Return the smallest power of two that thins records to at most MAX_RECORDS."""
    return 1 << (records // (MAX_RECORDS + 1)).bit_length()


class MetricsFile:
    """`metrics.csv` during training: a line for each record and seed. NaN is an empty cell."""

    def __init__(self, path: Path, seeds: Sequence[int], mark: Any = None):
        """Begin a file, or truncate the file to its length at the `mark` of a checkpoint."""
        self._path = path
        self._seeds = seeds
        self._digest = sha256()
        self._size = 0
        if mark is None:
            write_text(path, "")
            return
        with self._open("r+b") as file:
            while chunk := file.read(min(CHUNK, max(mark["bytes"] - self._size, 0))):
                self._add(chunk)
            if self._mark() != mark:
                raise ValueError(
                    f"{path} was changed after it was written, or is not that of the checkpoint: "
                    "the run cannot be resumed without its records; restore the file, or begin "
                    "again in another directory."
                )
            file.truncate(self._size)

    def append(self, table: RecordTable) -> None:
        """Write the lines of new records."""
        lines = csv_text(self._seeds, table, header=self._size == 0).encode()
        with self._open("ab") as file:
            file.write(lines)
        self._add(lines)

    def mark(self) -> dict[str, Any]:
        """Return the length and the checksum of the file after a flush to disk."""
        with self._open("ab") as file:
            os.fsync(file.fileno())
        return self._mark()

    def _add(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)

    def _mark(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}

    def _open(self, mode: str) -> Any:
        if self._path.is_symlink() or not self._path.is_file():
            raise ValueError(
                f"{self._path} must be a file: the run cannot continue without its records."
            )
        return self._path.open(mode)


def csv_text(seeds: Sequence[int], table: RecordTable, header: bool = True) -> str:
    """Return the lines of `metrics.csv`, empty without records."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header and len(table.episodes):
        writer.writerow([*INDEX_COLUMNS, *table.metrics])
    for j, episodes in enumerate(table.episodes):
        for i, seed in enumerate(seeds):
            cells = [_cell(values[i, j]) for values in table.metrics.values()]
            writer.writerow([seed, episodes, table.steps[i, j], *cells])
    return stream.getvalue()


def _cell(number: float | np.floating[Any]) -> str:
    if np.isnan(number):
        return ""
    return str(number)


def read_csv(path: Path) -> tuple[tuple[int, ...], RecordTable]:
    """Return the seeds and the records of `metrics.csv`, with the stride of records in memory."""
    try:
        return _read_csv(path)
    except (ValueError, IndexError, OverflowError, csv.Error):
        raise ValueError(f"{path} must be a complete file of records.") from None


def _read_csv(path: Path) -> tuple[tuple[int, ...], RecordTable]:
    lines = _count_lines(path)
    with path.open(newline="") as file:
        names, seeds = _read_names_and_seeds(csv.reader(file))
    total, remainder = divmod(lines - 1, len(seeds))
    if remainder or names[:3] != INDEX_COLUMNS or len(set(names)) != len(names):
        raise ValueError
    with path.open(newline="") as file:
        rows = list(_sampled_rows(csv.reader(file), len(seeds), total))
    cells = np.array(rows, dtype=object).reshape(-1, len(seeds), len(names))
    if (cells[:, :, 0] != np.array(seeds, dtype=object)).any():
        raise ValueError
    episodes = cells[:, :, 1].astype(np.int64).T
    steps = cells[:, :, 2].astype(np.int64).T
    _check_counts(episodes, steps)
    metrics = {name: _numbers(cells[:, :, i]) for i, name in enumerate(names) if i > 2}
    return tuple(map(int, seeds)), RecordTable(episodes[0], steps, metrics)


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(partial(file.read, CHUNK), b""))


def _read_names_and_seeds(rows: Iterator[list[str]]) -> tuple[list[str], list[str]]:
    """Return the header and the seeds of the first record."""
    names = next(rows, [])
    seeds: list[str] = []
    for row in rows:
        if not row or row[0] in seeds:
            break
        seeds.append(row[0])
    if not seeds:
        raise ValueError
    return names, seeds


def _check_counts(episodes: np.ndarray, steps: np.ndarray) -> None:
    """Raise ValueError unless episodes and steps are counters, and episodes agree over seeds."""
    if (episodes != episodes[0]).any() or episodes[0, 0] < 1 or (steps < 0).any():
        raise ValueError
    if (np.diff(episodes, axis=1) <= 0).any() or (np.diff(steps, axis=1) < 0).any():
        raise ValueError


def _sampled_rows(rows: Iterable[list[str]], seeds: int, total: int) -> Iterator[list[str]]:
    """Yield the rows of every k-th of `total` records and of the last."""
    every = stride(total)
    for i, row in enumerate(islice(rows, 1, None)):
        number = i // seeds + 1
        if number % every == 0 or number == total:
            yield row


def _numbers(column: np.ndarray) -> Float[np.ndarray, "seed record"]:
    return np.where(column == "", "nan", column).astype(float).T

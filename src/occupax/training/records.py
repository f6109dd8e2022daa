"""Records of a training run: means over iterations, thinned to a bounded number in memory."""

from typing import Any

import numpy as np
from jaxtyping import Int

from occupax.io.records import EXACT, RecordTable, stride
from occupax.training.schedule import Schedule

Columns = dict[str, np.ndarray]
"""Metrics of consecutive iterations or records by name, [iteration, run] each."""


class Records:
    """Records of `every` iterations each, thinned to the number that a page can show.

    A record has the mean over its iterations, weighted by their trajectories. Iterations without
    steps, after the end of a run, do not count. The largest
    importance weight is a maximum. Exact values are those of the last iteration, where they are
    computed. Iterations that do not complete a record are pending. `stride` gives the thinning; the
    last record is always kept.
    """

    def __init__(self, every: int, schedule: Schedule):
        self._every = every
        self._schedule = schedule
        self._thinned: list[Columns] = []
        self._count = 0
        self._last: Columns = {}
        self._pending: Columns = {}

    def add(self, iterations: Columns) -> RecordTable | None:
        """Add the metrics of further iterations and return the records that they complete."""
        for known in (self._last, self._pending):
            if known and known.keys() != iterations.keys():
                raise ValueError(
                    f"the metrics of the checkpoint must be {sorted(iterations)}, "
                    f"got {sorted(known)}."
                )
        rows = _concatenate([self._pending, iterations])
        full = _length(rows) // self._every * self._every
        self._pending = _select(rows, slice(full, None))
        if not full:
            return None
        completed = self._reduce(_select(rows, slice(full)), self._every)
        previous_stride = stride(self._count)
        first = self._count + 1
        self._count += _length(completed)
        numbers = np.arange(first, self._count + 1)
        self._last = _select(completed, [-1])
        is_kept = numbers % previous_stride == 0
        if is_kept.any():
            self._thinned.append(_select(completed, is_kept))
        factor = stride(self._count) // previous_stride
        if factor > 1:
            self._thinned = [_thin(_concatenate(self._thinned), factor)]
        return self._as_table(completed, numbers)

    def table(self, complete: bool = False) -> RecordTable:
        """Return the records in memory, with one of the pending iterations unless `complete`."""
        pending = 0
        if not complete:
            pending = _length(self._pending)
        total = self._count + (pending > 0)
        every = stride(total)
        records = _thin(_concatenate(self._thinned), every // stride(self._count))
        numbers = np.arange(every, self._count + 1, every)
        if pending:
            records = _concatenate([records, self._reduce(self._pending, pending)])
            numbers = np.append(numbers, total)
        elif self._count % every:
            records = _concatenate([records, self._last])
            numbers = np.append(numbers, total)
        return self._as_table(records, numbers, pending)

    def unfinished(self) -> RecordTable | None:
        """Return the record of the pending iterations, if there are any."""
        pending = _length(self._pending)
        if not pending:
            return None
        record = self._reduce(self._pending, pending)
        return self._as_table(record, np.array([self._count + 1]), pending)

    def steps(self, runs: int) -> Int[np.ndarray, " run"]:
        """Return the number of environment steps of each run, with the pending iterations."""
        steps = np.zeros(runs, np.int64) + self._last_steps()
        if self._pending:
            steps += self._pending["steps"].sum(0)
        return steps

    def arrays(self) -> Columns:
        """Return all that is needed to resume, by name."""
        arrays: Columns = {"count": np.array(self._count)}
        kinds = {
            "records": _concatenate(self._thinned),
            "last": self._last,
            "waiting": self._pending,
        }
        for kind, columns in kinds.items():
            for name, column in columns.items():
                arrays[f"{kind}/{name}"] = column
        return arrays

    def restore(self, arrays: Columns, iteration: int, runs: int) -> None:
        """Restore the records from the arrays of a checkpoint.

        Args:
            arrays: arrays by name.
            iteration: number of iterations before the checkpoint.
            runs: number of runs.
        """
        count = arrays.get("count")
        if count is None or count.shape != () or count.dtype != np.int64 or count < 0:
            raise ValueError("the checkpoint must have a number of records.")
        thinned = _with_prefix(arrays, "records/")
        last = _with_prefix(arrays, "last/")
        pending = _with_prefix(arrays, "waiting/")
        self._count = int(count)
        _check_columns(thinned, self._count // stride(self._count), runs)
        _check_columns(last, min(self._count, 1), runs)
        _check_columns(pending, iteration - self._count * self._every, runs)
        if last and (last.keys() != thinned.keys() or last["steps"].dtype != np.int64):
            raise ValueError("the records of the checkpoint must have the same metrics.")
        self._thinned = [thinned]
        self._last = last
        self._pending = pending

    def _as_table(
        self, records: Columns, numbers: Int[np.ndarray, " record"], pending: int = 0
    ) -> RecordTable:
        """Return records as a table.

        Args:
            records: metrics of the records.
            numbers: number of each record, from 1.
            pending: number of iterations of the last record, if it is incomplete.
        """
        ends = numbers * self._every
        if pending:
            ends[-1] += pending - self._every
        episodes = self._episodes(ends)
        if not records:
            return RecordTable(episodes, np.zeros((0, 0), np.int64), {})
        metrics = {name: records[name].T for name in sorted(records)}
        steps = metrics.pop("steps")
        return RecordTable(episodes, steps, metrics)

    def _episodes(self, iterations: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Return the number of trajectories before each of some iterations."""
        episodes = [self._schedule.episodes(iteration) for iteration in iterations.tolist()]
        return np.array(episodes, np.int64)

    def _reduce(self, iterations: Columns, every: int) -> Columns:
        """Return the records of iterations, `every` of them in each record."""
        numbers = self._count * self._every + np.arange(_length(iterations) + 1)
        trajectories = np.diff(self._episodes(numbers)).reshape(-1, every, 1)
        has_steps = iterations["steps"].reshape(*trajectories.shape[:2], -1) > 0
        counted = trajectories * has_steps
        with np.errstate(invalid="ignore"):  # records after the end of a run are NaN
            weights = counted / counted.sum(1, keepdims=True)
        records: Columns = {}
        for name, column in iterations.items():
            rows = column.reshape(-1, every, column.shape[1])
            if name == "steps":
                records[name] = self._last_steps() + rows.sum(1, dtype=np.int64).cumsum(0)
            elif name in EXACT or every == 1:
                records[name] = rows[:, -1]
            elif name == "largest_weight":
                largest = np.where(has_steps, rows, -np.inf).max(1)
                records[name] = np.where(has_steps.any(1), largest, np.nan).astype(rows.dtype)
            else:
                sums = (np.where(has_steps, rows, 0) * weights).sum(1)
                records[name] = sums.astype(rows.dtype)
        return records

    def _last_steps(self) -> Int[np.ndarray, " run"] | int:
        """Return the number of environment steps of each run at the last record."""
        if not self._count:
            return 0
        return self._last["steps"][-1]


def _with_prefix(arrays: Columns, prefix: str) -> Columns:
    """Return the arrays whose names have a prefix, without it."""
    columns: Columns = {}
    for name, column in arrays.items():
        if name.startswith(prefix):
            columns[name.removeprefix(prefix)] = column
    return columns


def _check_columns(columns: Columns, length: int, runs: int) -> None:
    """Raise ValueError unless columns hold one number for each record and run."""
    if length and not columns:
        raise ValueError(f"the checkpoint must have {length} records, got none.")
    if columns and "steps" not in columns:
        raise ValueError('the records of the checkpoint must have the metric "steps".')
    for column in columns.values():
        if column.dtype.kind not in "fi":
            raise ValueError("the records of the checkpoint must be numbers.")
        if column.shape != (length, runs):
            raise ValueError(
                f"the checkpoint must have {length} records of {runs} runs, "
                f"got the shape {column.shape}."
            )


def _select(table: Columns, rows: Any) -> Columns:
    """Return some rows of a table, by any index of NumPy."""
    return {name: column[rows] for name, column in table.items()}


def _thin(table: Columns, every: int) -> Columns:
    """Return every k-th row of a table."""
    return _select(table, slice(every - 1, None, every))


def _concatenate(tables: list[Columns]) -> Columns:
    """Return the rows of several tables, with the columns of the first table that has rows."""
    filled = [table for table in tables if _length(table)] or tables[:1]
    if not filled:
        return {}
    return {name: np.concatenate([table[name] for table in filled]) for name in filled[0]}


def _length(table: Columns) -> int:
    """Return the number of rows of a table."""
    for column in table.values():
        return len(column)
    return 0

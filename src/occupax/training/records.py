"""What is written down while training."""

import numpy as np
from jaxtyping import Int

from occupax.io.records import EXACT, RecordTable, stride
from occupax.training.schedule import Schedule

Columns = dict[str, np.ndarray]
"""What was recorded of consecutive iterations, or records, by name: [iteration, run] each."""


class Records:
    """Turns iterations into records of `every` of them, and keeps so many of these in memory as a page can show.

    A record has the mean over its iterations, weighted by their trajectories; of the importance
    weights the largest; of exact values, which are computed where a record ends, the last.
    Iterations that do not fill a record yet wait. Of many records every k-th is kept, and the last
    one; see `stride`.
    """

    def __init__(self, every: int, schedule: Schedule):
        self._every, self._schedule = every, schedule
        self._kept: list[Columns] = []
        self._count, self._last, self._waiting = 0, Columns(), Columns()

    def add(self, iterations: Columns) -> RecordTable | None:
        """Add what was recorded of further iterations, [iteration, run] each; return the records they complete."""
        for known in (self._last, self._waiting):
            if known and known.keys() != iterations.keys():
                raise ValueError(
                    f"the checkpoint has records of {sorted(known)}, but this run of {sorted(iterations)}."
                )
        rows = _join([self._waiting, iterations])
        full = _length(rows) // self._every * self._every
        self._waiting = {name: column[full:] for name, column in rows.items()}
        if not full:
            return None
        made = self._reduce({name: column[:full] for name, column in rows.items()}, self._every)
        before, self._count = stride(self._count), self._count + _length(made)
        numbers = np.arange(self._count - _length(made), self._count) + 1
        self._last = {name: column[-1:].copy() for name, column in made.items()}
        if (numbers % before == 0).any():
            self._kept.append(
                {name: column[numbers % before == 0] for name, column in made.items()}
            )
        if stride(self._count) > before:
            self._kept = [_thin(_join(self._kept), stride(self._count) // before)]
        return self._as_table(made, numbers)

    def table(self, complete: bool = False) -> RecordTable:
        """The records that are kept; unless only complete ones are wanted, the last one covers what there is."""
        waiting = 0 if complete else _length(self._waiting)
        total = self._count + (waiting > 0)
        every, before = stride(total), stride(self._count)
        kept = _thin(_join(self._kept), every // before)
        numbers = np.arange(every, self._count + 1, every)
        if waiting:
            kept = _join([kept, self._reduce(self._waiting, waiting)])
        elif self._count % every:
            kept = _join([kept, self._last])
        ends = np.append(numbers, total) if waiting or self._count % every else numbers
        return self._as_table(kept, ends, waiting)

    def unfinished(self) -> RecordTable | None:
        """The last record, if there are iterations that do not fill it."""
        waiting = _length(self._waiting)
        made = self._reduce(self._waiting, waiting) if waiting else {}
        return self._as_table(made, np.array([self._count + 1]), waiting) if waiting else None

    def arrays(self) -> Columns:
        """Everything, by name."""
        kinds = {"records": _join(self._kept), "last": self._last, "waiting": self._waiting}
        named = {
            f"{kind}/{name}": column
            for kind, columns in kinds.items()
            for name, column in columns.items()
        }
        return named | {"count": np.array(self._count)}

    def restore(self, arrays: Columns, iteration: int, runs: int) -> None:
        """Go back to where `arrays` was taken, after so many iterations of so many runs."""
        parts = [
            {
                name.removeprefix(kind): column
                for name, column in arrays.items()
                if name.startswith(kind)
            }
            for kind in ("records/", "last/", "waiting/")
        ]
        count = arrays.get("count")
        if count is None or count.shape != () or count.dtype != np.int64 or count < 0:
            raise ValueError("the checkpoint does not say how many records there are.")
        kept, last, waiting = parts
        self._count = int(count)
        wanted = (
            self._count // stride(self._count),
            min(self._count, 1),
            iteration - self._count * self._every,
        )
        for columns, length in zip(parts, wanted, strict=True):
            shapes = {column.shape for column in columns.values()} or {(0, runs)}
            if any(column.dtype.kind not in "fi" for column in columns.values()):
                raise ValueError("the checkpoint has records that are not numbers.")
            if shapes != {(length, runs)} or (columns and "steps" not in columns):
                raise ValueError(
                    f"the checkpoint must have {length} records of {runs} runs, got shapes {shapes}."
                )
        if last and (last.keys() != kept.keys() or last["steps"].dtype != np.int64):
            raise ValueError("the checkpoint has records of different kinds.")
        self._kept, self._last, self._waiting = [kept], last, waiting

    def _as_table(
        self, records: Columns, numbers: Int[np.ndarray, " record"], waiting: int = 0
    ) -> RecordTable:
        """Records with the numbers that they end, from 1 on; the last may have fewer iterations than the others."""
        ends = [int(number) * self._every for number in numbers]
        if waiting:
            ends[-1] += waiting - self._every
        return RecordTable(
            episodes=np.array([self._schedule.episodes(end) for end in ends], np.int64),
            steps=records["steps"].T if records else np.zeros((0, 0), np.int64),
            metrics={name: records[name].T for name in sorted(records) if name != "steps"},
        )

    def _reduce(self, iterations: Columns, every: int) -> Columns:
        first = self._count * self._every
        drawn = np.diff(
            [self._schedule.episodes(first + i) for i in range(_length(iterations) + 1)]
        ).reshape(-1, every)
        share = (drawn / drawn.sum(1, keepdims=True))[..., None]
        before = self._last["steps"][-1] if self._count else 0

        def reduce(name: str, rows: np.ndarray) -> np.ndarray:
            if name == "steps":
                return before + rows.sum(1, dtype=np.int64).cumsum(0)
            if name in EXACT or every == 1:
                return rows[:, -1]
            return (
                rows.max(1)
                if name == "largest_weight"
                else (rows * share).sum(1).astype(rows.dtype)
            )

        return {
            name: reduce(name, rows.reshape(-1, every, rows.shape[1]))
            for name, rows in iterations.items()
        }


def _thin(table: Columns, every: int) -> Columns:
    return {name: column[every - 1 :: every] for name, column in table.items()}


def _join(tables: list[Columns]) -> Columns:
    filled = [table for table in tables if _length(table)] or [table for table in tables if table][
        :1
    ]
    return {
        name: np.concatenate([table[name] for table in filled])
        for name in (filled[0] if filled else ())
    }


def _length(table: Columns) -> int:
    return len(next(iter(table.values()), ()))

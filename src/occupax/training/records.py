"""What is written down while training."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax.training.schedule import Schedule

EXACT = ("exact_utility", "gap")


class RecordTable(NamedTuple):
    """Consecutive records of all runs."""

    episodes: Int[np.ndarray, " record"]
    """Trajectories sampled by each run so far."""
    steps: Int[np.ndarray, "run record"]
    """Environment steps taken by each run so far."""
    metrics: dict[str, Float[np.ndarray, "run record"]]


class Records:
    """Turns iterations into records of `every` of them.

    A record has the mean over its iterations, weighted by their trajectories; of the importance weights the largest; of
    exact values, which are computed where a record ends, the last. Iterations that do not fill a record yet wait.
    """

    def __init__(self, every: int, schedule: Schedule):
        self._every, self._schedule = every, schedule
        self._complete: list[dict[str, np.ndarray]] = []
        self._count = 0
        self._waiting: dict[str, np.ndarray] = {}

    def add(self, iterations: dict[str, np.ndarray]) -> RecordTable | None:
        """Add what was recorded of further iterations, [iteration, run] each; return the records they complete."""
        rows = _join([self._waiting, iterations])
        full = _length(rows) // self._every * self._every
        self._waiting = {name: column[full:] for name, column in rows.items()}
        if not full:
            return None
        made = self._reduce({name: column[:full] for name, column in rows.items()}, self._every)
        first = self._count
        self._complete.append(made)
        self._count += _length(made)
        return self._as_table(made, first)

    def table(self, complete: bool = False) -> RecordTable:
        """All records; unless only complete ones are wanted, the last one covers what there is."""
        waiting = 0 if complete else _length(self._waiting)
        last = [self._reduce(self._waiting, waiting)] if waiting else []
        return self._as_table(_join(self._complete + last), 0, waiting)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, by name."""
        kinds = {"records": _join(self._complete), "waiting": self._waiting}
        return {f"{kind}/{name}": column for kind, columns in kinds.items() for name, column in columns.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go back to where `arrays` was taken."""
        complete, self._waiting = (
            {name.removeprefix(kind): column for name, column in arrays.items() if name.startswith(kind)}
            for kind in ("records/", "waiting/")
        )
        self._complete, self._count = [complete], _length(complete)

    def _as_table(self, records: dict[str, np.ndarray], first: int, waiting: int = 0) -> RecordTable:
        ends = [(i + 1) * self._every for i in range(first, self._count)]
        ends += [self._count * self._every + waiting] if waiting else []
        return RecordTable(
            episodes=np.array([self._schedule.episodes(end) for end in ends], np.int64),
            steps=records["steps"].T if records else np.zeros((0, 0), np.int64),
            metrics={name: records[name].T for name in sorted(records) if name != "steps"},
        )

    def _reduce(self, iterations: dict[str, np.ndarray], every: int) -> dict[str, np.ndarray]:
        first = self._count * self._every
        drawn = np.diff([self._schedule.episodes(first + i) for i in range(_length(iterations) + 1)]).reshape(-1, every)
        share = (drawn / drawn.sum(1, keepdims=True))[..., None]
        before = self._complete[-1]["steps"][-1] if self._count else 0

        def reduce(name: str, rows: np.ndarray) -> np.ndarray:
            if name == "steps":
                return before + rows.sum(1, dtype=np.int64).cumsum(0)
            if name in EXACT or every == 1:
                return rows[:, -1]
            return rows.max(1) if name == "largest_weight" else (rows * share).sum(1).astype(rows.dtype)

        return {name: reduce(name, rows.reshape(-1, every, rows.shape[1])) for name, rows in iterations.items()}


def _join(tables: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    filled = [table for table in tables if table]
    return {name: np.concatenate([table[name] for table in filled]) for name in (filled[0] if filled else ())}


def _length(table: dict[str, np.ndarray]) -> int:
    return len(next(iter(table.values()), ()))

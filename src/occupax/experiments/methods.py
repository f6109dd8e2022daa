"""The algorithms that are compared, and their settings: as the paper prints them, and as a search found them."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import inf, isnan
from typing import Any, NamedTuple

from occupax import algorithms
from occupax._errors import unknown
from occupax.algorithms import Algorithm
from occupax.training.schedule import Schedule

PRINTED = files("occupax.experiments") / "printed.csv"
"""The two tables of the paper's appendix, as they are printed."""
SEARCH = files("occupax.experiments") / "search.csv"
"""Every trial of the search for tuned settings, which are the best of each task and method on the most seeds."""

PRINTED_STEP_SIZES = (1e-4, 1e-1)
SNAPSHOTS = (10, 25, 50, 100, 200)
"""The paper's range for eta, and its grid for N."""
RATE_SNAPSHOT = 4096
"""The N at which the settings of the rate are searched for."""
SEARCHED = ("step_size", "radius", "mixing")
"""What is tried besides N; not all of it for every method."""

PAPER: dict[str, Any] = {"rule": "gradient", "baseline": "none"}
"""What the paper's methods have in common: steps along the gradient itself, without a baseline."""

Settings = Mapping[tuple[str, str], Algorithm[Any]]
"""An algorithm for each task and method."""


class Method(NamedTuple):
    """An algorithm by the name the paper gives it."""

    algorithm: Callable[..., Algorithm[Any]]
    second: str | None = None
    """What is searched for besides the step size."""
    powers: tuple[float, float] | None = None
    """B and m of an epoch as powers of N; None for an algorithm without epochs."""
    factors: tuple[float, float] = (1, 1)
    """What these powers are multiplied by."""

    def sizes(self, snapshot: int) -> tuple[int, int]:
        """B and m for N trajectories a snapshot."""
        pairs = zip(self.factors, self.powers or (), strict=True)
        batch, length = (round(factor * snapshot**power) for factor, power in pairs)
        return batch, length


METHODS = {
    "TSIVR-PG": Method(algorithms.TSIVRPG, "radius", (1 / 2, 1 / 2)),
    "REINFORCE": Method(algorithms.REINFORCE),
    "SVRPG": Method(algorithms.SVRPG, None, (2 / 3, 1 / 3)),
    "SRVR-PG": Method(algorithms.SRVRPG, None, (1 / 2, 1 / 2)),
    "HSPGA": Method(algorithms.HSPGA, None, (1 / 2, 1 / 2)),
    "TSIVR-PG (B = 4 m)": Method(algorithms.TSIVRPG, "radius", (1 / 2, 1 / 2), (2, 1 / 2)),
    "MaxEnt": Method(algorithms.MaxEnt, "mixing"),
    "REINFORCE (truncated)": Method(algorithms.REINFORCE, "radius"),
}
"""By name; B = 4 m is what section 6.3 prints for N = 100, which is no rule of the paper's."""
REWARD = tuple(METHODS)[:5]
"""The methods of section 6.1."""


def make(name: str, snapshot: int, sizes: tuple[int, int] | None = None, **settings: Any) -> Algorithm[Any]:
    """The algorithm of a method, for N trajectories a snapshot, with B and m by its rule unless they are given."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    method = METHODS[name]
    if method.powers is None:
        return method.algorithm(batch=snapshot, **PAPER | settings)
    batch, epoch_length = method.sizes(snapshot) if sizes is None else sizes
    epoch = {"snapshot_batch": snapshot, "batch": batch, "epoch_length": epoch_length, "weight_guard": None}
    return method.algorithm(**PAPER | epoch | settings)


def epoch_episodes(algorithm: Algorithm[Any]) -> int:
    """How many episodes an epoch takes."""
    schedule = Schedule(algorithm)
    return schedule.episodes(schedule.period)


def described(algorithm: Algorithm[Any]) -> str:
    """The settings of an algorithm in the paper's letters."""
    batch = "B" if hasattr(algorithm, "snapshot_batch") else "N"
    letters = {"snapshot_batch": "N", "batch": batch, "epoch_length": "m", "step_size": "eta", "radius": "delta"}
    given = {letter: getattr(algorithm, name, inf) for name, letter in (letters | {"mixing": "alpha"}).items()}
    return ", ".join(f"{letter} = {value:g}" for letter, value in given.items() if value not in (None, inf))


@cache
def printed() -> dict[tuple[str, str], Algorithm[Any]]:
    """The settings that the paper prints, by task and method."""
    found: dict[tuple[str, str], Algorithm[Any]] = {}
    for row in _rows(PRINTED):
        sizes = (int(row["B"]), int(row["m"])) if row["B"] else None
        settings = {"step_size": float(row["eta"])} | ({"radius": float(row["delta"])} if row["delta"] else {})
        found[row["environment"], row["algorithm"]] = make(row["algorithm"], int(row["N"]), sizes, **settings)
    return found


class Trial(NamedTuple):
    """A setting that was tried for a task, and what came of it."""

    task: str
    method: str
    snapshot: int
    settings: dict[str, Any]
    seeds: int
    score: float


def read_search(path: Any = SEARCH) -> list[Trial]:
    """All trials of a search, from its file."""
    trials: list[Trial] = []
    for row in _rows(path):
        settings = {name: float(row[name]) for name in SEARCHED if row[name]}
        numbers = int(row["N"]), settings, int(row["seeds"]), float(row["score"])
        trials.append(Trial(row["task"], row["method"], *numbers))
    return trials


def best_trials(trials: Iterable[Trial]) -> dict[tuple[str, str], Trial]:
    """The best trial of each task and method, of those with the most seeds."""
    best: dict[tuple[str, str], Trial] = {}
    for trial in trials:
        before = best.get((trial.task, trial.method))
        if not isnan(trial.score) and (before is None or (trial.seeds, trial.score) > (before.seeds, before.score)):
            best[trial.task, trial.method] = trial
    return best


def tuned(path: Any = SEARCH, snapshots: Sequence[int] = SNAPSHOTS) -> dict[tuple[str, str], Algorithm[Any]]:
    """The best setting of a search with one of these N, by task and method."""
    best = best_trials(trial for trial in read_search(path) if trial.snapshot in snapshots)
    return {key: make(trial.method, trial.snapshot, **trial.settings) for key, trial in best.items()}


def _rows(file: Any) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))

"""The algorithms that are compared, and their settings: as the paper prints them, and as a search found them."""

import csv
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from math import inf, isnan, sqrt
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
"""The paper's range for eta."""
SNAPSHOTS = (10, 25, 50, 100, 200)
"""The paper's grid for N."""
RATE_SNAPSHOT = 4096
"""The N at which the settings of the rate are searched for."""


Settings = Mapping[tuple[str, str], Algorithm[Any]]
"""An algorithm for each task and method."""


class Method(NamedTuple):
    """An algorithm by the name the paper gives it, and how the sizes B and m of its epochs follow from N."""

    algorithm: Callable[..., Algorithm[Any]]
    sizes: Callable[[int], tuple[int, int]] | None
    """(B, m) of N; None for an algorithm without epochs."""
    second: str | None = None
    """What is searched for besides the step size."""


def recursive_sizes(snapshot: int) -> tuple[int, int]:
    """B = m = 1 / epsilon where N = 1 / epsilon^2."""
    return round(sqrt(snapshot)), round(sqrt(snapshot))


def _by_snapshot(snapshot: int) -> tuple[int, int]:
    """B = epsilon^(-4/3) and m = epsilon^(-2/3)."""
    return round(snapshot ** (2 / 3)), round(snapshot ** (1 / 3))


def _as_printed_for_coverage(snapshot: int) -> tuple[int, int]:
    """B = 20 and m = 5 for N = 100, which is no rule of the paper's; here twice and half the square root."""
    return round(2 * sqrt(snapshot)), max(2, round(sqrt(snapshot) / 2))


METHODS = {
    "TSIVR-PG": Method(algorithms.TSIVRPG, recursive_sizes, "radius"),
    "REINFORCE": Method(algorithms.REINFORCE, None),
    "SVRPG": Method(algorithms.SVRPG, _by_snapshot),
    "SRVR-PG": Method(algorithms.SRVRPG, recursive_sizes),
    "HSPGA": Method(algorithms.HSPGA, recursive_sizes),
    "TSIVR-PG (B = 4 m)": Method(algorithms.TSIVRPG, _as_printed_for_coverage, "radius"),
    "MaxEnt": Method(algorithms.MaxEnt, None, "mixing"),
    "REINFORCE (truncated)": Method(algorithms.REINFORCE, None, "radius"),
}
REWARD = tuple(METHODS)[:5]
"""The methods of section 6.1."""


def make(name: str, snapshot: int, sizes: tuple[int, int] | None = None, **settings: Any) -> Algorithm[Any]:
    """The algorithm of a method, for N trajectories a snapshot, with B and m by its rule unless they are given."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    method = METHODS[name]
    if method.sizes is None:
        return method.algorithm(batch=snapshot, **settings)
    batch, epoch_length = method.sizes(snapshot) if sizes is None else sizes
    return method.algorithm(snapshot_batch=snapshot, batch=batch, epoch_length=epoch_length, **settings)


def epoch_episodes(algorithm: Algorithm[Any]) -> int:
    """How many episodes an epoch takes."""
    schedule = Schedule(algorithm)
    return schedule.episodes(schedule.period)


def described(algorithm: Algorithm[Any]) -> str:
    """The settings of an algorithm in the paper's letters."""
    letters = {"snapshot_batch": "N", "batch": "B", "epoch_length": "m", "step_size": "eta", "radius": "delta"}
    if not hasattr(algorithm, "snapshot_batch"):
        letters["batch"] = "N"
    letters["mixing"] = "alpha"
    given = {letter: getattr(algorithm, name, None) for name, letter in letters.items()}
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
    return [
        Trial(
            row["task"],
            row["method"],
            int(row["N"]),
            {name: float(row[name]) for name in SEARCHED if row[name]},
            int(row["seeds"]),
            float(row["score"]),
        )
        for row in _rows(path)
    ]


SEARCHED = ("step_size", "radius", "mixing")
"""What is tried besides N; not all of it for every method."""


def best_trials(trials: Iterable[Trial]) -> dict[tuple[str, str], Trial]:
    """The best trial of each task and method, of those with the most seeds."""
    best: dict[tuple[str, str], Trial] = {}
    for trial in trials:
        before = best.get((trial.task, trial.method))
        if not isnan(trial.score) and (before is None or (trial.seeds, trial.score) > (before.seeds, before.score)):
            best[trial.task, trial.method] = trial
    return best


def tuned(path: Any = SEARCH) -> dict[tuple[str, str], Algorithm[Any]]:
    """The best setting of a search, by task and method."""
    best = best_trials(trial for trial in read_search(path) if trial.snapshot in SNAPSHOTS)
    return {key: make(trial.method, trial.snapshot, **trial.settings) for key, trial in best.items()}


def _rows(file: Any) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))

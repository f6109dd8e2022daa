"""Algorithms of the paper with their hyperparameters as printed."""

import csv
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from math import inf
from typing import Any, NamedTuple

from occupax import algorithms
from occupax.algorithms import Algorithm
from occupax.errors import unknown
from occupax.experiments.maxent import MaxEntReading
from occupax.training.schedule import Schedule

PRINTED = files("occupax.experiments") / "printed.csv"
"""Two tables of the paper's appendix, as printed."""
PAPER: dict[str, Any] = {"rule": "gradient", "baseline": "none"}
"""Settings of all methods of the paper: steps along the gradient itself, without a baseline."""
LETTERS = {
    "snapshot_batch": "N",
    "batch": "B",
    "epoch_length": "m",
    "step_size": "eta",
    "radius": "delta",
    "mixing": "alpha",
}
"""Letters of the paper by hyperparameter."""


class Method(NamedTuple):
    """Algorithm by its name in the paper."""

    algorithm: Callable[..., Algorithm[Any]]
    second: str | None = None
    """Hyperparameter that is tuned besides the step size."""
    powers: tuple[float, float] | None = None
    """B and m as powers of N. None stands for an algorithm without epochs."""
    factors: tuple[float, float] = (1, 1)
    """Factors of these powers."""

    def sizes(self, snapshot: int) -> tuple[int, int]:
        """Return B and m for N trajectories a snapshot."""
        if self.powers is None:
            raise ValueError("powers must be set to know the sizes of an epoch, got None.")
        batch = self.factors[0] * snapshot ** self.powers[0]
        epoch_length = self.factors[1] * snapshot ** self.powers[1]
        return round(batch), round(epoch_length)


OURS = "TSIVR-PG"
PLAIN = "REINFORCE"
SQUARE_ROOTS = (1 / 2, 1 / 2)
METHODS = {
    OURS: Method(algorithms.TSIVRPG, "radius", SQUARE_ROOTS),
    PLAIN: Method(partial(algorithms.REINFORCE, mixing=1.0, restarts=False)),
    "SVRPG": Method(algorithms.SVRPG, None, (2 / 3, 1 / 3)),
    "SRVR-PG": Method(algorithms.SRVRPG, None, SQUARE_ROOTS),
    "HSPGA": Method(algorithms.HSPGA, None, SQUARE_ROOTS),
    "TSIVR-PG (B = 4 m)": Method(algorithms.TSIVRPG, "radius", SQUARE_ROOTS, (2, 1 / 2)),
    "MaxEnt": Method(MaxEntReading, "mixing"),
}
"""Methods by name.

REINFORCE takes the gradient of a utility at a fresh estimate. B = 4 m is printed in section 6.3 for
N = 100, and is not a rule of the paper.
"""
REWARD = tuple(METHODS)[:5]
"""Methods of section 6.1."""


def make(
    name: str, snapshot: int, sizes: tuple[int, int] | None = None, **settings: Any
) -> Algorithm[Any]:
    """Return the algorithm of a method for N trajectories a snapshot, with B and m by its rule."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    method = METHODS[name]
    if method.powers is None:
        return method.algorithm(batch=snapshot, **PAPER | settings)
    batch, epoch_length = sizes or method.sizes(snapshot)
    return method.algorithm(
        snapshot_batch=snapshot,
        batch=batch,
        epoch_length=epoch_length,
        weight_guard=None,
        **PAPER | settings,
    )


def epoch_episodes(algorithm: Algorithm[Any]) -> int:
    """Return the number of episodes of an epoch."""
    schedule = Schedule(algorithm)
    return schedule.episodes(schedule.period)


def snapshot_size(algorithm: Any) -> int:
    """Return N, the batch of an algorithm without snapshots."""
    return getattr(algorithm, "snapshot_batch", algorithm.batch)


def describe(algorithm: Any) -> str:
    """Return the hyperparameters of an algorithm in the paper's letters."""
    letters = dict(LETTERS)
    if not hasattr(algorithm, "snapshot_batch"):
        letters["batch"] = "N"
    words: list[str] = []
    for name, letter in letters.items():
        value = getattr(algorithm, name, None)
        if value not in (None, inf):
            words.append(f"{letter} = {value:.3g}")
    for name, usual in PAPER.items():
        value = getattr(algorithm, name)
        if value != usual:
            words.append(f"{name} {value}")
    return ", ".join(words)


@cache
def printed() -> dict[tuple[str, str], Any]:
    """Return the printed algorithms by task and method."""
    table: dict[tuple[str, str], Any] = {}
    with PRINTED.open(newline="") as stream:  # pyright: ignore[reportCallIssue]
        for row in csv.DictReader(stream):
            sizes = None
            if row["B"]:
                sizes = (int(row["B"]), int(row["m"]))
            settings = {"step_size": float(row["eta"])}
            if row["delta"]:
                settings["radius"] = float(row["delta"])
            algorithm = make(row["algorithm"], int(row["N"]), sizes, **settings)
            table[row["environment"], row["algorithm"]] = algorithm
    return table

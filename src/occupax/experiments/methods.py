"""The algorithms that are compared, and their settings as the paper prints them."""

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
"""The two tables of the paper's appendix, as they are printed."""
PAPER: dict[str, Any] = {"rule": "gradient", "baseline": "none"}
"""What the paper's methods have in common: steps along the gradient itself, without a baseline."""


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


OURS, PLAIN = "TSIVR-PG", "REINFORCE"
METHODS = {
    OURS: Method(algorithms.TSIVRPG, "radius", (1 / 2, 1 / 2)),
    PLAIN: Method(partial(algorithms.REINFORCE, mixing=1.0, restarts=False)),
    "SVRPG": Method(algorithms.SVRPG, None, (2 / 3, 1 / 3)),
    "SRVR-PG": Method(algorithms.SRVRPG, None, (1 / 2, 1 / 2)),
    "HSPGA": Method(algorithms.HSPGA, None, (1 / 2, 1 / 2)),
    "TSIVR-PG (B = 4 m)": Method(algorithms.TSIVRPG, "radius", (1 / 2, 1 / 2), (2, 1 / 2)),
    "MaxEnt": Method(MaxEntReading, "mixing"),
}
"""By name; REINFORCE takes the gradient of a utility at a fresh estimate, and B = 4 m is what
section 6.3 prints for N = 100, which is no rule of the paper's."""
REWARD = tuple(METHODS)[:5]
"""The methods of section 6.1."""


def make(
    name: str, snapshot: int, sizes: tuple[int, int] | None = None, **settings: Any
) -> Algorithm[Any]:
    """The algorithm of a method, for N trajectories a snapshot, with B and m by its rule unless they are given."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    method = METHODS[name]
    if method.powers is None:
        return method.algorithm(batch=snapshot, **PAPER | settings)
    batch, epoch_length = method.sizes(snapshot) if sizes is None else sizes
    epoch = {
        "snapshot_batch": snapshot,
        "batch": batch,
        "epoch_length": epoch_length,
        "weight_guard": None,
    }
    return method.algorithm(**PAPER | epoch | settings)


def epoch_episodes(algorithm: Algorithm[Any]) -> int:
    """How many episodes an epoch takes."""
    schedule = Schedule(algorithm)
    return schedule.episodes(schedule.period)


def described(algorithm: Any) -> str:
    """The settings of an algorithm in the paper's letters."""
    batch = "B" if hasattr(algorithm, "snapshot_batch") else "N"
    letters = {
        "snapshot_batch": "N",
        "batch": batch,
        "epoch_length": "m",
        "step_size": "eta",
        "radius": "delta",
    }
    given = {
        letter: getattr(algorithm, name, inf)
        for name, letter in (letters | {"mixing": "alpha"}).items()
    }
    shown = [
        f"{letter} = {value:.3g}" for letter, value in given.items() if value not in (None, inf)
    ]
    kinds = {"rule": PAPER["rule"], "baseline": PAPER["baseline"]}
    shown += [
        f"{name} {getattr(algorithm, name)}"
        for name, usual in kinds.items()
        if getattr(algorithm, name) != usual
    ]
    return ", ".join(shown)


@cache
def printed() -> dict[tuple[str, str], Any]:
    """The settings that the paper prints, by task and method."""
    found: dict[tuple[str, str], Any] = {}
    with PRINTED.open(newline="") as stream:  # pyright: ignore[reportCallIssue]
        for row in csv.DictReader(stream):
            sizes = (int(row["B"]), int(row["m"])) if row["B"] else None
            settings = {"step_size": float(row["eta"])} | (
                {"radius": float(row["delta"])} if row["delta"] else {}
            )
            found[row["environment"], row["algorithm"]] = make(
                row["algorithm"], int(row["N"]), sizes, **settings
            )
    return found

"""One algorithm on one problem in one track: trained, and kept in a file of its own."""

import inspect
import json
import re
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from occupax.algorithms import Algorithm
from occupax.bench.families import BenchProblem
from occupax.bench.measure import Curve, first_policy, train, unmoved
from occupax.io import codec
from occupax.problem import Problem
from occupax.training.loggers import Logger
from occupax.training.schedule import Schedule
from occupax.training.setup import make_setup, versions

Track = Literal["default", "tuned"]

SEED, SEARCH_SEED = 0, 1
"""The seed of the runs that are scored, and that of the search: they share no random number."""
SEARCH_SEEDS = range(2)
SETTINGS = 16
"""How many settings the search tries."""
RANGE = 20.0
"""By what factor, at most, the step sizes of the search, or what is tuned instead, differ from the
algorithm's own."""
SIZES = ("snapshot_batch", "batch")
TUNED = {"PlugIn": "prior"}
"""The hyperparameter that the search multiplies, by class name; `step_size` for all other
algorithms."""
"""Settings of which the search tries the half as well."""


@dataclass(frozen=True)
class Cell:
    """An algorithm on a problem, in a track."""

    problem: BenchProblem
    label: str
    """What the algorithm is called."""
    algorithm: Algorithm[Any] | None
    """None is what `occupax.train` takes by default."""
    track: Track
    seeds: int

    @property
    def name(self) -> str:
        """What its file is called."""
        return "-".join(
            re.findall(r"[a-z0-9]+", f"{self.problem.name} {self.label} {self.track}".lower())
        )

    @property
    def description(self) -> dict[str, Any]:
        """All that the outcome depends on."""
        chosen = _with_its_settings(self.problem.problem, self.algorithm)
        return {
            "problem": self.problem.name,
            "fingerprint": self.problem.fingerprint,
            "episodes": self.problem.row.episodes,
            "label": self.label,
            "algorithm": describe(chosen),
            "source": _source(chosen),
            "track": self.track,
            "seeds": self.seeds,
            "versions": versions(),
        }

    @property
    def cost(self) -> float:
        """How many seconds it takes, roughly: compilation, and the steps of all runs."""
        row, tuned = self.problem.row, self.track == "tuned"
        runs = self.seeds + tuned * SETTINGS * len(SEARCH_SEEDS)
        steps_a_second = 4e6 if self.problem.tabular else 8e5
        return 5.0 + 4.0 * tuned + runs * row.episodes * row.horizon / steps_a_second


@dataclass(frozen=True)
class Done:
    """What came of a cell."""

    cell: Cell
    settings: str
    """The settings that were scored, in words."""
    curve: Curve
    seconds: float
    """Of processor time, so that it does not matter what else ran beside it."""


def measure(cell: Cell, logger: Logger | None = None) -> Done:
    """Train a cell; in the tuned track, search for its settings first."""
    began, it = time.process_time(), cell.problem
    chosen = _with_its_settings(it.problem, cell.algorithm)
    if not _takes(it.problem, chosen):
        return Done(
            cell,
            "does not take this problem",
            unmoved(it.problem, it.row.episodes, range(cell.seeds)),
            0.0,
        )
    if cell.track == "tuned":
        chosen = _search(it, chosen)
    curve = train(it.problem, [chosen], it.row.episodes, range(cell.seeds), SEED, logger)[0]
    return Done(cell, describe(chosen), curve, time.process_time() - began)


def _with_its_settings(problem: Problem, algorithm: Algorithm[Any] | None) -> Algorithm[Any]:
    """The algorithm with the settings that it has by default for a problem."""
    return make_setup(
        problem, [algorithm], first_policy(problem), 1, SEED, 1, exact=False
    ).algorithms[0]


def _takes(problem: Problem, algorithm: Algorithm[Any]) -> bool:
    """Whether an algorithm is for such a problem: PlugIn is for tables only."""
    try:
        algorithm.init(
            problem,
            make_setup(problem, [algorithm], first_policy(problem), 1, SEED, 1, False).policies[0],
        )
    except ValueError:
        return False
    return True


def describe(algorithm: Algorithm[Any]) -> str:
    """An algorithm with all its settings, as Python would write it."""
    settings = (
        f"{field.name}={getattr(algorithm, field.name)}"
        for field in fields(algorithm)
        if field.init
    )
    return f"{type(algorithm).__name__}({', '.join(settings)})"


def _source(algorithm: Algorithm[Any]) -> str:
    """A checksum of the code of an algorithm, so that one that was changed is run again."""
    try:
        return codec.checksum(inspect.getsource(type(algorithm)), {})
    except OSError:  # it was typed, and is in no file
        return ""


def candidates(algorithm: Algorithm[Any]) -> list[list[Algorithm[Any]]]:
    """The settings that the search tries, in groups that differ in numbers only.

    They are multiples of the algorithm's own step size, or of the hyperparameter in `TUNED`, and,
    where it has batches, these and half of them.
    """
    sizes = {name: getattr(algorithm, name) for name in SIZES if hasattr(algorithm, name)}
    halves = {name: -(-size // 2) for name, size in sizes.items()}
    groups = [{}, halves] if sizes else [{}]
    count = SETTINGS // len(groups)
    powers = np.arange(-count // 2, count // 2) * 2 / count
    name = TUNED.get(type(algorithm).__name__, "step_size")
    values = [float(f"{getattr(algorithm, name) * RANGE**power:.3g}") for power in powers]
    return [
        [replace(algorithm, **{name: value}, **changed) for value in values] for changed in groups
    ]


def _search(it: BenchProblem, algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The setting with the highest utility on average over the training, on seeds of the search."""
    best, found = -np.inf, algorithm
    for group in candidates(algorithm):
        if Schedule(group[0]).iterations(it.row.episodes):
            curves = train(it.problem, group, it.row.episodes, SEARCH_SEEDS, SEARCH_SEED)
            for variant, curve in zip(group, curves, strict=True):
                score = _mean_utility(curve)
                best, found = (score, variant) if score > best else (best, found)
    return found


def _mean_utility(curve: Curve) -> float:
    """The mean over seeds and training, which ranks settings as the share of the way does; NaN never wins."""
    return float(np.mean(curve.values[:, 1:] @ (np.diff(curve.episodes) / curve.episodes[-1])))


def keep(folder: Path, cell: Cell, logger: Logger | None = None) -> Done:
    """Train a cell, and keep what comes of it in a file."""
    done = measure(cell, logger)
    save(folder, done)
    return done


def save(folder: Path, done: Done) -> None:
    """Keep what came of a cell in a file."""
    values = [
        [value if np.isfinite(value) else None for value in row]
        for row in done.curve.values.tolist()
    ]
    content = {
        "cell": done.cell.description,
        "settings": done.settings,
        "episodes": done.curve.episodes.tolist(),
        "values": values,
        "seconds": round(done.seconds, 1),
    }
    codec.write_text(folder / f"{done.cell.name}.json", json.dumps(content, indent=1))


def load(folder: Path, cell: Cell) -> Done | None:
    """What came of a cell, if the folder has it from the same settings and versions."""
    file = folder / f"{cell.name}.json"
    content = json.loads(file.read_text()) if file.exists() else {}
    if content.get("cell") != cell.description:
        return None
    curve = Curve(np.array(content["episodes"]), np.array(content["values"], float))
    return Done(cell, content["settings"], curve, content["seconds"])

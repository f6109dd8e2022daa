"""Cells of the benchmark: one algorithm on one problem in one track, as a job."""

import inspect
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import numpy as np

from occupax.algorithms import Algorithm
from occupax.bench import search
from occupax.bench.families import BenchProblem
from occupax.bench.measure import Curve, constant_curve, policy_source, train
from occupax.io.files import checksum
from occupax.jobs import SECONDS, Job, JobResult, file_name
from occupax.training.loggers import Logger
from occupax.training.setup import Setup, make_setup

Track = Literal["default", "tuned"]

SEED = 0
"""Seed of scored runs."""
NOT_TAKEN = "does not take this problem"


@dataclass(frozen=True)
class BenchCell:
    """An algorithm on a problem, in a track."""

    problem: BenchProblem
    label: str
    """Name of the algorithm on the leaderboard."""
    algorithm: Algorithm[Any] | None
    """None stands for the default of `occupax.train`."""
    track: Track
    seeds: int

    @property
    def name(self) -> str:
        """Name of the file with the result."""
        return file_name(self.problem.name, self.label, self.track)

    @property
    def job(self) -> Job:
        """Job that trains the cell."""
        algorithm = self.setup().algorithms[0]
        description = {
            "problem": self.problem.name,
            "fingerprint": self.problem.fingerprint,
            "episodes": self.problem.entry.episodes,
            "label": self.label,
            "algorithm": describe_algorithm(algorithm),
            "source": _source_checksum(algorithm),
            "track": self.track,
            "seeds": self.seeds,
        }
        title = f"{self.label} ({self.track}) on {self.problem.name}"
        return Job(self.name, description, self._expected_seconds(), partial(_run, self), title)

    def setup(self) -> Setup:
        """Return the set-up of a single run, which fills the open hyperparameters."""
        problem = self.problem.problem
        policy = policy_source(problem)
        return make_setup(problem, [self.algorithm], policy, 1, SEED, 1, exact=False)

    def _expected_seconds(self) -> float:
        """Return the time of compilation and of the steps of all runs, roughly."""
        runs = self.seeds
        compilation = 5.0
        if self.track == "tuned":
            runs += search.SETTINGS * len(search.SEEDS)
            compilation = 9.0
        steps_a_second = 8e5
        if self.problem.tabular:
            steps_a_second = 4e6
        entry = self.problem.entry
        return compilation + runs * entry.episodes * entry.horizon / steps_a_second


@dataclass(frozen=True)
class CellResult:
    """Result of a cell."""

    cell: BenchCell
    settings: str
    """Scored hyperparameters."""
    curve: Curve
    seconds: float = 0.0
    """Processor time."""


def measure_cell(cell: BenchCell, logger: Logger | None = None) -> CellResult:
    """Train a cell. The tuned track searches for the hyperparameters first."""
    setup = cell.setup()
    algorithm = setup.algorithms[0]
    problem = cell.problem.problem
    episodes = cell.problem.entry.episodes
    try:
        algorithm.init(problem, setup.policies[0])
    except ValueError:  # PlugIn takes tables only
        return CellResult(cell, NOT_TAKEN, constant_curve(problem, episodes, cell.seeds))
    if cell.track == "tuned":
        algorithm = search.best_setting(cell.problem, algorithm)
    curves = train(problem, [algorithm], episodes, range(cell.seeds), SEED, logger)
    return CellResult(cell, describe_algorithm(algorithm), curves[0])


def read_cell(cell: BenchCell, result: JobResult) -> CellResult:
    """Return the result of a cell whose job is finished."""
    curve = Curve(result.arrays["episodes"], result.arrays["values"])
    return CellResult(cell, result.facts["settings"], curve, result.facts[SECONDS])


def describe_algorithm(algorithm: Algorithm[Any]) -> str:
    """Return an algorithm with all its hyperparameters, as Python code."""
    settings = [
        f"{field.name}={getattr(algorithm, field.name)}"
        for field in fields(algorithm)
        if field.init
    ]
    return f"{type(algorithm).__name__}({', '.join(settings)})"


def _run(cell: BenchCell, logger: Logger) -> JobResult:
    result = measure_cell(cell, logger)
    values = result.curve.values
    arrays = {
        "episodes": result.curve.episodes,
        "values": np.where(np.isfinite(values), values, np.nan),
    }
    return JobResult(arrays, {"settings": result.settings})


def _source_checksum(algorithm: Algorithm[Any]) -> str:
    """Return a checksum of the code of an algorithm, because a change makes its cells stale."""
    try:
        return checksum(inspect.getsource(type(algorithm)), {})
    except OSError:  # the class was typed into an interpreter
        return ""

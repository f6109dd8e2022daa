"""One method on one task with one setting, at a scale: trained, summed up in a few arrays, and kept in a file."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int, Num
from scipy.special import softmax

from occupax import serial
from occupax.algorithms import Algorithm, MaxEnt
from occupax.analysis.describe import words
from occupax.analysis.statistics import mean_over_grid, on_grid, time_to_threshold, trailing_average
from occupax.exact import Evaluator
from occupax.experiments.methods import SNAPSHOTS
from occupax.experiments.tasks import COVERAGE, LAKE, TASKS, Task
from occupax.policies import Policy, Tabular
from occupax.training.assessment import probabilities
from occupax.training.loggers import Logger
from occupax.training.loop import run
from occupax.training.result import Result
from occupax.training.schedule import Schedule
from occupax.training.setup import Setup, make_setup, versions

SPAN = 50
"""Episodes in the paper's moving average."""
POINTS = 100
"""How many points of a curve are kept."""
SEED = 0
"""The seed of all runs that are shown."""
EXACT_RECORDS = 100
"""How often the exact utility is worked out during a run."""


@dataclass(frozen=True)
class Cell:
    """A method with its settings, what it is trained on, and for how long."""

    name: str
    """What its file is called."""
    task: Task
    algorithm: Algorithm[Any]
    episodes: int
    seeds: int

    @property
    def description(self) -> dict[str, Any]:
        """All that the outcome depends on."""
        text, arrays = serial.pack(self.task.problem)
        return {
            "task": self.task.name,
            "problem": serial.checksum(json.dumps(text), arrays),
            "measure": self.task.measure,
            "threshold": f"{self.task.threshold:.6g}",
            "algorithm": words(*serial.pack(self.algorithm)),
            "episodes": self.episodes,
            "seeds": self.seeds,
            "seed": SEED,
            "versions": versions(),
        }

    @property
    def cost(self) -> float:
        """How many seconds it takes, roughly, on two cores: compilation, and the episodes."""
        episodes = self.episodes * self.seeds
        if self.task.tabular:
            return 4.0 + episodes / 5e5
        return 12.0 + episodes * self.task.problem.sampling_horizon() / 2e6


class Scale(NamedTuple):
    """The size of the experiments."""

    name: str
    share: float
    """The share of the episodes of each task that are run."""
    most_seeds: int
    tasks: tuple[str, ...]
    roots: tuple[int, ...]
    """The square roots of the snapshots N of the rate."""
    epochs: int
    """How many epochs the rate is measured over (E)."""

    def cell(self, setting: str, task: Task, label: str, algorithm: Algorithm[Any]) -> Cell:
        """A method on a task at this scale; experiments that need the same one share it."""
        name = "-".join(re.findall(r"[a-z0-9]+", f"{task.name} {setting} {label}".lower()))
        episodes = max(int(self.share * task.episodes), 4 * Schedule(algorithm).episodes(1))
        return Cell(name, task, algorithm, episodes, min(self.most_seeds, task.seeds))


SCALES = {
    "quick": Scale("quick", 0.1, 5, (LAKE, COVERAGE), (4, 8, 16, 32), 50),
    "full": Scale("full", 1.0, 50, TASKS, (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128), 100),
}


@dataclass(frozen=True)
class Run:
    """What a method did on a task, for every seed."""

    episodes: Int[np.ndarray, " record"]
    steps: Int[np.ndarray, "seed record"]
    values: Float[np.ndarray, "seed record"]
    """What the task measures, at each record."""
    mixture: Float[np.ndarray, "seed record"] | None
    """The exact utility of the mixture of all policies so far, which MaxEnt is about."""
    result: Result


def train(
    task: Task,
    algorithms: Sequence[Algorithm[Any]],
    episodes: int,
    seeds: Sequence[int],
    seed: int,
    logger: Logger | None = None,
    mixtures: bool = True,
) -> list[Run]:
    """A run for each of some algorithms that differ in numbers only; mixtures take a record for every iteration."""
    schedule, exact = Schedule(algorithms[0]), task.measure == "exact"
    mixes = mixtures and exact and isinstance(algorithms[0], MaxEnt)
    every = max(1, schedule.iterations(episodes) // EXACT_RECORDS) if exact and not mixes else 1
    setup = make_setup(task.problem, algorithms, task.policy, seeds, seed, every, exact=False)
    loggers = [] if logger is None else [logger]
    if exact:
        return _exact_runs(setup, episodes, loggers, mixes)
    at = slice(None, None, schedule.period if task.measure == "utility" else 1)
    return [
        Run(it.episodes[at], it.steps[:, at], it.metrics[task.measure][:, at].astype(float), None, it)
        for it in run(setup, episodes, loggers, progress=False)
    ]


def _exact_runs(setup: Setup, episodes: int, loggers: list[Logger], mixes: bool) -> list[Run]:
    """Runs whose first value is that of the first policy; callbacks do not see a last record that is incomplete."""
    evaluator, occupancies = Evaluator(setup.problem), list[np.ndarray]()

    def add(policies: Sequence[Policy]) -> None:
        tables = np.array([cast("Tabular", policy).table for policy in policies], float)
        occupancies.append(evaluator.occupancies(softmax(tables, axis=2)))

    add([policy for _, _, policy in setup.runs])
    results = run(setup, episodes, [lambda at: add(at.policies), *loggers], progress=False)
    mixtures, shares = occupancies[:1], np.array([[getattr(it, "mixing", 0.0)] for it, _, _ in setup.runs])
    for latest in occupancies[:-1] if mixes else ():
        mixtures.append((1 - shares) * mixtures[-1] + shares * latest)
    values, mixed = (
        np.split(np.array([evaluator.utilities(it) for it in every]).T, len(results))
        for every in (occupancies, mixtures)
    )
    known = len(occupancies) - 1
    return [
        Run(np.pad(it.episodes[:known], (1, 0)), steps, values[i], mixed[i] if mixes else None, it)
        for i, it in enumerate(results)
        for steps in [np.pad(it.steps[:, :known], ((0, 0), (1, 0)))]
    ]


def mean_heights(
    episodes: Int[np.ndarray, " record"], values: Float[np.ndarray, "seed record"], start: int, end: int
) -> Float[np.ndarray, " seed"]:
    """The area under the curve of each seed between two numbers of episodes, divided by their distance."""
    grid = np.unique(np.clip(np.concatenate([[start], episodes, [end]]), start, end))
    return mean_over_grid(grid, on_grid(episodes, values, grid))


class Measurement(eqx.Module):
    """What came of a cell, for every seed."""

    grid: Num[np.ndarray, " point"]
    curve: Float[np.ndarray, "seed point"]
    """The measure of the task at numbers of episodes; sampled returns as a moving average of the last episodes."""
    step_grid: Num[np.ndarray, " point"]
    """Numbers of environment steps, at which the step curve is known."""
    step_curve: Float[np.ndarray, "seed point"]
    heights: Float[np.ndarray, " seed"]
    """The area under the curve divided by its width: the mean measure over the whole training."""
    reached: Float[np.ndarray, " seed"]
    """How many episodes it takes until the threshold of the task is reached; infinite if it never is."""
    final: Float[np.ndarray, " seed"]
    """In the end: the exact utility of the policy, or the mean return of the last episodes."""


@dataclass(frozen=True)
class Done:
    """A cell that was trained."""

    cell: Cell
    last: Measurement
    """What the policies themselves are worth."""
    mixture: Measurement | None
    """What the mixture of all policies so far is worth, which MaxEnt is about."""
    tables: Float[np.ndarray, "seed S A"] | None
    """The action probabilities of the trained policies, where there are so many states and no more."""
    stopped: int
    """How many seeds were stopped because their numbers were not finite any more."""
    seconds: float


def measure(cell: Cell, logger: Logger | None = None) -> Done:
    """Train a cell, and sum up what came of it."""
    began, task = time.monotonic(), cell.task
    trained = train(task, [cell.algorithm], cell.episodes, range(cell.seeds), SEED, logger)[0]
    mixed, result = trained.mixture, trained.result
    mixture = None if mixed is None else _outcome(cell, trained, mixed, mixed[:, -1])
    last = _outcome(cell, trained, trained.values, None if task.measure == "return" else result.utilities)
    tables = np.array([probabilities(task.problem, it) for it in result.policies]) if task.tabular else None
    stopped = sum(status != "finished" for status in result.status)
    return Done(cell, last, mixture, tables, stopped, time.monotonic() - began)


def _outcome(cell: Cell, of: Run, values: np.ndarray, final: np.ndarray | None) -> Measurement:
    first = max(min(max(SNAPSHOTS), cell.episodes // 2), int(of.episodes[0]))
    smooth = values if cell.task.measure in ("exact", "utility") else trailing_average(of.episodes, values, SPAN)
    grid = np.linspace(first, cell.episodes, POINTS)
    step_grid = np.linspace(np.median(of.steps[:, 0]), np.median(of.steps[:, -1]), POINTS)
    curve = on_grid(of.episodes, smooth, grid)
    return Measurement(
        grid=grid,
        curve=curve,
        step_grid=step_grid,
        step_curve=on_grid(of.steps, smooth, step_grid),
        heights=mean_heights(of.episodes, values, first, cell.episodes),
        reached=time_to_threshold(of.episodes, smooth, cell.task.threshold),
        final=curve[:, -1] if final is None else final,
    )


def save(folder: Path, done: Done) -> None:
    """Keep what came of a cell in a file."""
    description, arrays = serial.pack((done.last, done.mixture, done.tables))
    content = {"cell": done.cell.description, "stopped": done.stopped, "seconds": done.seconds}
    serial.write(_file(folder, done.cell), arrays, {**content, "measured": description})


def load(folder: Path, cell: Cell) -> Done | None:
    """The outcome of a cell, if the folder has it, from the same settings and versions."""
    file = _file(folder, cell)
    arrays, content = serial.read(file) if file.exists() else ({}, {})
    if content.get("cell") != cell.description or "measured" not in content:
        return None
    last, mixture, tables = serial.unpack(content["measured"], arrays)
    return Done(cell, last, mixture, tables, content["stopped"], content["seconds"])


def _file(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.safetensors"

"""Training that is measured: the curves of a method on a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from occupax.algorithms import Algorithm, MaxEnt
from occupax.analysis.statistics import mean_over_grid, on_grid
from occupax.exact import Evaluator
from occupax.experiments.tasks import Task
from occupax.policies import Policy, Tabular
from occupax.training.loggers import Logger
from occupax.training.loop import run
from occupax.training.result import Result
from occupax.training.schedule import Schedule
from occupax.training.setup import Setup, make_setup

EXACT_RECORDS = 100
"""How often the exact utility is worked out during a run."""


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
    """Run algorithms that differ in numbers only; return one run for each.

    Without `mixtures` it is not worked out what the mixtures of MaxEnt are worth, which takes a record for every
    iteration.
    """
    mixes = mixtures and isinstance(algorithms[0], MaxEnt) and task.measure == "exact"
    every, schedule = 1, Schedule(algorithms[0])
    if task.measure == "exact" and not mixes:
        every = max(1, schedule.iterations(episodes) // EXACT_RECORDS)
    setup = make_setup(task.problem, algorithms, task.policy, seeds, seed, every, exact=False)
    loggers = [] if logger is None else [logger]
    if task.measure != "exact":
        results = run(setup, episodes, loggers, progress=False)
        at = slice(None, None, schedule.period if task.measure == "utility" else 1)
        return [
            Run(it.episodes[at], it.steps[:, at], it.metrics[task.measure][:, at].astype(float), None, it)
            for it in results
        ]
    curves = ExactCurves(setup, mixes)
    results = run(setup, episodes, [lambda at: curves.add(at.policies), *loggers], progress=False)
    return [_with_curves(it, *curves.of(slice(i * len(seeds), (i + 1) * len(seeds)))) for i, it in enumerate(results)]


def _with_curves(result: Result, values: np.ndarray, mixture: np.ndarray | None) -> Run:
    """A run whose first value is that of the first policy; callbacks do not see a last record that is incomplete."""
    known = values.shape[1] - 1
    steps = np.pad(result.steps[:, :known], ((0, 0), (1, 0)))
    return Run(np.pad(result.episodes[:known], (1, 0)), steps, values, mixture, result)


def mean_heights(
    episodes: Int[np.ndarray, " record"], values: Float[np.ndarray, "seed record"], start: int, end: int
) -> Float[np.ndarray, " seed"]:
    """The area under the curve of each seed between two numbers of episodes, divided by their distance."""
    grid = np.unique(np.clip(np.concatenate([[start], episodes, [end]]), start, end))
    return mean_over_grid(grid, on_grid(episodes, values, grid))


class ExactCurves:
    """What the policies of each run and, for MaxEnt, the mixture of them so far are worth, record by record."""

    def __init__(self, setup: Setup, mixes: bool):
        self._evaluator, self._mixes = Evaluator(setup.problem), mixes
        self._shares = np.array([[getattr(algorithm, "mixing", 0.0)] for algorithm, _, _ in setup.runs])
        self._latest = self._mixture = self._occupancies([policy for _, _, policy in setup.runs])
        self._values = [self._evaluator.utilities(self._latest)]
        self._mixture_values = self._values[:]

    def add(self, policies: Sequence[Policy]) -> None:
        """Evaluate the policies of the next record."""
        if self._mixes:
            self._mixture = (1 - self._shares) * self._mixture + self._shares * self._latest
            self._mixture_values.append(self._evaluator.utilities(self._mixture))
        self._latest = self._occupancies(policies)
        self._values.append(self._evaluator.utilities(self._latest))

    def of(self, runs: slice) -> tuple[Float[np.ndarray, "seed record"], Float[np.ndarray, "seed record"] | None]:
        """What the policies and the mixtures of some runs were worth at first and at each record."""
        values = np.array(self._values).T[runs]
        return values, np.array(self._mixture_values).T[runs] if self._mixes else None

    def _occupancies(self, policies: Sequence[Policy]) -> Float[np.ndarray, "run d"]:
        tables = np.array([cast("Tabular", policy).table for policy in policies], float)
        return self._evaluator.occupancies(softmax(tables, axis=2))

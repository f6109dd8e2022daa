"""Training that is measured: curves and outcomes of a method on a task, kept in files so that nothing runs twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from occupax.algorithms import Algorithm, MaxEnt
from occupax.analysis.curves import mean_over_grid, on_grid
from occupax.exact.dynamics import dynamics
from occupax.exact.evaluation import stationary_occupancies
from occupax.experiments.tasks import Task
from occupax.policies import Policy, Tabular
from occupax.training.loggers import Logger
from occupax.training.loop import Moment, run
from occupax.training.records import Budget
from occupax.training.result import Result
from occupax.training.setup import Setup, make_setup

EXACT_RECORDS = 100
"""How often the exact utility is worked out during a run."""


@dataclass(frozen=True)
class Run:
    """What a method did on a task, for every seed."""

    episodes: Int[np.ndarray, " record"]
    steps: Int[np.ndarray, "seed record"]
    values: Float[np.ndarray, "seed record"]
    """The measure of the task."""
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

    Args:
        task: what to train on.
        algorithms: how.
        episodes: trajectories each seed may sample.
        seeds: which.
        seed: of everything.
        logger: is told about the records.
        mixtures: whether to work out what the mixtures of MaxEnt are worth, which takes a record for every iteration.
    """
    mixes = mixtures and isinstance(algorithms[0], MaxEnt) and task.measure == "exact"
    every = 1 if mixes or task.measure != "exact" else _records_apart(algorithms[0].cycle, episodes)
    setup = make_setup(task.problem, algorithms, task.policy, seeds, seed, every, exact=False)
    loggers = [] if logger is None else [logger]
    if task.measure != "exact":
        results = run(setup, episodes, loggers, progress=False)
        shown = slice(None, None, len(setup.cycle) if task.measure == "utility" else 1)
        return [
            Run(it.episodes[shown], it.steps[:, shown], it.metrics[task.measure][:, shown].astype(float), None, it)
            for it in results
        ]
    curves = ExactCurves(setup, mixes)
    results = run(setup, episodes, [curves, *loggers], progress=False)
    return [_with_curves(it, *curves.of(slice(i * len(seeds), (i + 1) * len(seeds)))) for i, it in enumerate(results)]


def _with_curves(result: Result, values: np.ndarray, mixture: np.ndarray | None) -> Run:
    """A run whose first value is that of the first policy; callbacks do not see a last record that is incomplete."""
    known = values.shape[1] - 1
    episodes = np.concatenate([[0], result.episodes[:known]])
    steps = np.pad(result.steps[:, :known], ((0, 0), (1, 0)))
    return Run(episodes, steps, values, mixture, result)


def mean_heights(
    episodes: Int[np.ndarray, " record"], values: Float[np.ndarray, "seed record"], start: int, end: int
) -> Float[np.ndarray, " seed"]:
    """The area under the curve of each seed between two numbers of episodes, divided by their distance."""
    grid = np.unique(np.clip(np.concatenate([[start], episodes, [end]]), start, end))
    return mean_over_grid(grid, on_grid(episodes, values, grid))


def _records_apart(cycle: tuple[int, ...], episodes: int) -> int:
    """Iterations in a record, so that there are about `EXACT_RECORDS` of them."""
    return max(1, Budget(cycle).iterations(episodes) // EXACT_RECORDS)


class ExactCurves:
    """A callback that works out what every policy, and for MaxEnt the mixture so far, is worth."""

    def __init__(self, setup: Setup, mixes: bool):
        """Nothing was seen yet but the first policies."""
        self._setup, self._model = setup, dynamics(setup.problem)
        self._mixing = np.array([getattr(algorithm, "mixing", 0.0) for algorithm, _, _ in setup.runs])
        self._mixes = mixes
        self._latest = self._occupancies([policy for _, _, policy in setup.runs])
        self._mixture: np.ndarray | None = None
        self._values = [self._utilities(self._latest)]
        self._mixture_values = self._values[:]

    def __call__(self, moment: Moment) -> None:
        """Take note of a record."""
        if self._mixes:
            share = self._mixing[:, None]
            before = self._latest if self._mixture is None else self._mixture
            self._mixture = (1 - share) * before + share * self._latest
            self._mixture_values.append(self._utilities(self._mixture))
        self._latest = self._occupancies(moment.policies)
        self._values.append(self._utilities(self._latest))

    def of(self, runs: slice) -> tuple[Float[np.ndarray, "seed record"], Float[np.ndarray, "seed record"] | None]:
        """What the policies and the mixtures of some runs were worth at first and at each record."""
        values = np.array(self._values).T[runs]
        return values, np.array(self._mixture_values).T[runs] if self._mixes else None

    def _occupancies(self, policies: Sequence[Policy]) -> np.ndarray:
        tables = softmax(np.array([cast("Tabular", policy).table for policy in policies], float), axis=2)
        return stationary_occupancies(self._model, tables).reshape(len(tables), -1) @ self._model.features.toarray()

    def _utilities(self, occupancies: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(_values(self._setup.problem.utility, occupancies))


_values: Callable[..., Any] = eqx.filter_jit(lambda utility, occupancies: jax.vmap(utility.value)(occupancies))

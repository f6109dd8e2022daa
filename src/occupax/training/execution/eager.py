"""Executor of runs whose trajectories are sampled outside compiled programs."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from occupax.algorithms import Algorithm
from occupax.batches import Batch
from occupax.io.codec import Arrays, named_arrays, with_arrays_of
from occupax.policies import Policy
from occupax.samplers import EpisodeError
from occupax.samplers.base import Source
from occupax.training.execution.executor import (
    Executor,
    Remaining,
    with_array_hyperparameters,
)
from occupax.training.execution.iteration import (
    IterationMetrics,
    RunState,
    finish_iteration,
    initial_run,
    update_run,
)
from occupax.training.setup import Setup

finish_compiled = eqx.filter_jit(finish_iteration)


class EagerExecutor(Executor):
    """Runs whose algorithm is ordinary Python, on batches from a simulator or a cluster.

    Runs that may sample at the same time have a thread each.
    """

    def __init__(self, setup: Setup, source: Source):
        super().__init__(setup, source)
        self._problem = setup.problem
        self._algorithms: list[Algorithm[Any]] = []
        self._keys: list[Key[Array, ""]] = []
        self._runs: list[RunState] = []
        for run in setup.runs:
            self._algorithms.append(with_array_hyperparameters(run.algorithm))
            self._keys.append(setup.key(run.seed))
            self._runs.append(initial_run(setup.problem, run.algorithm, run.policy))

    def advance(self, count: int, remaining: Remaining = None) -> Arrays:
        """Carry out iterations of all runs and return the metrics, [iteration, run]."""
        double = bool(jax.config.read("jax_enable_x64"))
        threads = min(self.count, self._source.runs_at_once)
        advance_run = partial(self._advance_run, count, remaining, double)
        if threads == 1:
            advanced = list(map(advance_run, range(self.count)))
        else:
            with ThreadPoolExecutor(threads) as pool:
                advanced = list(pool.map(advance_run, range(self.count)))
        # no run changes before all have succeeded, so that a checkpoint has one iteration for all
        runs, values, steps = zip(*advanced, strict=True)
        self._runs = list(runs)
        columns = self._columns(np.stack(values, 1), np.stack(steps, 1))
        if remaining is not None:
            columns = self._carried_out(columns)
        self.iteration += len(columns["steps"])
        return columns

    def _advance_run(
        self, count: int, remaining: Remaining, double: bool, number: int
    ) -> tuple[RunState, np.ndarray, np.ndarray]:
        """Return a run after `count` iterations, with metrics and steps of each iteration."""
        values: list[np.ndarray] = []
        steps: list[np.ndarray] = []
        limit = inf
        if remaining is not None:
            limit = remaining[number]
        total = 0
        run = self._runs[number]
        with jax.enable_x64(double):  # threads do not inherit the precision
            for iteration in range(self.iteration, self.iteration + count):
                run, metrics = self._iterate(number, run, iteration, total < limit)
                values.append(np.asarray(metrics.values))
                steps.append(np.asarray(metrics.steps))
                total += int(metrics.steps)
        return run, np.array(values), np.array(steps)

    def _iterate(
        self, number: int, run: RunState, iteration: int, in_budget: bool
    ) -> tuple[RunState, IterationMetrics]:
        if int(run.failure) or not in_budget:
            unknown = jnp.full(len(self._names), jnp.nan)
            return run, IterationMetrics(unknown, jnp.zeros((), jnp.int32))
        algorithm = self._algorithms[number]
        key = jax.random.fold_in(self._keys[number], iteration)
        phase = int(self._schedule.phases(iteration, 1)[0])
        draw = partial(self._draw, self._schedule.sizes[phase], key)
        is_candidate = self._schedule.is_candidate[phase]
        try:
            update = update_run(algorithm, phase, run, draw, key)
        except EpisodeError as error:
            raise EpisodeError(f"iteration {iteration}: {error}") from error
        number_array = jnp.asarray(iteration, jnp.int32)
        return finish_compiled(
            self._problem, algorithm, is_candidate, run, update, key, number_array
        )

    def _draw(self, size: int, key: Key[Array, ""], policy: Policy) -> Batch:
        return self._source.draw(policy, size, key)

    def failures(self) -> Int[np.ndarray, " run"]:
        """Return the index in `FAILURES` of each run, 0 if all its values are finite."""
        return np.array([int(run.failure) for run in self._runs])

    def outputs(self) -> list[Policy]:
        """Return the output policy of each run so far."""
        return [run.output for run in self._runs]

    def states(self) -> list[object]:
        """Return the state of the algorithm of each run."""
        return [run.state for run in self._runs]

    def arrays(self) -> Arrays:
        """Return all that is needed to resume, by name, [run, ...]."""
        arrays = list(map(named_arrays, self._runs))
        stacked: Arrays = {}
        for name in arrays[0]:
            stacked[name] = np.stack([of_run[name] for of_run in arrays])
        return stacked

    def _restore(self, arrays: Arrays) -> None:
        for i, run in enumerate(self._runs):
            of_run = {name: np.asarray(array[i]) for name, array in arrays.items()}
            self._runs[i] = with_arrays_of(run, of_run)

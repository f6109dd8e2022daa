"""Runs whose trajectories are sampled outside of the compiled program, and perhaps far away.

The algorithm runs as ordinary Python, on batches that answer when they are asked. Runs that may draw at the same time
have a thread each, which waits for the answers.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from occupax.policies import Policy
from occupax.samplers import EpisodeError
from occupax.samplers.base import Source
from occupax.serial import named_arrays, with_arrays_of
from occupax.training.execution.executor import Arrays, Executor, with_array_settings
from occupax.training.execution.iteration import Row, Run, conclude, first_run, iterate
from occupax.training.setup import Setup


class EagerExecutor(Executor):
    """The runs of a set-up, one after the other or side by side in threads."""

    def __init__(self, setup: Setup, source: Source):
        super().__init__(setup, source)
        self._algorithms = [with_array_settings(algorithm) for algorithm, _, _ in setup.runs]
        self._keys = [setup.key(seed) for _, seed, _ in setup.runs]
        self._runs = [first_run(setup.problem, algorithm, policy) for algorithm, _, policy in setup.runs]

    def advance(self, count: int) -> Arrays:
        """Carry out `count` iterations of all runs."""
        double = bool(jax.config.read("jax_enable_x64"))  # which a thread does not take over by itself

        def go(number: int) -> tuple[Run, list[Row]]:
            run, rows = self._runs[number], []
            with jax.enable_x64(double):
                for iteration in range(self.iteration, self.iteration + count):
                    run, row = self._iterate(number, run, iteration)
                    rows.append(jax.tree.map(np.asarray, row))
            return run, rows

        at_once = min(self.count, self._source.runs_at_once)
        if at_once == 1:
            done = [go(number) for number in range(self.count)]
        else:
            with ThreadPoolExecutor(at_once) as threads:
                done = list(threads.map(go, range(self.count)))
        self._runs = [run for run, _ in done]
        self.iteration += count
        numbers, steps = (
            np.array([[getattr(row, part) for row in rows] for _, rows in done]).swapaxes(0, 1)
            for part in ("numbers", "steps")
        )
        return self._table(numbers, steps)

    def _iterate(self, number: int, run: Run, iteration: int) -> tuple[Run, Row]:
        if int(run.failure):
            return run, Row(jnp.full(len(self._names), jnp.nan), jnp.zeros((), jnp.int32))
        key, phase = jax.random.fold_in(self._keys[number], iteration), int(self._schedule.phases(iteration, 1)[0])
        n = self._schedule.sizes[phase]
        when: Any = jnp.asarray(iteration, jnp.int32)
        judging = self._schedule.judging[phase] and self._algorithms[number].output == "best"  # or it compiles twice

        def draw(policy: Policy) -> Any:
            return self._source.draw(policy, n, key)

        try:
            return iterate(self._algorithms[number], phase, judging, run, draw, key, when, conclude)
        except EpisodeError as error:
            raise EpisodeError(f"iteration {iteration}: {error}") from error

    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""
        return [run.output for run in self._runs]

    def arrays(self) -> Arrays:
        """Everything that is needed to go on, by name, [run, ...]."""
        named = [named_arrays(run) for run in self._runs]
        return {name: np.stack([arrays[name] for arrays in named]) for name in named[0]}

    def _restore(self, arrays: Arrays) -> None:
        for i, run in enumerate(self._runs):
            self._runs[i] = with_arrays_of(run, {name: np.asarray(array[i]) for name, array in arrays.items()})

"""All runs of a set-up, side by side: the abstract class, and runs outside of a compiled program."""

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from occupax.algorithms import Algorithm
from occupax.io.codec import Arrays, named_arrays, with_arrays_of
from occupax.policies import Policy
from occupax.samplers import EpisodeError
from occupax.samplers.base import Source
from occupax.training.execution.iteration import (
    FAILURES,
    Row,
    Run,
    conclude,
    first_run,
    iterate,
    recorded,
)
from occupax.training.schedule import Schedule
from occupax.training.setup import Setup


class Executor(ABC):
    """Carries out the iterations of all runs of a set-up, and knows where they are."""

    def __init__(self, setup: Setup, source: Source):
        self._source = source
        self._schedule: Schedule = setup.schedule
        self.count = len(setup.runs)
        self.iteration = 0
        algorithm = setup.algorithms[0]
        self._names: tuple[str, ...] = recorded(
            setup.problem, algorithm, algorithm.init(setup.problem, setup.policies[0])
        )

    @abstractmethod
    def advance(self, count: int) -> Arrays:
        """Carry out `count` iterations of all runs, or none; return what was recorded, [iteration, run]."""

    @abstractmethod
    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""

    @abstractmethod
    def states(self) -> list[Any]:
        """The state of the algorithm of each run."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Everything that is needed to go on, by name, [run, ...]."""

    @final
    def restore(self, arrays: Arrays, iteration: int) -> None:
        """Go back to where `arrays` was taken."""
        if {name: _form(array) for name, array in arrays.items()} != {
            n: _form(a) for n, a in self.arrays().items()
        }:
            raise ValueError(
                "the arrays of the checkpoint are not those of these runs; another version of occupax or another "
                "precision may have made it."
            )
        self._restore(arrays)
        self.iteration = iteration

    @abstractmethod
    def _restore(self, arrays: Arrays) -> None:
        """Put the runs back to where arrays of the right form were taken."""

    @final
    def status(self) -> list[str]:
        """How each run ended."""
        arrays = self.arrays()
        return [
            f"stopped at iteration {iteration}: {FAILURES[failure]}" if failure else "finished"
            for failure, iteration in zip(arrays[".failure"], arrays[".failed_at"], strict=True)
        ]

    @final
    def close(self) -> None:
        """Close the source of trajectories."""
        self._source.close()

    def _table(self, numbers: np.ndarray, steps: np.ndarray) -> Arrays:
        return {name: numbers[..., i] for i, name in enumerate(self._names)} | {"steps": steps}


class EagerExecutor(Executor):
    """Runs whose trajectories are sampled outside of the compiled program, and perhaps far away.

    The algorithm runs as ordinary Python, on batches that answer when they are asked. Runs that may
    draw at the same time have a thread each, which waits for the answers.
    """

    def __init__(self, setup: Setup, source: Source):
        super().__init__(setup, source)
        self._algorithms = [with_array_settings(algorithm) for algorithm, _, _ in setup.runs]
        self._keys = [setup.key(seed) for _, seed, _ in setup.runs]
        self._runs = [
            first_run(setup.problem, algorithm, policy) for algorithm, _, policy in setup.runs
        ]

    def advance(self, count: int) -> Arrays:
        """Carry out `count` iterations of all runs."""
        double = bool(
            jax.config.read("jax_enable_x64")
        )  # which a thread does not take over by itself

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
        table = [
            [np.array([getattr(row, part) for row in rows]) for _, rows in done]
            for part in ("numbers", "steps")
        ]
        return self._table(*(np.stack(columns, 1) for columns in table))

    def _iterate(self, number: int, run: Run, iteration: int) -> tuple[Run, Row]:
        if int(run.failure):
            return run, Row(jnp.full(len(self._names), jnp.nan), jnp.zeros((), jnp.int32))
        key, phase = (
            jax.random.fold_in(self._keys[number], iteration),
            int(self._schedule.phases(iteration, 1)[0]),
        )
        size, judging = self._schedule.sizes[phase], self._schedule.judging[phase]
        draw, when = (
            (lambda policy: self._source.draw(policy, size, key)),
            jnp.asarray(iteration, jnp.int32),
        )
        try:
            return iterate(self._algorithms[number], phase, judging, run, draw, key, when, conclude)
        except EpisodeError as error:
            raise EpisodeError(f"iteration {iteration}: {error}") from error

    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""
        return [run.output for run in self._runs]

    def states(self) -> list[Any]:
        """The state of the algorithm of each run."""
        return [run.state for run in self._runs]

    def arrays(self) -> Arrays:
        """Everything that is needed to go on, by name, [run, ...]."""
        named = [named_arrays(run) for run in self._runs]
        return {name: np.stack([arrays[name] for arrays in named]) for name in named[0]}

    def _restore(self, arrays: Arrays) -> None:
        for i, run in enumerate(self._runs):
            self._runs[i] = with_arrays_of(
                run, {name: np.asarray(array[i]) for name, array in arrays.items()}
            )


def with_array_settings(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm with its numbers as arrays, which a program takes as arguments."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(float)) if eqx.is_array_like(leaf) else leaf,
        algorithm,
    )


class Form:
    """The part of an algorithm that is compiled: algorithms of the same form differ in numbers only."""

    def __init__(self, algorithm: Algorithm[Any]):
        self.kind = type(algorithm)
        self.static = eqx.filter(with_array_settings(algorithm), eqx.is_array, inverse=True)
        self.schedule = Schedule(algorithm)

    def same_as(self, other: "Form") -> bool:
        """Return whether one program can run both algorithms."""
        if self.kind is not other.kind or not eqx.tree_equal(self.static, other.static):
            return False
        return self.schedule.same_as(other.schedule)


def _form(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape, str(array.dtype)

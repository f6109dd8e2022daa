"""Executors of all runs of a set-up: the base class, and the form of a compiled program."""

from abc import ABC, abstractmethod
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from occupax.algorithms import Algorithm
from occupax.io.codec import Arrays
from occupax.policies import Policy
from occupax.samplers.base import Source
from occupax.training.execution.iteration import FAILURES, metric_names
from occupax.training.schedule import Schedule
from occupax.training.setup import Setup

Remaining = Int[np.ndarray, " run"] | None
"""Number of environment steps that each run may still take. None is no limit."""


class Executor(ABC):
    """Runs of a set-up, side by side, and the number of iterations they have completed."""

    def __init__(self, setup: Setup, source: Source):
        self._source = source
        self._schedule: Schedule = setup.schedule
        self.count = len(setup.runs)
        self.iteration = 0
        algorithm = setup.algorithms[0]
        state = algorithm.init(setup.problem, setup.policies[0])
        own_metrics = eqx.filter_eval_shape(algorithm.metrics, state)
        self._names = metric_names(setup.problem, algorithm, own_metrics)

    @abstractmethod
    def advance(self, count: int, remaining: Remaining = None) -> Arrays:
        """Carry out iterations of all runs and return the metrics, [iteration, run].

        Args:
            count: number of iterations.
            remaining: number of environment steps that each run may still take. A run ends with
                the first iteration that uses them up, and the iterations end with the last run.
                Default: no limit.
        """

    @abstractmethod
    def outputs(self) -> list[Policy]:
        """Return the output policy of each run so far."""

    @abstractmethod
    def states(self) -> list[Any]:
        """Return the state of the algorithm of each run."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return all that is needed to resume, by name, [run, ...]."""

    @abstractmethod
    def failures(self) -> Int[np.ndarray, " run"]:
        """Return the index in `FAILURES` of each run, 0 if all its values are finite."""

    @final
    def restore(self, arrays: Arrays, iteration: int) -> None:
        """Restore the runs from the arrays of a checkpoint."""
        if _shapes(arrays) != _shapes(self.arrays()):
            raise ValueError(
                "the arrays of the checkpoint must have the names and shapes of these runs. "
                "Resume with the version of occupax and the precision that wrote the checkpoint."
            )
        self._restore(arrays)
        self.iteration = iteration

    @abstractmethod
    def _restore(self, arrays: Arrays) -> None:
        """Restore the runs from checked arrays."""

    @final
    def status(self) -> list[str]:
        """Return "finished" for each run, or the reason why it was stopped."""
        arrays = self.arrays()
        status: list[str] = []
        for failure, iteration in zip(arrays[".failure"], arrays[".failed_at"], strict=True):
            if failure:
                status.append(f"stopped at iteration {iteration}: {FAILURES[failure]}")
            else:
                status.append("finished")
        return status

    @final
    def close(self) -> None:
        """Close the source of trajectories."""
        self._source.close()

    @final
    def _carried_out(self, columns: Arrays) -> Arrays:
        """Return metrics without the last iterations, in which no run has sampled."""
        has_sampled = columns["steps"].any(1)
        count = int(np.append(0, np.flatnonzero(has_sampled) + 1).max())
        return {name: column[:count] for name, column in columns.items()}

    @final
    def _columns(self, values: np.ndarray, steps: np.ndarray) -> Arrays:
        """Return metrics by name, from values [iteration, run, metric] and steps."""
        columns = {name: values[..., i] for i, name in enumerate(self._names)}
        columns["steps"] = steps
        return columns


class Form:
    """Compiled part of an algorithm. Algorithms of the same form differ in numbers only."""

    def __init__(self, algorithm: Algorithm[Any]):
        self.kind = type(algorithm)
        arrays = with_array_hyperparameters(algorithm)
        self.static = eqx.filter(arrays, eqx.is_array, inverse=True)
        self.schedule = Schedule(algorithm)

    def same_as(self, other: "Form") -> bool:
        """Return whether one program can run both algorithms."""
        if self.kind is not other.kind or not eqx.tree_equal(self.static, other.static):
            return False
        return self.schedule.same_as(other.schedule)


def with_array_hyperparameters(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return an algorithm with numbers as arrays, which are arguments of the compiled program."""

    def convert(leaf: Any) -> Any:
        if not eqx.is_array_like(leaf):
            return leaf
        return jnp.asarray(leaf, jnp.result_type(float))

    return jax.tree.map(convert, algorithm)


def _shapes(arrays: Arrays) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}

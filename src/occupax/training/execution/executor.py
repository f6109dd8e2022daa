"""All runs of a set-up, side by side."""

from abc import ABC, abstractmethod
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from occupax.algorithms import Algorithm
from occupax.policies import Policy
from occupax.samplers.base import Source
from occupax.training.execution.iteration import FAILURES, recorded
from occupax.training.schedule import Schedule
from occupax.training.setup import Setup

Arrays = dict[str, np.ndarray]


class Executor(ABC):
    """Carries out the iterations of all runs of a set-up, and knows where they are."""

    def __init__(self, setup: Setup, source: Source):
        self._source = source
        self._schedule: Schedule = setup.schedule
        self.count = len(setup.runs)
        self.iteration = 0
        self._names: tuple[str, ...] = recorded(
            setup.algorithms[0], setup.algorithms[0].init(setup.problem, setup.policies[0])
        )

    @abstractmethod
    def advance(self, count: int) -> Arrays:
        """Carry out `count` iterations of all runs, or none; return what was recorded, [iteration, run]."""

    @abstractmethod
    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Everything that is needed to go on, by name, [run, ...]."""

    @final
    def restore(self, arrays: Arrays, iteration: int) -> None:
        """Go back to where `arrays` was taken."""
        if {name: _form(array) for name, array in arrays.items()} != {n: _form(a) for n, a in self.arrays().items()}:
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
        """What was recorded, by name."""
        return {name: numbers[..., i] for i, name in enumerate(self._names)} | {"steps": steps}


def with_array_settings(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm with its numbers as arrays, which a program takes as arguments."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(float)) if eqx.is_array_like(leaf) else leaf, algorithm
    )


def same_program(one: Algorithm[Any], other: Algorithm[Any]) -> bool:
    """Whether two algorithms differ in numbers only, so that one program can run both."""
    static = [eqx.filter(with_array_settings(algorithm), eqx.is_array, inverse=True) for algorithm in (one, other)]
    alike = type(one) is type(other) and bool(eqx.tree_equal(*static))
    return alike and Schedule(one).same_as(Schedule(other))


def _form(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape, str(array.dtype)

"""All runs of a set-up inside one compiled program.

Runs are batched in groups of a fixed width, the last one filled up with copies that have stopped
and cost next to nothing, and the groups share the cores of the machine. The compiled program is
therefore the same whatever the number of runs: more seeds neither compile anew nor change a bit of
the earlier ones.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from occupax.algorithms import Algorithm
from occupax.io.codec import named_arrays, with_arrays_of
from occupax.policies import Policy
from occupax.samplers.base import ProgramSource
from occupax.samplers.blocks import AXIS
from occupax.training.execution.executor import Arrays, Executor, with_array_settings
from occupax.training.execution.iteration import Run, first_run
from occupax.training.execution.program import MOST_ITERATIONS, RUNS, Stretch, advance
from occupax.training.setup import Setup

WIDTH = 5


class Group(eqx.Module):
    """One run, or a few of them in one program, whose arrays then have one entry for each."""

    algorithms: Algorithm[Any]
    runs: Run
    keys: Key[Array, "*W"]


class CompiledExecutor(Executor):
    """The runs of a set-up, in groups."""

    def __init__(self, setup: Setup, source: ProgramSource):
        super().__init__(setup, source)
        self._program_source = source
        made = [
            Group(
                with_array_settings(algorithm),
                first_run(setup.problem, algorithm, policy),
                setup.key(seed),
            )
            for algorithm, seed, policy in setup.runs
        ]
        self._mesh = _mesh(jax.local_devices(), -(-self.count // WIDTH))
        self._width = WIDTH if self._mesh is None else WIDTH * self._mesh.shape[RUNS]
        made += [made[-1]] * (-self.count % self._width)
        self._groups = [
            jax.tree.map(_stack, *made[i : i + self._width])
            for i in range(0, len(made), self._width)
        ]
        self._stop_filling()
        self._compiled = False

    def advance(self, count: int) -> Arrays:
        """Carry out `count` iterations of all runs."""
        double = bool(
            jax.config.read("jax_enable_x64")
        )  # which a thread does not take over by itself
        order = np.pad(self._schedule.phases(self.iteration, count), (0, MOST_ITERATIONS - count))

        def go(group: Group) -> tuple[Group, Arrays]:
            with jax.enable_x64(double):
                when = (jnp.asarray(part, jnp.int32) for part in (order, self.iteration, count))
                stretch = Stretch(self._schedule.sizes, self._schedule.judging, *when)
                of_group = group.algorithms, group.runs, group.keys
                runs, rows = advance(self._program_source, *of_group, stretch, self._mesh)
                table = self._table(
                    np.asarray(rows.numbers)[:count], np.asarray(rows.steps)[:count]
                )
            return Group(group.algorithms, runs, group.keys), table

        done: list[tuple[Group, Arrays]] = []
        if not self._compiled:  # by one thread, or every one of them would compile the same program
            done, self._compiled = [go(self._groups[0])], True
        # groups that are spread over all devices go one after the other, or they would wait for
        # each other
        with ThreadPoolExecutor(os.cpu_count() if self._mesh is None else 1) as threads:
            done += threads.map(go, self._groups[len(done) :])
        self._groups = [group for group, _ in done]
        self.iteration += count
        tables = [table for _, table in done]
        return {
            name: np.concatenate([table[name] for table in tables], 1)[:, : self.count]
            for name in tables[0]
        }

    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""
        return self._of_runs([group.runs.output for group in self._groups])

    def states(self) -> list[Any]:
        """The state of the algorithm of each run."""
        return self._of_runs([group.runs.state for group in self._groups])

    def _of_runs(self, of_groups: list[Any]) -> list[Any]:
        """What each run has of something that groups have, one after the other."""
        return [it for group in of_groups for it in _unstack(group, self._width)][: self.count]

    def arrays(self) -> Arrays:
        """Everything that is needed to go on, by name, [run, ...]."""
        named = [named_arrays(group.runs) for group in self._groups]
        return {
            name: np.concatenate([arrays[name] for arrays in named])[: self.count]
            for name in named[0]
        }

    def _restore(self, arrays: Arrays) -> None:
        padding = -self.count % self._width
        filled = {
            name: np.concatenate([array, *[array[-1:]] * padding]) for name, array in arrays.items()
        }
        for i, group in enumerate(self._groups):
            part = {
                name: array[i * self._width : (i + 1) * self._width]
                for name, array in filled.items()
            }
            self._groups[i] = Group(group.algorithms, with_arrays_of(group.runs, part), group.keys)
        self._stop_filling()

    def _stop_filling(self) -> None:
        """Let the copies that fill up the last group draw nothing."""
        last = self._groups[-1]
        is_run = np.arange(self._width) < self._width - -self.count % self._width
        failure = jax.device_put(
            np.where(is_run, np.asarray(last.runs.failure), 1).astype(np.int32)
        )
        self._groups[-1] = eqx.tree_at(lambda it: it.runs.failure, last, failure)


def _mesh(devices: Sequence[Any], groups: int) -> Mesh | None:
    """How devices share the work, if there are several: over the groups of runs and, beyond that, over trajectories."""
    if len(devices) == 1:
        return None
    among_runs = max(n for n in range(1, len(devices) + 1) if len(devices) % n == 0 and n <= groups)
    grid = np.array(devices).reshape(among_runs, -1)
    return Mesh(grid, (RUNS, AXIS))


def _stack(*leaves: Any) -> Any:
    if not eqx.is_array(leaves[0]):
        return leaves[0]
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    return jax.device_put(
        np.stack(leaves)
    )  # jnp.stack and jnp.asarray would compile a program for every shape


def _unstack(tree: Any, width: int) -> list[Any]:
    arrays, rest = eqx.partition(tree, eqx.is_array)
    known = jax.tree.map(np.asarray, arrays)
    return [
        eqx.combine(jax.tree.map(lambda leaf, i=i: jax.device_put(leaf[i]), known), rest)
        for i in range(width)
    ]

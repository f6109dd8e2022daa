"""Executor of runs inside one compiled program: many runs, many iterations.

Runs are batched by vmap in groups of a fixed width, and the groups share the cores of the machine.
Copies that have stopped fill up the last group. The program is therefore the same for every number
of runs, and more seeds neither need another compilation nor change the results of the other seeds.

The number of the iteration is not batched, so that the phase stays a branch. An iteration depends
on the key of the run and the number of the iteration only.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Int, Key

from occupax.algorithms import Algorithm
from occupax.batches import Batch, PartedBatch
from occupax.io.codec import Arrays, named_arrays, with_arrays_of
from occupax.policies import Policy
from occupax.samplers.program import AXIS, NumberedTrajectories, ProgramSource
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

GROUP_WIDTH = 5
"""Number of runs in a group, on each device."""
MAX_ITERATIONS = 1000
"""Largest number of iterations of one call, the length of the buffer for their metrics."""
MAX_CALL_STEPS = 2**30
"""Number of steps of a run that one call can count down."""
LoopCarry = tuple[Int[Array, ""], Any, Int[Array, " W"] | None, IterationMetrics]
"""Number of the iteration in the call, arrays of the runs, steps that remain, and metrics."""
RUNS_AXIS = "runs"
"""Axis of the device mesh over which runs are spread."""


class RunGroup(eqx.Module):
    """Runs of one program. Every array has one entry for each run."""

    algorithms: Algorithm[Any]
    runs: RunState
    keys: Key[Array, "*W"]
    remaining: Int[Array, "*W"] | None = None
    """Number of environment steps that each run may still take. None is no limit."""


class IterationRange(eqx.Module):
    """Iterations of one call: `count` of them, at most `MAX_ITERATIONS`, from number `first` on."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    """Number of trajectories of each phase."""
    is_candidate: tuple[bool, ...] = eqx.field(static=True)
    """Whether the policies of each phase are candidates for output "best"."""
    phases: Int[Array, " most"]
    """Phase of each iteration."""
    first: Int[Array, ""]
    count: Int[Array, ""]


class CompiledExecutor(Executor):
    """Runs of a set-up in groups, each of which is an argument of the same compiled program."""

    def __init__(self, setup: Setup, source: ProgramSource):
        super().__init__(setup, source)
        self._program_source = source
        self._mesh = _make_mesh(jax.local_devices(), -(-self.count // GROUP_WIDTH))
        self._width = GROUP_WIDTH
        if self._mesh is not None:
            self._width *= self._mesh.shape[RUNS_AXIS]
        self._padding = -self.count % self._width
        single: list[RunGroup] = []
        for run in setup.runs:
            algorithm = with_array_hyperparameters(run.algorithm)
            state = initial_run(setup.problem, run.algorithm, run.policy)
            single.append(RunGroup(algorithm, state, setup.key(run.seed)))
        single.extend([single[-1]] * self._padding)
        self._groups: list[RunGroup] = []
        for first in range(0, len(single), self._width):
            self._groups.append(jax.tree.map(_stack, *single[first : first + self._width]))
        self._stop_padding()
        self._is_compiled = False

    def advance(self, count: int, remaining: Remaining = None) -> Arrays:
        """Carry out iterations of all runs and return the metrics, [iteration, run]."""
        phases = self._schedule.phases(self.iteration, count)
        phases = np.pad(phases, (0, MAX_ITERATIONS - count))
        double = bool(jax.config.read("jax_enable_x64"))
        advance_group = partial(self._advance_group, phases, count, double)
        groups = self._limited_groups(remaining)
        advanced: list[tuple[RunGroup, Arrays]] = []
        if not self._is_compiled:  # in one thread, because each thread would compile the program
            advanced.append(advance_group(groups[0]))
            self._is_compiled = True
        threads = 1  # groups that share all devices would wait for each other
        if self._mesh is None:
            threads = os.cpu_count() or 1
        with ThreadPoolExecutor(threads) as pool:
            advanced.extend(pool.map(advance_group, groups[len(advanced) :]))
        advanced_groups, columns = zip(*advanced, strict=True)
        self._groups = list(advanced_groups)
        joined = self._join(columns, axis=1)
        if remaining is not None:
            joined = self._carried_out(joined)
        self.iteration += len(joined["steps"])
        return joined

    def _limited_groups(self, remaining: Remaining) -> list[RunGroup]:
        """Return the groups with the number of steps that their runs may still take."""
        if remaining is None:
            return self._groups
        padded = np.pad(np.clip(remaining, 0, MAX_CALL_STEPS), (0, self._padding))
        limited: list[RunGroup] = []
        for i, group in enumerate(self._groups):
            own = padded[i * self._width : (i + 1) * self._width].astype(np.int32)
            limited.append(replace(group, remaining=jax.device_put(own)))
        return limited

    def _advance_group(
        self, phases: Int[np.ndarray, " most"], count: int, double: bool, group: RunGroup
    ) -> tuple[RunGroup, Arrays]:
        with jax.enable_x64(double):  # threads do not inherit the precision
            iterations = IterationRange(
                self._schedule.sizes,
                self._schedule.is_candidate,
                jnp.asarray(phases, jnp.int32),
                jnp.asarray(self.iteration, jnp.int32),
                jnp.asarray(count, jnp.int32),
            )
            runs, metrics = advance(self._program_source, group, iterations, self._mesh)
            values = np.asarray(metrics.values)[:count]
            steps = np.asarray(metrics.steps)[:count]
        return RunGroup(group.algorithms, runs, group.keys), self._columns(values, steps)

    def _join(self, columns: Sequence[Arrays], axis: int) -> Arrays:
        """Return the arrays of all runs, from those of the groups, without the padding."""
        joined: Arrays = {}
        for name in columns[0]:
            array = np.concatenate([of_group[name] for of_group in columns], axis)
            joined[name] = array.take(range(self.count), axis)
        return joined

    def failures(self) -> Int[np.ndarray, " run"]:
        """Return the index in `FAILURES` of each run, 0 if all its values are finite."""
        failures = [np.asarray(group.runs.failure) for group in self._groups]
        return np.concatenate(failures)[: self.count]

    def outputs(self) -> list[Policy]:
        """Return the output policy of each run so far."""
        return self._split([group.runs.output for group in self._groups])

    def states(self) -> list[Any]:
        """Return the state of the algorithm of each run."""
        return self._split([group.runs.state for group in self._groups])

    def _split(self, of_groups: list[Any]) -> list[Any]:
        """Return the trees of all runs, from the batched trees of the groups."""
        trees: list[Any] = []
        for of_group in of_groups:
            trees.extend(_unstack(of_group, self._width))
        return trees[: self.count]

    def arrays(self) -> Arrays:
        """Return all that is needed to resume, by name, [run, ...]."""
        return self._join([named_arrays(group.runs) for group in self._groups], axis=0)

    def _restore(self, arrays: Arrays) -> None:
        for i, group in enumerate(self._groups):
            runs = np.arange(i * self._width, (i + 1) * self._width)
            runs = np.minimum(runs, self.count - 1)  # the last run fills up the last group
            of_group = {name: array[runs] for name, array in arrays.items()}
            restored = with_arrays_of(group.runs, of_group)
            self._groups[i] = RunGroup(group.algorithms, restored, group.keys)
        self._stop_padding()

    def _stop_padding(self) -> None:
        """Mark the copies that fill up the last group as failed, so that they sample nothing."""
        last = self._groups[-1]
        is_run = np.arange(self._width) < self._width - self._padding
        failure = np.where(is_run, np.asarray(last.runs.failure), 1).astype(np.int32)
        self._groups[-1] = eqx.tree_at(
            lambda group: group.runs.failure, last, jax.device_put(failure)
        )


@eqx.filter_jit
def advance(
    source: ProgramSource, group: RunGroup, iterations: IterationRange, mesh: Mesh | None
) -> tuple[RunState, IterationMetrics]:
    """Return the runs of a group after a range of iterations.

    Args:
        source: source of the batches.
        group: runs of the program.
        iterations: iterations to carry out.
        mesh: mesh of devices, if there are several. Runs are spread over `RUNS_AXIS`, the
            trajectories of each run over `AXIS`.

    Returns:
        The runs, and metrics [iteration, run, ...] with `iterations.count` filled entries.
    """
    if mesh is None:
        return _advance(source, group, iterations, 1)
    arrays, static = eqx.partition(group, eqx.is_array)

    def advance_part(arrays: Any, iterations: IterationRange) -> tuple[Any, IterationMetrics]:
        part = eqx.combine(arrays, static)
        runs, metrics = _advance(source, part, iterations, mesh.shape[AXIS])
        return eqx.filter(runs, eqx.is_array), metrics

    advance_parts = jax.shard_map(
        advance_part,
        mesh=mesh,
        in_specs=(P(RUNS_AXIS), P()),
        out_specs=(P(RUNS_AXIS), P(None, RUNS_AXIS)),
        check_vma=False,  # devices that share a run compute the same from sums over all of them
    )
    run_arrays, metrics = advance_parts(arrays, iterations)
    return eqx.combine(run_arrays, static.runs), metrics


def _advance(
    source: ProgramSource, group: RunGroup, iterations: IterationRange, devices: int
) -> tuple[RunState, IterationMetrics]:
    """Return the runs of a group, or of its part on one device, after a range of iterations."""
    numbers = iterations.first + jnp.arange(MAX_ITERATIONS)
    fold_in_numbers = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (None, 0))
    batch_keys = fold_in_numbers(group.keys, numbers)
    hyperparameters, algorithm_static = eqx.partition(group.algorithms, eqx.is_array)
    first_arrays, run_static = eqx.partition(group.runs, eqx.is_array)

    def iterate_run(
        phase: int,
        i: Int[Array, ""],
        hyperparameters: Any,
        arrays: Any,
        key: Key[Array, ""],
        remaining: Int[Array, ""] | None,
    ) -> tuple[Any, IterationMetrics]:
        in_budget = remaining is None or remaining > 0
        algorithm = eqx.combine(hyperparameters, algorithm_static)
        run = eqx.combine(arrays, run_static)
        size = iterations.sizes[phase]
        draw = partial(_draw, source, size, key, (run.failure == 0) & in_budget, devices)
        update = update_run(algorithm, phase, run, draw, key)
        is_candidate = iterations.is_candidate[phase]
        number = iterations.first + i
        run, metrics = finish_iteration(
            source.problem, algorithm, is_candidate, run, update, key, number, in_budget
        )
        return eqx.filter(run, eqx.is_array), metrics

    def iterate_runs(
        phase: int, arrays: Any, i: Int[Array, ""], remaining: Int[Array, " W"] | None
    ) -> tuple[Any, IterationMetrics]:
        iterate_each = jax.vmap(partial(iterate_run, phase, i))
        return iterate_each(hyperparameters, arrays, batch_keys[i], remaining)

    branches = [partial(iterate_runs, phase) for phase in range(len(iterations.sizes))]

    @partial(jax.jit, inline=True)  # one trace serves the shapes and the loop
    def iterate(
        arrays: Any, i: Int[Array, ""], remaining: Int[Array, " W"] | None
    ) -> tuple[Any, IterationMetrics]:
        if len(branches) == 1:
            return branches[0](arrays, i, remaining)
        return jax.lax.switch(iterations.phases[i], branches, arrays, i, remaining)

    def goes_on(carry: LoopCarry) -> Bool[Array, ""]:
        i, _, remaining, _ = carry
        if remaining is None:
            return i < iterations.count
        return (i < iterations.count) & jnp.any(remaining > 0)

    def loop_body(carry: LoopCarry) -> LoopCarry:
        i, arrays, remaining, table = carry
        arrays, metrics = iterate(arrays, i, remaining)
        if remaining is not None:
            remaining = jnp.where(arrays.failure > 0, 0, remaining - metrics.steps)
        table = jax.tree.map(lambda column, entry: column.at[i].set(entry), table, metrics)
        return i + 1, arrays, remaining, table

    first = jnp.zeros((), jnp.int32)
    shapes = jax.eval_shape(iterate, first_arrays, first, group.remaining)[1]
    table = jax.tree.map(lambda leaf: jnp.zeros((MAX_ITERATIONS, *leaf.shape), leaf.dtype), shapes)
    start = (first, first_arrays, group.remaining, table)
    _, arrays, _, table = jax.lax.while_loop(goes_on, loop_body, start)
    return eqx.combine(arrays, run_static), table


def _draw(
    source: ProgramSource,
    size: int,
    key: Key[Array, ""],
    is_active: Bool[Array, ""],
    devices: int,
    policy: Policy,
) -> Batch:
    """Return the batch of an iteration, or its part on one device, empty if inactive."""
    if devices == 1:
        return source.draw(policy, size, key, is_active)
    numbers = NumberedTrajectories(source, policy, key, 0, jnp.where(is_active, size, 0), size)
    return PartedBatch(source.problem, numbers.on_devices(devices))


def _make_mesh(devices: Sequence[Any], groups: int) -> Mesh | None:
    """Return a mesh of several devices, over groups of runs first and then over trajectories."""
    if len(devices) == 1:
        return None
    run_devices = min(groups, len(devices))
    while len(devices) % run_devices:
        run_devices -= 1
    grid = np.array(devices).reshape(run_devices, -1)
    return Mesh(grid, (RUNS_AXIS, AXIS))


def _stack(*leaves: Any) -> Any:
    if not eqx.is_array(leaves[0]):
        return leaves[0]
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    # jnp.stack and jnp.asarray would compile a program for every shape
    return jax.device_put(np.stack(leaves))


def _unstack(tree: Any, width: int) -> list[Any]:
    arrays, static = eqx.partition(tree, eqx.is_array)
    numpy_arrays = jax.tree.map(np.asarray, arrays)

    def entry(i: int, leaf: np.ndarray) -> Array:
        return jax.device_put(leaf[i])

    trees: list[Any] = []
    for i in range(width):
        entries = jax.tree.map(partial(entry, i), numpy_arrays)
        trees.append(eqx.combine(entries, static))
    return trees

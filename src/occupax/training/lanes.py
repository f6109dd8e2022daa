"""All runs of a set-up, side by side.

Runs are batched in groups of a fixed width, the last one filled up with copies that have stopped and cost next to
nothing, and the groups share the cores of the machine. The compiled program is therefore the same whatever the number
of runs: more seeds neither compile anew nor change a bit of the earlier ones.
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
from occupax.policies import Policy
from occupax.samplers import make_sampler
from occupax.samplers.sharded import AXIS
from occupax.training import program
from occupax.training.setup import Setup

WIDTH = 5


class Group(eqx.Module):
    """One run, or a few of them in one program, whose arrays then have one entry for each."""

    algorithms: Algorithm[Any]
    lanes: program.Lane
    keys: Key[Array, "*W"]


class Lanes:
    """The runs of a set-up, and where they are."""

    def __init__(self, setup: Setup):
        """Put every run before its first iteration."""
        self._sampler = make_sampler(setup.problem, setup.policies[0], setup.engine)
        self.count = len(setup.runs)
        self.iteration = 0
        made = [
            Group(with_arrays(algorithm), program.first_lane(setup.problem, algorithm, policy), setup.key(seed))
            for algorithm, seed, policy in setup.runs
        ]
        self._mesh = _mesh(jax.local_devices(), -(-self.count // WIDTH))
        self._width = WIDTH if self._mesh is None else WIDTH * self._mesh.shape[program.LANES]
        made += [made[-1]] * (-self.count % self._width)
        self._groups = [jax.tree.map(_stack, *made[i : i + self._width]) for i in range(0, len(made), self._width)]
        self._stop_filling()
        self._compiled = False

    def advance(self, count: int) -> dict[str, np.ndarray]:
        """Run `count` iterations of all of them; return what was recorded, [iteration, run]."""
        double = bool(jax.config.read("jax_enable_x64"))  # which a thread does not take over by itself

        def run(group: Group) -> tuple[Group, dict[str, np.ndarray]]:
            with jax.enable_x64(double):
                first, many = jnp.asarray(self.iteration, jnp.int32), jnp.asarray(count, jnp.int32)
                runs = group.algorithms, group.lanes, group.keys
                lanes, rows = program.advance(self._sampler, *runs, first, many, self._mesh)
                numbers, steps = np.asarray(rows.numbers)[:count], np.asarray(rows.steps)[:count]
            table = {name: numbers[..., i] for i, name in enumerate(program.recorded(group.algorithms))}
            return Group(group.algorithms, lanes, group.keys), table | {"steps": steps}

        done: list[tuple[Group, dict[str, np.ndarray]]] = []
        if not self._compiled:  # by one thread, or every one of them would compile the same program
            done, self._compiled = [run(self._groups[0])], True
        # groups that are spread over all devices go one after the other, or they would wait for each other
        with ThreadPoolExecutor(os.cpu_count() if self._mesh is None else 1) as threads:
            done += threads.map(run, self._groups[len(done) :])
        self._groups = [group for group, _ in done]
        self.iteration += count
        tables = [table for _, table in done]
        return {name: np.concatenate([table[name] for table in tables], 1)[:, : self.count] for name in tables[0]}

    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""
        made = [_unstack(program.output(group.lanes), self._width) for group in self._groups]
        return [policy for group in made for policy in group][: self.count]

    def status(self) -> list[str]:
        """How each run ended."""
        return status(self.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that is needed to go on, by name, [run, ...]."""
        leaves = [named(group.lanes) for group in self._groups]
        return {name: np.concatenate([np.asarray(group[name]) for group in leaves])[: self.count] for name in leaves[0]}

    def restore(self, arrays: dict[str, np.ndarray], iteration: int) -> None:
        """Go back to where `arrays` was taken."""
        refuse_other_arrays(arrays, self.arrays())
        padding = -self.count % self._width
        filled = {name: np.concatenate([array, *[array[-1:]] * padding]) for name, array in arrays.items()}
        for i, group in enumerate(self._groups):
            part = {name: array[i * self._width : (i + 1) * self._width] for name, array in filled.items()}
            self._groups[i] = Group(group.algorithms, with_named(group.lanes, part), group.keys)
        self._stop_filling()
        self.iteration = iteration

    def close(self) -> None:
        """Nobody else is at work here."""

    def _stop_filling(self) -> None:
        """Let the copies that fill up the last group draw nothing."""
        last = self._groups[-1]
        is_run = np.arange(self._width) < self._width - -self.count % self._width
        failure = jnp.asarray(np.where(is_run, np.asarray(last.lanes.failure), 1), jnp.int32)
        self._groups[-1] = eqx.tree_at(lambda it: it.lanes.failure, last, failure)


def _mesh(devices: Sequence[Any], groups: int) -> Mesh | None:
    """How devices share the work, if there are several: over the groups of runs and, beyond that, over trajectories."""
    if len(devices) == 1:
        return None
    among_runs = max(n for n in range(1, len(devices) + 1) if len(devices) % n == 0 and n <= groups)
    grid = np.array(devices).reshape(among_runs, -1)
    return Mesh(grid, (program.LANES, AXIS))


def status(arrays: dict[str, np.ndarray]) -> list[str]:
    """How each run ended, from the arrays of its lane."""
    return [
        f"stopped at iteration {iteration}: {program.FAILURES[failure]}" if failure else "finished"
        for failure, iteration in zip(arrays[".failure"], arrays[".failed_at"], strict=True)
    ]


def refuse_other_arrays(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Refuse the arrays of other lanes."""
    if {name: _form(array) for name, array in arrays.items()} != {name: _form(a) for name, a in expected.items()}:
        raise ValueError(
            "the arrays of the checkpoint are not those of these runs; another version of occupax or another "
            "precision may have made it."
        )


def same_program(one: Algorithm[Any], other: Algorithm[Any]) -> bool:
    """Whether two algorithms differ in numbers only, so that one program can run both."""
    static = [eqx.filter(with_arrays(algorithm), eqx.is_array, inverse=True) for algorithm in (one, other)]
    return type(one) is type(other) and bool(eqx.tree_equal(*static))


def with_arrays(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm with its numbers as arrays, which a program takes as arguments."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(float)) if eqx.is_array_like(leaf) else leaf, algorithm
    )


def _stack(*leaves: Any) -> Any:
    if not eqx.is_array(leaves[0]):
        return leaves[0]
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    return jnp.asarray(np.stack(leaves))  # JAX would compile a program for every shape


def _unstack(tree: Any, width: int) -> list[Any]:
    arrays, rest = eqx.partition(tree, eqx.is_array)
    known = jax.tree.map(np.asarray, arrays)
    return [eqx.combine(jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), known), rest) for i in range(width)]


def named(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by where they stand in it."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def with_named(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The tree with arrays in the places of their names."""

    def replace(path: Any, leaf: Any) -> Any:
        return jnp.asarray(arrays[jax.tree_util.keystr(path)]) if eqx.is_array(leaf) else leaf

    return jax.tree_util.tree_map_with_path(replace, tree)


def _form(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape, str(array.dtype)

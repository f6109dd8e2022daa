"""The part of training that is compiled: many runs, many iterations, one program.

Runs are batched by vmap; the number of the iteration is not, so that the choice between phases
stays a choice. What an iteration does depends on the key of the run and the number of the iteration
alone, not on where a call of the program begins or ends, nor on the other runs.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, Key

from occupax.algorithms import Algorithm
from occupax.batches import Batch, PartedBatch
from occupax.policies import Policy
from occupax.samplers.base import ProgramSource
from occupax.samplers.blocks import AXIS, Numbered
from occupax.training.execution.iteration import Row, Run, iterate

RUNS = "runs"
"""The axis of the mesh of devices over which runs are spread."""

MOST_ITERATIONS = 1000
"""The most iterations of one call: the space made for their records."""


class Stretch(eqx.Module):
    """The iterations of one call: `count` of them, at most `MOST_ITERATIONS`, from number `first` on."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    """How many trajectories each phase draws."""
    judging: tuple[bool, ...] = eqx.field(static=True)
    """See `Schedule.judging`."""
    phases: Int[Array, " most"]
    """The phase of each iteration."""
    first: Int[Array, ""]
    count: Int[Array, ""]


@eqx.filter_jit
def advance(
    source: ProgramSource,
    algorithms: Algorithm[Any],
    runs: Run,
    keys: Key[Array, " R"],
    stretch: Stretch,
    mesh: Any,
) -> tuple[Run, Row]:
    """Carry out the iterations of a stretch.

    Every array of `algorithms` and `runs` has one entry for each run. A mesh of devices, if there
    is one, has the axes `RUNS`, over which the runs are spread, and `AXIS`, over which the
    trajectories of each are.

    Returns:
        The runs, and what is recorded, [iteration, run, ...], of which the first entries are
        filled.
    """
    if mesh is None:
        return _advance(source, algorithms, runs, keys, stretch, 1)
    moving, fixed = eqx.partition((algorithms, runs), eqx.is_array)

    def on_device(moving: Any, keys: Key[Array, " R"], stretch: Stretch) -> tuple[Any, Row]:
        algorithms, runs = eqx.combine(moving, fixed)
        runs, rows = _advance(source, algorithms, runs, keys, stretch, mesh.shape[AXIS])
        return eqx.filter(runs, eqx.is_array), rows

    everywhere = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(P(RUNS), P(RUNS), P()),
        out_specs=(P(RUNS), P(None, RUNS)),
        check_vma=False,  # devices that share a run compute the same from sums over all of them
    )
    moving, rows = everywhere(moving, keys, stretch)
    return eqx.combine(moving, fixed[1]), rows


def _advance(
    source: ProgramSource,
    algorithms: Algorithm[Any],
    runs: Run,
    keys: Key[Array, " R"],
    stretch: Stretch,
    devices: int,
) -> tuple[Run, Row]:
    iterations = stretch.first + jnp.arange(MOST_ITERATIONS)
    batch_keys = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (None, 0))(keys, iterations)
    moving, fixed = eqx.partition(runs, eqx.is_array)
    numbers, settings = eqx.partition(algorithms, eqx.is_array)

    def one_run(
        phase: int, i: Int[Array, ""], numbers: Any, moving: Any, key: Key[Array, ""]
    ) -> tuple[Any, Row]:
        algorithm, run = eqx.combine(numbers, settings), eqx.combine(moving, fixed)

        def draw(policy: Policy) -> Batch:  # a run that failed draws nothing
            n, goes_on = stretch.sizes[phase], run.failure == 0
            if devices == 1:
                return source.draw(policy, n, key, goes_on)
            numbers = Numbered(source, policy, key, 0, jnp.where(goes_on, n, 0), n)
            return PartedBatch(source.problem, numbers.spread(devices))

        run, row = iterate(
            algorithm, phase, stretch.judging[phase], run, draw, key, stretch.first + i
        )
        return eqx.filter(run, eqx.is_array), row

    def iteration_of(phase: int) -> Any:
        def all_runs(moving: Any, i: Int[Array, ""]) -> tuple[Any, Row]:
            return jax.vmap(lambda *of_run: one_run(phase, i, *of_run))(
                numbers, moving, batch_keys[i]
            )

        return all_runs

    branches = [iteration_of(phase) for phase in range(len(stretch.sizes))]

    @partial(jax.jit, inline=True)  # traced once, for the shapes and for the loop
    def carry_out(moving: Any, i: Int[Array, ""]) -> tuple[Any, Row]:
        if len(branches) == 1:
            return branches[0](moving, i)
        return jax.lax.switch(stretch.phases[i], branches, moving, i)

    def body(i: Int[Array, ""], carry: tuple[Any, Row]) -> tuple[Any, Row]:
        moving, table = carry
        moving, row = carry_out(moving, i)
        return moving, jax.tree.map(lambda column, entry: column.at[i].set(entry), table, row)

    shapes = jax.eval_shape(carry_out, moving, 0)[1]
    table = jax.tree.map(lambda leaf: jnp.zeros((MOST_ITERATIONS, *leaf.shape), leaf.dtype), shapes)
    moving, table = jax.lax.fori_loop(0, stretch.count, body, (moving, table))
    return eqx.combine(moving, fixed), table

"""The part of training that is compiled: many runs, many iterations, one program.

A lane is one run: one seed with one set of hyper-parameters. Lanes are batched by vmap; the iteration counter is not,
so that the choice between a snapshot and a refinement stays a choice. What an iteration does depends on the lane's key
and the number of the iteration alone, not on where a call of the program begins or ends, nor on the other lanes.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int, Key

from occupax.algorithms import Algorithm, MaxEnt
from occupax.batch import Batch, Statistics
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers import Sampler, draw, draw_sharded
from occupax.samplers.sharded import AXIS
from occupax.steps import global_norm

LANES = "lanes"

MOST_ITERATIONS = 1000
"""Of one call: the room made for their records."""

FAILURES = (
    "",
    "the gradient estimate is not finite",
    "the parameters are not finite",
    "the estimate of the occupancy or of its quasi-reward is not finite",
)

NO_TRAJECTORY = np.uint32(2**32 - 1)
"""A number that no trajectory has: its stream of random numbers is free for the choice of the output."""


class Row(eqx.Module):
    """What is recorded of one iteration, packed: each array of a loop costs time at every turn."""

    numbers: Float[Array, " *lanes M"]
    """In the order of `recorded`."""
    steps: Int[Array, " *lanes"]


def recorded(algorithm: Algorithm[Any]) -> tuple[str, ...]:
    """The names of the numbers of a row; docs/records.md explains each."""
    names = (
        "utility",
        "return",
        "discounted_return",
        "episode_length",
        "grad_norm",
        "clipped",
        "largest_weight",
        "effective_sample_size",
        "negative_occupancy",
    )
    return (*names, "mixture_utility") if isinstance(algorithm, MaxEnt) else names


class Lane(eqx.Module):
    """All that one run needs to go on."""

    state: Any
    """The algorithm's own."""
    kept: Policy | None
    """The iterate that would be returned, if that is not the last one."""
    kept_utility: Float[Array, ""]
    """Its estimated utility, for output "best"."""
    failure: Int[Array, ""]
    """Index into `FAILURES`: 0 as long as all is well."""
    failed_at: Int[Array, ""]
    """The iteration that could not be finished, if there is one."""


def first_lane(problem: Problem, algorithm: Algorithm[Any], policy: Policy) -> Lane:
    """A run before its first iteration."""
    state = algorithm.init(policy, problem.size)
    return Lane(
        state=state,
        kept=None if algorithm.output == "last" else policy,
        kept_utility=jnp.asarray(-jnp.inf, state.occupancy.dtype),
        failure=jnp.zeros((), jnp.int32),
        failed_at=jnp.zeros((), jnp.int32),
    )


def output(lane: Lane) -> Policy:
    """The policy a run returns."""
    return lane.state.policy if lane.kept is None else lane.kept


@eqx.filter_jit
def advance(
    sampler: Sampler,
    algorithms: Algorithm[Any],
    lanes: Lane,
    keys: Key[Array, " L"],
    first: Int[Array, ""],
    count: Int[Array, ""],
    mesh: Mesh | None = None,
) -> tuple[Lane, Row]:
    """Run `count` iterations, at most `MOST_ITERATIONS`, from number `first` on.

    Every array of `algorithms` and `lanes` has one entry for each lane. A mesh of devices has the axes `LANES`, over
    which the lanes are spread, and `AXIS`, over which the trajectories of each are.

    Returns:
        The lanes, and what is recorded, [iteration, lane, ...], of which the first `count` entries are filled.
    """
    if mesh is None:
        return _advance(sampler, algorithms, lanes, keys, first, count, devices=1)
    moving, fixed = eqx.partition(lanes, eqx.is_array)
    numbers, settings = eqx.partition(algorithms, eqx.is_array)

    def on_device(numbers: Any, moving: Any, keys: Key[Array, " L"], *when: Int[Array, ""]) -> tuple[Any, Row]:
        its = eqx.combine(numbers, settings), eqx.combine(moving, fixed)
        lanes, rows = _advance(sampler, *its, keys, *when, devices=mesh.shape[AXIS])
        return eqx.filter(lanes, eqx.is_array), rows

    everywhere = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(P(LANES), P(LANES), P(LANES), P(), P()),
        out_specs=(P(LANES), P(None, LANES)),
        check_vma=False,  # devices that share a lane compute the same from sums over all of them
    )
    moving, rows = everywhere(numbers, moving, keys, first, count)
    return eqx.combine(moving, fixed), rows


def _advance(
    sampler: Sampler,
    algorithms: Algorithm[Any],
    lanes: Lane,
    keys: Key[Array, " L"],
    first: Int[Array, ""],
    count: Int[Array, ""],
    devices: int,
) -> tuple[Lane, Row]:
    batch_keys = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (None, 0))(keys, first + jnp.arange(MOST_ITERATIONS))
    moving, fixed = eqx.partition(lanes, eqx.is_array)
    numbers, settings = eqx.partition(algorithms, eqx.is_array)

    def all_lanes(start: bool, moving: Any, i: Int[Array, ""]) -> tuple[Any, Row]:
        def one_lane(numbers: Any, moving: Any, key: Key[Array, ""]) -> tuple[Any, Row]:
            algorithm, lane = eqx.combine(numbers, settings), eqx.combine(moving, fixed)
            lane, row = _iterate(sampler, algorithm, start, lane, key, first + i, devices)
            return eqx.filter(lane, eqx.is_array), row

        return jax.vmap(one_lane)(numbers, moving, batch_keys[i])

    def iterate(moving: Any, i: Int[Array, ""]) -> tuple[Any, Row]:
        if len(algorithms.cycle) == 1:
            return all_lanes(True, moving, i)
        return jax.lax.cond(
            (first + i) % len(algorithms.cycle) == 0,
            lambda moving: all_lanes(True, moving, i),
            lambda moving: all_lanes(False, moving, i),
            moving,
        )

    def body(i: Int[Array, ""], carry: tuple[Any, Row]) -> tuple[Any, Row]:
        moving, table = carry
        moving, row = iterate(moving, i)
        return moving, jax.tree.map(lambda column, entry: column.at[i].set(entry), table, row)

    shapes = jax.eval_shape(iterate, moving, first)[1]
    table = jax.tree.map(lambda leaf: jnp.zeros((MOST_ITERATIONS, *leaf.shape), leaf.dtype), shapes)
    moving, table = jax.lax.fori_loop(0, count, body, (moving, table))
    return eqx.combine(moving, fixed), table


def _iterate(
    sampler: Sampler,
    algorithm: Algorithm[Any],
    start: bool,
    lane: Lane,
    key: Key[Array, ""],
    iteration: Int[Array, ""],
    devices: int,
) -> tuple[Lane, Row]:
    """One iteration of one lane; a lane that failed draws nothing and stays at its last good iterate."""
    what = sampler, lane.state.policy, algorithm.cycle[0 if start else 1], key, lane.failure == 0
    batch = draw(*what) if devices == 1 else draw_sharded(*what, devices)
    return update(sampler.problem, algorithm, start, lane, batch, key, iteration)


def update(
    problem: Problem,
    algorithm: Algorithm[Any],
    start: bool,
    lane: Lane,
    batch: Batch,
    key: Key[Array, ""],
    iteration: Int[Array, ""],
) -> tuple[Lane, Row]:
    """What the batch of an iteration makes of a lane, and what is recorded of it."""
    acting = lane.state.policy
    state = (algorithm.start if start else algorithm.refine)(lane.state, batch)
    utility = problem.estimated_utility(state.occupancy)
    kept, kept_utility = _keep(algorithm.output, start, lane, utility, key, iteration)
    failed_before = lane.failure > 0
    failure = jnp.where(failed_before, lane.failure, _failure(state))
    failed_at = jnp.where(failed_before, lane.failed_at, iteration)
    reference = acting if start else algorithm.reference(lane.state)
    row = _row(problem, algorithm, state, utility, batch.statistics(reference))
    row = Row(jnp.where(failure > 0, jnp.nan, row.numbers), jnp.where(failure > 0, 0, row.steps))
    frozen = Lane(lane.state, lane.kept, lane.kept_utility, failure, failed_at)
    return _where(failure > 0, frozen, Lane(state, kept, kept_utility, failure, failed_at)), row


def _keep(
    output: str, start: bool, lane: Lane, utility: Float[Array, ""], key: Key[Array, ""], iteration: Int[Array, ""]
) -> tuple[Policy | None, Float[Array, ""]]:
    """The policy to return, if it is not the last, and its estimated utility: the one kept so far, or that which acted.

    For "uniform", the k-th of k policies takes the place of the one that is kept with probability 1/k.
    """
    if lane.kept is None or (output == "best" and not start):
        return lane.kept, lane.kept_utility
    if output == "uniform":
        chosen = jax.random.randint(jax.random.fold_in(key, NO_TRAJECTORY), (), 0, iteration + 1) == 0
    else:
        chosen = utility > lane.kept_utility
    return _where(chosen, lane.state.policy, lane.kept), jnp.where(chosen, utility, lane.kept_utility)


def _row(
    problem: Problem, algorithm: Algorithm[Any], state: Any, utility: Float[Array, ""], statistics: Statistics
) -> Row:
    numbers = {
        "utility": utility,
        "return": statistics.undiscounted_return,
        "discounted_return": statistics.discounted_return,
        "episode_length": statistics.episode_length,
        "grad_norm": global_norm(state.gradient),
        "clipped": state.memory.clipped,
        "largest_weight": statistics.largest_weight,
        "effective_sample_size": statistics.effective_sample_size,
        "negative_occupancy": jnp.mean(state.occupancy < 0, dtype=utility.dtype),
    }
    if isinstance(algorithm, MaxEnt):
        numbers["mixture_utility"] = problem.estimated_utility(state.mixture)
    packed = jnp.stack([numbers[name].astype(utility.dtype) for name in recorded(algorithm)])
    return Row(packed, statistics.steps)


def _failure(state: Any) -> Int[Array, ""]:
    """Index into `FAILURES`: of the gradient, the parameters or anything else in the state."""
    parts = [[jnp.ravel(leaf) for leaf in _floats(tree)] for tree in (state.gradient, state.policy, state)]
    wrong = ~jnp.isfinite(jnp.concatenate([leaf for part in parts for leaf in part]))
    ends = np.cumsum([sum(leaf.size for leaf in part) for part in parts])
    place = jnp.argmax(wrong)  # the first, or 0 if there is none
    return jnp.where(wrong[place], 1 + (place >= ends[0]) + (place >= ends[1]), 0).astype(jnp.int32)


def _floats(tree: Any) -> list[Array]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))


def _where(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)

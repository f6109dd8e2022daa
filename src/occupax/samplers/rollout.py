"""Sampling in JAX, inside jit and vmap: episodes are simulated in parallel until all have ended."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, Key, Num, Shaped

from occupax.batches.sampled import SampledBatch
from occupax.envs.actions import Kind
from occupax.envs.base import Environment
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.errors import check_integer, check_key
from occupax.policies import Policy, check_policy_fits
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.samplers.base import Sampler
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.fused_keys import fused, unfused
from occupax.samplers.program import Number, ProgramSource
from occupax.trajectories import Trajectories

STEPS_PER_FILL = 16
"""Number of steps after the end that are written at once."""


def sample(problem: ProblemSource, policy: Policy, n: int, key: Key[Array, ""]) -> Trajectories:
    """Draw trajectories under a policy.

    Trajectory i depends on (key, i) alone, so a smaller batch is the beginning of a larger one.

    Args:
        problem: the problem to sample: a problem, an environment or its name.
        policy: the behaviour policy.
        n: the number of trajectories.
        key: the random key.

    Returns:
        The trajectories, with the horizon of the problem.

    Raises:
        ValueError: if the problem has no horizon, or the policy does not fit its environment.
    """
    problem = as_problem(problem)
    n = check_integer("n", n)
    check_key(key)
    horizon = problem.sampling_horizon()
    check_policy_fits(policy, problem.env)
    if isinstance(problem.env, GymnasiumEnv):
        with closing(EpisodeRunner(problem.env)) as runner:
            return runner.draw(policy, key, 0, n, n, horizon)
    return trajectories(problem, policy, jnp.arange(n), key)


@eqx.filter_jit
def trajectories(
    problem: Problem, policy: Policy, numbers: Int[Array, " n"], key: Key[Array, ""]
) -> Trajectories:
    """Draw the trajectories of a key that have these numbers."""
    exists = jnp.ones(numbers.shape, bool)
    select = eqx.Partial(_select_actions, policy)
    return rollout(problem, policy.action_space, select, numbers, exists, key)


@dataclass(frozen=True)
class Jax(Sampler):
    """Sampling in JAX inside the compiled program, for any JAX environment, policy and device."""

    def open(self, problem: Problem, policy: Policy) -> "JaxSource":
        """Open a source. Nothing is started."""
        return JaxSource(problem)

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Return the name of the random numbers of `jax.random`."""
        return "jax"


class JaxSource(ProgramSource):
    """A source that samples in JAX."""

    problem: Problem

    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> SampledBatch:
        """Draw trajectories number `first` to `first + n`. Empty ones from number `stop` on."""
        numbers = first + jnp.arange(n)
        select = eqx.Partial(_select_actions, policy)
        exists = numbers < stop
        sampled = rollout(self.problem, policy.action_space, select, numbers, exists, key)
        return SampledBatch(self.problem, sampled, policy)


class StepKeys(NamedTuple):
    """Random keys of a step, with the trajectory numbers and the time that determine them."""

    live: Bool[Array, " n"]
    key: Key[Array, ""]
    """Key of the run."""
    numbers: Int[Array, " n"]
    keys: Key[Array, " n"]
    """Keys of the actions, derived from the key of the run, the trajectory and t."""
    t: Int[Array, ""]


Actions = tuple[Num[Array, "n *k"], Num[Array, "n *k"], Float[Array, " n"]]
"""Samples of the policy, the actions that they stand for, and their log-probabilities. Values are
arbitrary where not `live`."""
SelectActions = Callable[[Any, StepKeys], Actions]
"""Function of the observations of parallel episodes; a pytree whose arrays may be batched."""


class ObservationBuffer(NamedTuple):
    """Functions that allocate, write and fill the observation buffer [R, n, H, ...]."""

    empty: Callable[[jax.ShapeDtypeStruct, Bool[Array, "R n"]], Array]
    """Allocates a buffer. The second argument differs for every batch."""
    write: Callable[[Array, Array, Bool[Array, "R n"], Int[Array, ""]], Array]
    """Writes the observations at a time, at least those of live episodes."""
    fill: Callable[[Array, Array, Int[Array, ""]], Array] | None = None
    """Writes the final observations from a time on. Without it, steps that are not live have
    arbitrary values."""


def _select_actions(policy: Policy, observations: Any, step_keys: StepKeys) -> Actions:
    return jax.vmap(policy.draw_with_action)(observations, step_keys.keys)


def rollout(
    problem: Problem,
    action_space: Kind,
    select: SelectActions,
    numbers: Int[Array, " n"],
    exists: Bool[Array, " n"],
    key: Key[Array, ""],
    buffer: ObservationBuffer | None = None,
) -> Trajectories:
    """Simulate the trajectories of a key that have these numbers.

    A trajectory depends on (key, number) and `select` alone. Under vmap all runs share one loop,
    which ends with the last episode of any run.

    Args:
        problem: the problem.
        action_space: the action space of the behaviour policy.
        select: draws the actions.
        numbers: the number of each trajectory.
        exists: whether each trajectory takes any step.
        key: the random key of the run.
        buffer: how observations are stored; by default as arrays of JAX.
    """
    default = ObservationBuffer(_zeros, _write_step, _fill_after_end)
    chosen = buffer or default
    arrays, static = eqx.partition((problem, select), eqx.is_array)

    def simulate_runs(buffer: ObservationBuffer, problem: Any, select: Any, *runs: Any) -> Any:
        problem, select = eqx.combine((problem, select), static)
        return _simulate(problem, select, buffer, *runs)

    def simulate_run(buffer: ObservationBuffer, problem: Any, *run: Any) -> Any:
        runs = jax.tree.map(lambda leaf: leaf[None], run)
        simulated = simulate_runs(buffer, problem, *runs)
        return jax.tree.map(lambda leaf: leaf[0], simulated)

    def simulate_batched(size: int, batched: Any, problem: Any, *runs: Any) -> tuple[Any, Any]:
        def broadcast(leaf: Array, is_batched: bool) -> Array:
            if is_batched:
                return leaf
            return jnp.broadcast_to(leaf, (size, *leaf.shape))

        if any(jax.tree.leaves(batched[0])):  # the loop is for a single problem
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
            simulated = jax.vmap(partial(simulate_run, default), axes)(problem, *runs)
        else:
            runs = jax.tree.map(broadcast, runs, tuple(batched[1:]))
            simulated = simulate_runs(chosen, problem, *runs)
        return simulated, jax.tree.map(lambda _: True, simulated)

    simulate = custom_vmap(partial(simulate_run, chosen))
    simulate.def_vmap(simulate_batched)
    return Trajectories(*simulate(*arrays, numbers, exists, key), action_space=action_space)


def _simulate(
    problem: Problem,
    select: SelectActions,
    buffer: ObservationBuffer,
    numbers: Int[Array, "R n"],
    exists: Bool[Array, "R n"],
    run_keys: Key[Array, " R"],
) -> tuple[Any, ...]:
    """Return the trajectories of several runs, in the order of the fields of `Trajectories`."""
    env = problem.env
    horizon = problem.sampling_horizon()
    if not isinstance(env, Environment):
        name = type(env).__name__
        raise ValueError(f"{name} does not run in JAX and cannot be part of a compiled program.")
    keys = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))(fused(run_keys), numbers)

    @partial(jax.jit, inline=True)  # traced once, for the shapes and for the loop
    def step(
        t: Int[Array, ""], state: Any, ended: Bool[Array, "R n"]
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        step_keys = _each(lambda key: jax.random.split(jax.random.fold_in(key, t + 1)), keys)
        live = ~ended
        observations = _each(env.observe, state)
        samples, actions, log_probs = _select_in_runs(
            select, observations, t, live, run_keys, numbers, step_keys[..., 0]
        )
        clipped = env.action_space.clip(actions)
        next_state, rewards = _each(env.step, state, clipped, unfused(step_keys[..., 1]))
        state = jax.tree.map(lambda old, new: _where(live, new, old), state, next_state)
        ended = ended | _each(env.terminated, state) | _each(env.truncated, state)
        columns = (samples, log_probs, rewards)
        columns = [_where(live, column, jnp.zeros_like(column)) for column in columns]
        return state, ended, (observations, *columns, live)

    def write(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        t, state, ended, (observations, *columns) = carry
        live = ~ended
        state, ended, (observation, *entries) = step(t, state, ended)

        def write_observation(rows: Array, entry: Array) -> Array:
            return buffer.write(rows, entry, live, t)

        observations = jax.tree.map(write_observation, observations, observation)
        pairs = zip(columns, entries, strict=True)
        columns = [_write_step(rows, entry, live, t) for rows, entry in pairs]
        return t + 1, state, ended, (observations, *columns)

    def allocate(empty: Any, like: Any) -> Any:
        shape = (*ended.shape, horizon, *like.shape[2:])
        return empty(jax.ShapeDtypeStruct(shape, like.dtype), ended)

    first = _each(lambda key: env.reset(unfused(jax.random.fold_in(key, 0))), keys)
    ended = _each(env.terminated, first) | ~exists
    start = jnp.zeros((), jnp.int32)
    observation_like, *column_likes = jax.eval_shape(step, start, first, ended)[2]
    observations = jax.tree.map(partial(allocate, buffer.empty), observation_like)
    columns = [allocate(_zeros, like) for like in column_likes]
    carry = (start, first, ended, (observations, *columns))

    stop, last, _, (observations, *columns) = jax.lax.while_loop(
        partial(_goes_on, horizon), write, carry
    )
    final = _each(env.observe, last)
    fill = buffer.fill
    if fill is not None:
        observations = jax.tree.map(lambda rows, end: fill(rows, end, stop), observations, final)
    return observations, *columns, _each(env.terminated, last) & exists, final


def _each(function: Any, *arguments: Any) -> Any:
    """Map a function over runs and trajectories."""
    return jax.vmap(jax.vmap(function))(*arguments)


def _goes_on(horizon: int, carry: tuple[Any, ...]) -> Bool[Array, ""]:
    t, _, ended, _ = carry
    return (t < horizon) & ~jnp.all(ended)


def _select_in_runs(
    select: SelectActions, observations: Any, t: Int[Array, ""], *step_keys: Any
) -> Any:
    """Draw the actions of all runs. The arrays of `select` have an entry for each run."""
    arrays, static = eqx.partition(select, eqx.is_array)

    def select_in_run(arrays: Any, observations: Any, *step_keys: Any) -> Any:
        return eqx.combine(arrays, static)(observations, StepKeys(*step_keys, t=t))

    return jax.vmap(select_in_run)(arrays, observations, *step_keys)


def _zeros(like: jax.ShapeDtypeStruct, _: Any) -> Array:
    return jnp.zeros(like.shape, like.dtype)


def _write_step(
    rows: Shaped[Array, "R n H *shape"],
    entry: Shaped[Array, "R n *shape"],
    _: Any,
    t: Int[Array, ""],
) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(rows, entry[:, :, None], t, 2)


def _fill_after_end(
    rows: Shaped[Array, "R n H *shape"], end: Shaped[Array, "R n *shape"], stop: Int[Array, ""]
) -> Array:
    """Return the rows with `end` from time `stop` on.

    A few steps are written at a time, because all earlier steps may be most of the memory.
    """
    horizon = rows.shape[2]
    size = min(STEPS_PER_FILL, horizon)

    def fill(block: Int[Array, ""], rows: Array) -> Array:
        first = jnp.minimum(block * size, horizon - size)
        is_after = (first + jnp.arange(size) >= stop).reshape(size, *(1 for _ in rows.shape[3:]))
        part = jax.lax.dynamic_slice_in_dim(rows, first, size, 2)
        part = jnp.where(is_after, end[:, :, None], part)
        return jax.lax.dynamic_update_slice_in_dim(rows, part, first, 2)

    return jax.lax.fori_loop(stop // size, -(-horizon // size), fill, rows)


def _where(condition: Bool[Array, "R n *H"], yes: Array, no: Array) -> Array:
    return jnp.where(jnp.expand_dims(condition, range(condition.ndim, yes.ndim)), yes, no)

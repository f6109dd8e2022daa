"""Sampling in plain JAX, inside jit and vmap: many episodes at once, until the last of them has ended."""

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
from occupax.samplers.base import Number, ProgramSource, Sampler
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.fused_keys import fused, unfused
from occupax.trajectories import Trajectories


def sample(problem: ProblemSource, policy: Policy, n: int, key: Key[Array, ""]) -> Trajectories:
    """Draw trajectories under a policy.

    Trajectory i depends on (key, i) alone, so the first ones of a larger batch are those of a
    smaller one.

    Args:
        problem: what to sample: a problem, an environment or its name.
        policy: who acts.
        n: how many trajectories.
        key: of the random numbers.

    Returns:
        The trajectories, as long as the horizon of the problem.
    """
    problem = as_problem(problem)
    n = check_integer("n", n)
    check_key(key)
    problem.sampling_horizon()
    check_policy_fits(policy, problem.env)
    if isinstance(problem.env, GymnasiumEnv):
        with closing(EpisodeRunner(problem.env)) as runner:
            return runner.draw(policy, key, 0, n, n, problem.sampling_horizon())
    return trajectories(problem, policy, jnp.arange(n), key)


@eqx.filter_jit
def trajectories(
    problem: Problem, policy: Policy, numbers: Int[Array, " n"], key: Key[Array, ""]
) -> Trajectories:
    """The trajectories of these numbers out of all those that `key` stands for."""
    there = jnp.ones(numbers.shape, bool)
    return rollout(problem, policy.action_space, eqx.Partial(_act, policy), numbers, there, key)


@dataclass(frozen=True)
class Jax(Sampler):
    """Samples in plain JAX, inside the compiled program: any environment in JAX, any policy, any device."""

    def open(self, problem: Problem, policy: Policy) -> "JaxSource":
        """Open a source; nothing is started."""
        return JaxSource(problem)

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Those of `jax.random`."""
        return "jax"


class JaxSource(ProgramSource):
    """Draws trajectories in plain JAX."""

    problem: Problem

    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> SampledBatch:
        """Draw trajectories number `first` to `first + n`; those from number `stop` on have no live step."""
        numbers = first + jnp.arange(n)
        acting = eqx.Partial(_act, policy)
        drawn = rollout(self.problem, policy.action_space, acting, numbers, numbers < stop, key)
        return SampledBatch(self.problem, drawn, policy)


FILLED = 16
"""Steps after the end that are written at once."""


class Draws(NamedTuple):
    """What the actions of a step are drawn with: the key of the run, the trajectory and t, or keys made of these."""

    live: Bool[Array, " n"]
    key: Key[Array, ""]
    numbers: Int[Array, " n"]
    keys: Key[Array, " n"]
    t: Int[Array, ""]


Actions = tuple[Num[Array, "n *k"], Num[Array, "n *k"], Float[Array, " n"]]
"""What was drawn, the actions that it stands for, and its log-probabilities; of any value where not
`live`."""
Acting = Callable[[Any, Draws], Actions]
"""Draws the actions for observations of episodes that are simulated side by side; its arrays may be
batched."""


class Keeping(NamedTuple):
    """How what is seen is kept, of R runs with n trajectories of H steps each."""

    room: Callable[[jax.ShapeDtypeStruct, Bool[Array, "R n"]], Array]
    """An array of a shape [R, n, H, ...]; the second argument is other for every batch."""
    put: Callable[[Array, Array, Bool[Array, "R n"], Int[Array, ""]], Array]
    """The array with what is seen at a time, by those at least that are live."""
    fill: Callable[[Array, Array, Int[Array, ""]], Array] | None = None
    """The array with what is seen at the end from a time on; without it, steps that are not live
    have any value."""


def _act(policy: Policy, observations: Any, at: Draws) -> Actions:
    return jax.vmap(policy.draw_with_action)(observations, at.keys)


def rollout(
    problem: Problem,
    action_space: Kind,
    acting: Acting,
    numbers: Int[Array, " n"],
    there: Bool[Array, " n"],
    key: Key[Array, ""],
    keeping: Keeping | None = None,
) -> Trajectories:
    """The trajectories of these numbers out of all those that `key` stands for; those not `there` take no step.

    A trajectory depends on (key, number) and the acting alone. Under vmap all runs go through one
    loop, which ends with the last episode of any.
    """
    usual = Keeping(_zeros, _put, _filled)
    arrays, fixed = eqx.partition((problem, acting), eqx.is_array)

    def all_runs(keeping: Keeping, of_problem: Any, of_acting: Any, *rest: Any) -> Any:
        problem, acting = eqx.combine((of_problem, of_acting), fixed)
        return _side_by_side(problem, acting, keeping, *rest)

    def one_run(keeping: Keeping, of_problem: Any, *of_run: Any) -> Any:
        runs = jax.tree.map(lambda leaf: leaf[None], of_run)
        return jax.tree.map(lambda leaf: leaf[0], all_runs(keeping, of_problem, *runs))

    def in_one_loop(size: int, batched: Any, of_problem: Any, *of_run: Any) -> tuple[Any, Any]:
        def spread(leaf: Array, is_batched: bool) -> Array:
            return leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))

        if any(jax.tree.leaves(batched[0])):  # several problems, which the loop is not made for
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
            drawn = jax.vmap(partial(one_run, usual), axes)(of_problem, *of_run)
        else:
            drawn = all_runs(
                keeping or usual, of_problem, *jax.tree.map(spread, of_run, tuple(batched[1:]))
            )
        return drawn, jax.tree.map(lambda _: True, drawn)

    draw = custom_vmap(partial(one_run, keeping or usual))
    draw.def_vmap(in_one_loop)
    return Trajectories(*draw(*arrays, numbers, there, key), action_space=action_space)


def _side_by_side(
    problem: Problem,
    acting: Acting,
    keeping: Keeping,
    numbers: Int[Array, "R n"],
    there: Bool[Array, "R n"],
    run_keys: Key[Array, " R"],
) -> tuple[Any, ...]:
    """The trajectories of several runs; the entries are in the order of the fields of `Trajectories`."""
    env, horizon = problem.env, problem.sampling_horizon()
    if not isinstance(env, Environment):
        raise ValueError(
            f"{type(env).__name__} does not run in JAX and cannot be part of a compiled program."
        )
    keys = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))(fused(run_keys), numbers)

    def each(function: Any, *arguments: Any) -> Any:
        return jax.vmap(jax.vmap(function))(*arguments)

    def act(
        t: Int[Array, ""], observations: Any, live: Bool[Array, "R n"], step_keys: Key[Array, "R n"]
    ) -> Any:
        parts, fixed = eqx.partition(acting, eqx.is_array)

        def in_run(part: Any, observations: Any, *given: Any) -> Any:
            return eqx.combine(part, fixed)(observations, Draws(*given, t=t))

        return jax.vmap(in_run)(parts, observations, live, run_keys, numbers, step_keys)

    @partial(jax.jit, inline=True)  # traced once, for the shapes and for the loop
    def step(
        t: Int[Array, ""], state: Any, ended: Bool[Array, "R n"]
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        step_keys = each(lambda key: jax.random.split(jax.random.fold_in(key, t + 1)), keys)
        live, observations = ~ended, each(env.observe, state)
        drawn, actions, log_probs = act(t, observations, live, step_keys[..., 0])
        following, rewards = each(
            env.step, state, env.action_space.clip(actions), unfused(step_keys[..., 1])
        )
        state = jax.tree.map(lambda old, new: _where(live, new, old), state, following)
        ended = ended | each(env.terminated, state) | each(env.truncated, state)
        taken = (_where(live, leaf, jnp.zeros_like(leaf)) for leaf in (drawn, log_probs, rewards))
        return state, ended, (observations, *taken, live)

    def write(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        t, state, ended, (seen, *kept) = carry
        live, (state, ended, (new, *row)) = ~ended, step(t, state, ended)
        seen = jax.tree.map(lambda rows, new: keeping.put(rows, new, live, t), seen, new)
        return (
            t + 1,
            state,
            ended,
            (seen, *(_put(rows, new, live, t) for rows, new in zip(kept, row, strict=True))),
        )

    def room(make: Any, like: Any) -> Any:
        shape = *ended.shape, horizon, *like.shape[2:]
        return make(jax.ShapeDtypeStruct(shape, like.dtype), ended)

    first = each(lambda key: env.reset(unfused(jax.random.fold_in(key, 0))), keys)
    ended = each(env.terminated, first) | ~there
    start = jnp.zeros((), jnp.int32)
    of_seen, *others = jax.eval_shape(step, start, first, ended)[2]
    empty = (
        jax.tree.map(partial(room, keeping.room), of_seen),
        *(room(_zeros, like) for like in others),
    )
    stop, last, _, (observations, *numbers_of_steps) = jax.lax.while_loop(
        lambda carry: (carry[0] < horizon) & ~jnp.all(carry[2]), write, (start, first, ended, empty)
    )
    final = each(env.observe, last)
    fill = keeping.fill
    if fill is not None:
        observations = jax.tree.map(lambda rows, end: fill(rows, end, stop), observations, final)
    return observations, *numbers_of_steps, each(env.terminated, last) & there, final


def _zeros(like: jax.ShapeDtypeStruct, _: Any) -> Array:
    return jnp.zeros(like.shape, like.dtype)


def _put(
    rows: Shaped[Array, "R n H *shape"], new: Shaped[Array, "R n *shape"], _: Any, t: Int[Array, ""]
) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(rows, new[:, :, None], t, 2)


def _filled(
    rows: Shaped[Array, "R n H *shape"], end: Shaped[Array, "R n *shape"], stop: Int[Array, ""]
) -> Array:
    """The rows with `end` from time `stop` on; a few at a time, because those before may be most of the memory."""
    horizon = rows.shape[2]
    size = min(FILLED, horizon)

    def fill(block: Int[Array, ""], rows: Array) -> Array:
        first = jnp.minimum(block * size, horizon - size)
        after = (first + jnp.arange(size) >= stop).reshape(size, *(1 for _ in rows.shape[3:]))
        part = jax.lax.dynamic_slice_in_dim(rows, first, size, 2)
        return jax.lax.dynamic_update_slice_in_dim(
            rows, jnp.where(after, end[:, :, None], part), first, 2
        )

    return jax.lax.fori_loop(stop // size, -(-horizon // size), fill, rows)


def _where(condition: Bool[Array, "R n *H"], yes: Array, no: Array) -> Array:
    return jnp.where(jnp.expand_dims(condition, range(condition.ndim, yes.ndim)), yes, no)

"""Traces and plays an environment in JAX to find out whether it is fit for training."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions
from occupax.envs.base import Environment
from occupax.envs.check.findings import BrokenError, Finding, Findings, found, kind, text
from occupax.envs.gymnax import from_gymnax
from occupax.envs.gymnax_functions import find_fault

COMPILED = "write it in jax.numpy: jnp.where instead of if, no float(), int() or NumPy on what depends on the arguments."


class _Played(NamedTuple):
    """What the steps of an episode returned: observation, reward, terminated, truncated, and as what reset it looks."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    like_reset: Any


def check_in_jax(
    source: Any, episodes: int, seed: int, max_steps: int, findings: Findings
) -> tuple[Finding, ...]:
    """Check an environment in JAX or of gymnax, or a class, which is made without arguments; see `check_env`."""

    def work() -> None:
        env = source
        if isinstance(source, type):
            name = f"{source.__name__}()"
            env = findings.call(
                source, "making the environment", name, "it must work without arguments."
            )
        elif not isinstance(source, Environment):
            env = _adapt(source, findings)
        _check_types(env, findings)
        _check_episodes(env, episodes, seed, max_steps, findings)

    return findings.collect(work)


def _adapt(source: Any, findings: Findings) -> Environment:
    """Return an environment that is like one of gymnax as one of occupax."""
    fault = find_fault(source, getattr(source, "default_params", None))
    if fault is not None:
        findings.add(fault)
        raise BrokenError
    return from_gymnax(source)


def _check_types(env: Environment, findings: Findings) -> None:
    """Shapes and types of all that is returned, found by tracing; what is wrong with them makes the rest impossible."""
    if not isinstance(env.action_space, ActionSpace):  # pyright: ignore[reportUnnecessaryIsInstance]
        findings.refuse("jax_action_space", kind(env.action_space), "env.action_space")
    key = jax.random.key(0)
    state = _trace(env.reset, "reset", "env.reset(key)", findings, key)
    where = "env.step(state, action, key)"
    returned = _trace(env.step, "step", where, findings, state, env.action_space.spec(), key)
    if not isinstance(returned, tuple) or len(returned) != 2:
        actual = f"{len(returned)} values" if isinstance(returned, tuple) else kind(returned)
        findings.refuse("jax_step_structure", actual, where)
    following, reward = returned
    _compare_states(state, following, findings)
    _check_kind("reward", reward, jnp.floating, "jnp.float32", where, findings)
    for name in ("terminated", "truncated"):
        flag = _trace(getattr(env, name), name, f"env.{name}(state)", findings, state)
        _check_kind(name, flag, jnp.bool_, "bool", f"env.{name}(state)", findings)
    seen = _trace(env.observe, "observe", "env.observe(state)", findings, state)
    if not isinstance(seen, jax.ShapeDtypeStruct):
        findings.refuse(
            "jax_observation", f"{type(seen).__name__} {text(seen)}", "env.observe(state)"
        )


def _trace(
    function: Callable[..., Any], name: str, where: str, findings: Findings, *arguments: Any
) -> Any:
    def trace() -> Any:
        with jax.checking_leaks():
            return jax.eval_shape(function, *arguments)

    return findings.call(trace, f"{name}, compiled,", where, COMPILED)


def _compare_states(state: Any, following: Any, findings: Findings) -> None:
    (before, structure), (after, other) = (
        tree_flatten_with_path(state),
        tree_flatten_with_path(following),
    )
    if structure != other:
        findings.refuse(
            "jax_state_structure",
            text(other),
            "env.step(state, action, key)",
            before=text(structure),
        )
    for (path, old), (_, new) in zip(before, after, strict=True):
        expected, actual = (f"{leaf.dtype} of shape {leaf.shape}" for leaf in (old, new))
        if expected != actual:
            place = f"state{keystr(path)} after env.step(state, action, key)"
            findings.refuse("jax_state_type", actual, place, expected=expected, dtype=old.dtype)


def _check_kind(
    name: str, value: Any, wanted: Any, dtype: str, where: str, findings: Findings
) -> None:
    is_array = isinstance(value, jax.ShapeDtypeStruct)
    if not is_array or value.shape != () or not jnp.issubdtype(value.dtype, wanted):
        actual = f"{value.dtype} of shape {value.shape}" if is_array else kind(value)
        findings.refuse("jax_number", actual, where, name=name, dtype=dtype)


def _check_episodes(
    env: Environment, episodes: int, seed: int, max_steps: int, findings: Findings
) -> None:
    """Play all episodes in two programs that are traced one after the other, and look at all that they return."""
    limit = env.time_limit
    steps = max_steps if limit is None else min(limit, max_steps)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(episodes))
    held = [np.array(leaf) for leaf in jax.tree.leaves(env) if isinstance(leaf, np.ndarray)]
    first, again = (_play(env, keys, steps, findings) for _ in range(2))
    for before, now in zip(
        held, (it for it in jax.tree.leaves(env) if isinstance(it, np.ndarray)), strict=True
    ):
        if before.tobytes() != now.tobytes():
            findings.add(found("jax_changes_itself", text(now), "env", before=text(before)))
    for name, one, other in zip(_Played._fields, first, again, strict=True):
        same = np.array([a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True)])
        if not same.all():
            findings.add(
                found("jax_not_pure", f"another {name}", _place(int(np.argmin(same)), 0, seed))
            )
            return
    for number in range(episodes):
        episode = _Played(*(part[number] for part in first))
        _check_numbers(episode, _until_end(episode), number, seed, findings)
        _check_end(episode, limit, number, seed, findings)
    _check_resets(first, findings)


def _play(env: Environment, keys: Any, steps: int, findings: Findings) -> _Played:
    def reset(key: Array) -> Any:
        return env.observe(env.reset(key))

    def step(state: Any, key: Array) -> Any:
        acting, stepping = jax.random.split(key)
        state, reward = env.step(state, _draw(env.action_space, acting), stepping)
        seen = env.observe(state)
        fresh = [jnp.all(seen == reset(it)) for it in (stepping, *jax.random.split(stepping))]
        return state, (seen, reward, env.terminated(state), env.truncated(state), jnp.stack(fresh))

    def episode(key: Array) -> Any:
        starting, rest = jax.random.split(key)
        first = jax.tree.map(jnp.asarray, env.reset(starting))
        zero = jnp.zeros((), bool)
        start = env.observe(first), jnp.zeros(()), zero, zero, jnp.zeros(3, bool)
        rows = jax.lax.scan(step, first, jax.random.split(rest, steps))[1]
        return jax.tree.map(
            lambda one, more: jnp.concatenate([jnp.asarray(one, more.dtype)[None], more]),
            start,
            rows,
        )

    compiled = (
        jax.jit(jax.vmap(episode)).lower(keys).compile()
    )  # a new function each time, so that it is traced again
    run = lambda: jax.block_until_ready(compiled(keys))  # noqa: E731
    played = findings.call(run, "an episode", f"{steps} steps", "make sure that all loops end.")
    return _Played(*(np.asarray(part) for part in played))


def _draw(space: ActionSpace, key: Array) -> Array:
    """An action at random: of bounded entries any between the bounds, of others a normal one."""
    match space:
        case DiscreteActions():
            return jax.random.randint(key, (), 0, space.n, jnp.int32)
        case MultiDiscreteActions():
            return jax.random.randint(
                key, (len(space.sizes),), 0, jnp.array(space.sizes), jnp.int32
            )
        case BoxActions():
            uniform = jax.random.uniform(key, (len(space.low),), minval=-1.0, maxval=1.0)
            normal = jax.random.normal(key, (len(space.low),))
            both = jnp.array(
                [math.isfinite(high - low) for low, high in zip(space.low, space.high, strict=True)]
            )
            return space.clip(jnp.where(both, space.middle + space.reach * uniform, normal))
        case _:
            raise ValueError(f"actions of {space} cannot be drawn.")


def _until_end(episode: _Played) -> int:
    """The number of the last step."""
    ends = np.flatnonzero(episode.terminated | episode.truncated)
    return int(ends[0]) if len(ends) else len(episode.reward) - 1


def _place(number: int, step: int, seed: int) -> str:
    return f"{f'step {step}' if step else 'reset'} of episode {number}, seed {seed}"


def _check_numbers(episode: _Played, last: int, number: int, seed: int, findings: Findings) -> None:
    for name, values in (("observation", episode.observation), ("reward", episode.reward)):
        wrong = ~np.isfinite(values[: last + 1].astype(float)).reshape(last + 1, -1).all(1)
        if wrong.any():
            step = int(np.argmax(wrong))
            where = _place(number, step, seed)
            findings.add(found("array_not_finite", text(values[step]), where, part=name))


def _check_end(
    episode: _Played, limit: int | None, number: int, seed: int, findings: Findings
) -> None:
    steps, ended = len(episode.reward) - 1, bool((episode.terminated | episode.truncated).any())
    if ended:
        return
    if limit is None:
        actual = f"no end after {steps:,} steps, and no time limit"
        findings.add(found("jax_no_end", actual, f"episode {number}, seed {seed}"))
    elif limit <= steps:
        actual = f"neither terminated nor truncated after {steps:,} steps"
        findings.add(found("jax_no_truncation", actual, _place(number, steps, seed), limit=limit))


def _check_resets(played: _Played, findings: Findings) -> None:
    """Whether a step looks like a reset with its own key: anywhere, if first observations never are alike."""
    first = {row.tobytes() for row in played.observation[:, 0]}
    many = len(first) == len(played.observation) > 1
    for number in range(len(played.reward)):
        episode = _Played(*(part[number] for part in played))
        last = _until_end(episode)
        moved = (episode.observation[: last + 1] != episode.observation[0]).any()
        alike = episode.like_reset[1:].any(1)
        at_end = (
            bool(episode.terminated[last] | episode.truncated[last])
            and bool(alike[last - 1])
            and bool(moved)
        )
        if (many and alike.any()) or (not many and at_end):
            step = 1 + (int(np.argmax(alike)) if many else last - 1)
            name = "jax_resets" if many else "jax_ends_at_start"
            findings.add(
                found(name, text(episode.observation[step]), f"step {step} of episode {number}")
            )

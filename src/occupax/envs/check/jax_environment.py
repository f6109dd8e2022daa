"""Check of environments in JAX, by tracing and by random episodes."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions
from occupax.envs.base import Environment
from occupax.envs.gymnax import from_gymnax
from occupax.envs.gymnax_functions import find_fault, find_state_issue
from occupax.envs.issues import (
    EnvIssue,
    Issues,
    describe,
    describe_with_type,
    episode_step,
    make_issue,
)

STEP = "env.step(state, action, key)"
COMPILED = (
    "write it in jax.numpy: jnp.where instead of if, no float(), int() or NumPy on what depends "
    "on the arguments."
)


class _Episode(NamedTuple):
    """Results of the steps of an episode, or of several. Step 0 is the reset."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    like_reset: Any
    """Whether the observation equals that of a reset with each of three keys of the step."""


def check_in_jax(
    source: Any, episodes: int, seed: int, max_steps: int, issues: Issues
) -> tuple[EnvIssue, ...]:
    """Check an environment in JAX or of gymnax, or a class without arguments. See `check_env`."""

    def work() -> None:
        env = source
        if isinstance(source, type):
            remedy = "it must work without arguments."
            env = issues.call(source, "making the environment", f"{source.__name__}()", remedy)
        elif not isinstance(source, Environment):
            fault = find_fault(source, getattr(source, "default_params", None))
            if fault is not None:
                issues.stop(fault)
            env = from_gymnax(source)
        _check_types(env, issues)
        _check_episodes(env, episodes, seed, max_steps, issues)

    return issues.collect(work)


def _check_types(env: Environment, issues: Issues) -> None:
    """Check shapes and types of all results by tracing. Faults end the check."""
    if not isinstance(env.action_space, ActionSpace):  # pyright: ignore[reportUnnecessaryIsInstance]
        actual = describe_with_type(env.action_space)
        issues.stop(make_issue("jax_action_space", actual, "env.action_space"))
    key = jax.random.key(0)
    state = _trace(env.reset, "reset", "env.reset(key)", issues, key)
    returned = _trace(env.step, "step", STEP, issues, state, env.action_space.spec(), key)
    if not isinstance(returned, tuple) or len(returned) != 2:
        actual = describe_with_type(returned)
        if isinstance(returned, tuple):
            actual = f"{len(returned)} values"
        issues.stop(make_issue("jax_step_structure", actual, STEP))
    next_state, reward = returned
    where = "state{path} after " + STEP
    issue = find_state_issue(state, next_state, STEP, where, lambda new, old: new == old)
    if issue is not None:
        issues.stop(issue)
    _check_scalar("reward", reward, jnp.floating, "jnp.float32", STEP, issues)
    for name in ("terminated", "truncated"):
        where = f"env.{name}(state)"
        flag = _trace(getattr(env, name), name, where, issues, state)
        _check_scalar(name, flag, jnp.bool_, "bool", where, issues)
    where = "env.observe(state)"
    observation = _trace(env.observe, "observe", where, issues, state)
    if not isinstance(observation, jax.ShapeDtypeStruct):
        issues.stop(make_issue("jax_observation", describe_with_type(observation), where))


def _trace(
    function: Callable[..., Any], name: str, where: str, issues: Issues, *arguments: Any
) -> Any:
    def trace() -> Any:
        with jax.checking_leaks():
            return jax.eval_shape(function, *arguments)

    return issues.call(trace, f"{name}, compiled,", where, COMPILED)


def _check_scalar(name: str, value: Any, kind: Any, dtype: str, where: str, issues: Issues) -> None:
    if not isinstance(value, jax.ShapeDtypeStruct):
        actual = describe_with_type(value)
    elif value.shape != () or not jnp.issubdtype(value.dtype, kind):
        actual = f"{value.dtype} of shape {value.shape}"
    else:
        return
    issues.stop(make_issue("jax_number", actual, where, name=name, dtype=dtype))


def _check_episodes(
    env: Environment, episodes: int, seed: int, max_steps: int, issues: Issues
) -> None:
    """Play all episodes in two programs that are traced one after the other, and compare them."""
    limit = env.time_limit
    steps = max_steps if limit is None else min(limit, max_steps)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(episodes))
    arrays = [leaf for leaf in jax.tree.leaves(env) if isinstance(leaf, np.ndarray)]
    copies = [array.copy() for array in arrays]
    played = _play(env, keys, steps, issues)
    repeated = _play(env, keys, steps, issues)
    for array, copied in zip(arrays, copies, strict=True):
        if array.tobytes() != copied.tobytes():
            before = describe(copied)
            issues.add(make_issue("jax_changes_itself", describe(array), "env", before=before))
    for name, values, others in zip(_Episode._fields, played, repeated, strict=True):
        for number in range(episodes):
            if values[number].tobytes() != others[number].tobytes():
                where = f"reset of episode {number}, seed {seed}"
                issues.add(make_issue("jax_not_pure", f"another {name}", where))
                return
    for number in range(episodes):
        episode = _Episode(*(part[number] for part in played))
        _check_numbers(episode, number, seed, issues)
        _check_end(episode, limit, number, seed, issues)
    _check_resets(played, issues)


def _play(env: Environment, keys: Any, steps: int, issues: Issues) -> _Episode:
    # partial makes a new function each time, so that the environment is traced again
    run = jax.jit(jax.vmap(partial(_play_one, env, steps))).lower(keys).compile()
    remedy = "make sure that all loops end."
    results = issues.call(
        lambda: jax.block_until_ready(run(keys)), "an episode", f"{steps} steps", remedy
    )
    return _Episode(*(np.asarray(part) for part in results))


def _play_one(env: Environment, steps: int, key: Array) -> _Episode:
    """Play one episode of random actions."""

    def is_reset(observation: Any, key: Array) -> Any:
        return jnp.all(observation == env.observe(env.reset(key)))

    def step(state: Any, key: Array) -> Any:
        action_key, step_key = jax.random.split(key)
        state, reward = env.step(state, _draw(env.action_space, action_key), step_key)
        observation = env.observe(state)
        reset_keys = (step_key, *jax.random.split(step_key))
        like_reset = jnp.stack([is_reset(observation, reset_key) for reset_key in reset_keys])
        flags = env.terminated(state), env.truncated(state)
        return state, _Episode(observation, reward, *flags, like_reset)

    reset_key, rest = jax.random.split(key)
    initial = jax.tree.map(jnp.asarray, env.reset(reset_key))
    no = jnp.zeros((), bool)
    start = _Episode(env.observe(initial), jnp.zeros(()), no, no, jnp.zeros(3, bool))
    rows = jax.lax.scan(step, initial, jax.random.split(rest, steps))[1]
    return jax.tree.map(
        lambda first, later: jnp.concatenate([jnp.asarray(first, later.dtype)[None], later]),
        start,
        rows,
    )


def _draw(space: ActionSpace, key: Array) -> Array:
    """Draw an action: uniform between bounds, and normal for entries without both."""
    match space:
        case DiscreteActions():
            return jax.random.randint(key, (), 0, space.n, jnp.int32)
        case MultiDiscreteActions():
            sizes = jnp.array(space.sizes)
            return jax.random.randint(key, sizes.shape, 0, sizes, jnp.int32)
        case BoxActions():
            shape = (len(space.low),)
            uniform = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
            bounded = space.middle + space.reach * uniform
            normal = jax.random.normal(key, shape)
            return space.clip(jnp.where(jnp.array(space.has_both_bounds), bounded, normal))
        case _:
            raise ValueError(f"actions of {space} cannot be drawn.")


def _last_step(episode: _Episode) -> int:
    """Return the number of the last step of an episode."""
    ends = np.flatnonzero(episode.terminated | episode.truncated)
    return int(ends[0]) if len(ends) else len(episode.reward) - 1


def _check_numbers(episode: _Episode, number: int, seed: int, issues: Issues) -> None:
    """Report the first observation and the first reward that is not finite."""
    steps = _last_step(episode) + 1
    for name, values in (("observation", episode.observation), ("reward", episode.reward)):
        is_finite = np.isfinite(values[:steps].astype(float)).reshape(steps, -1).all(1)
        if not is_finite.all():
            step = int(np.argmin(is_finite))
            where = episode_step(number, seed, step)
            issues.add(make_issue("array_not_finite", describe(values[step]), where, part=name))


def _check_end(
    episode: _Episode, limit: int | None, number: int, seed: int, issues: Issues
) -> None:
    """Report an episode that does not end, or continues after its time limit."""
    steps = len(episode.reward) - 1
    if (episode.terminated | episode.truncated).any():
        return
    if limit is None:
        actual = f"no end after {steps:,} steps, and no time limit"
        issues.add(make_issue("jax_no_end", actual, f"episode {number}, seed {seed}"))
    elif limit <= steps:
        actual = f"neither terminated nor truncated after {steps:,} steps"
        where = episode_step(number, seed, steps)
        issues.add(make_issue("jax_no_truncation", actual, where, limit=limit))


def _check_resets(played: _Episode, issues: Issues) -> None:
    """Report steps that look like a reset with the same key.

    Any such step is reported if initial observations differ.
    """
    initial = {row.tobytes() for row in played.observation[:, 0]}
    are_all_different = len(initial) == len(played.observation) > 1
    for number in range(len(played.reward)):
        episode = _Episode(*(part[number] for part in played))
        looks_reset = episode.like_reset[1:].any(1)
        last = _last_step(episode)
        if are_all_different and looks_reset.any():
            name = "jax_resets"
            step = 1 + int(np.argmax(looks_reset))
        elif not are_all_different and _ends_at_start(episode, last, looks_reset):
            name = "jax_ends_at_start"
            step = last
        else:
            continue
        observation = describe(episode.observation[step])
        issues.add(make_issue(name, observation, f"step {step} of episode {number}"))


def _ends_at_start(episode: _Episode, last: int, looks_reset: Any) -> bool:
    """Return whether an episode that left its first observation ends with that of a reset."""
    has_ended = bool(episode.terminated[last] | episode.truncated[last])
    has_moved = bool((episode.observation[: last + 1] != episode.observation[0]).any())
    return has_ended and has_moved and bool(looks_reset[last - 1])

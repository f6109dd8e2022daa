"""Environments of gymnax, and others with its functions, which run in JAX like our own.

Nothing here imports gymnax unless an environment is asked for by its name: what counts are the
functions `reset_env`, `step_env`, `action_space` and `observation_space`.
"""

import dataclasses
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Key, Num, PyTree

from occupax.envs.actions import ActionSpace
from occupax.envs.base import Bounds, Environment
from occupax.envs.gymnasium import MAX_BOUNDS, hashable_options
from occupax.envs.gymnax_functions import (
    FUNCTIONS,
    find_fault,
    is_like_gymnax,
    read_action_space,
    read_bounds,
)
from occupax.errors import check_integer, shown, unknown

PREFIX = "gymnax/"
NEVER = np.iinfo(np.int32).max
"""A number of steps that no episode reaches."""


class GymnaxState(eqx.Module):
    """The state of an environment of gymnax, with what its last step returned."""

    inner: PyTree
    observation: Any
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class GymnaxEnv(Environment):
    """An environment of gymnax, by its name there or as it is; see `occupax.from_gymnax`."""

    source: Any = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    params: PyTree
    action_space: ActionSpace = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)
    num_states: int | None = eqx.field(static=True)
    time_limit: int | None = eqx.field(static=True)
    bounds: Bounds = eqx.field(static=True)

    def __init__(self, source: Any, params: PyTree = None, **options: Any):
        self.source, self.params, self.options = source, params, hashable_options(options)
        self._refuse_faults()
        for name, value in self._look().items():
            setattr(self, name, value)

    def __check_init__(self) -> None:
        for name, value in self._look().items() if isinstance(self.source, str) else ():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be that of gymnax, {value!s:.60}, got {getattr(self, name)!s:.60}."
                )

    def _refuse_faults(self) -> None:
        """Refuse an environment whose functions do not work."""
        env, params = self.env_and_params()
        limit = getattr(params, "max_steps_in_episode", None)
        if limit is not None:
            check_integer("max_steps_in_episode", limit)
        if limit is not None and not dataclasses.is_dataclass(params):
            raise ValueError(
                f"params must be a dataclass if they have max_steps_in_episode, got {shown(params)}."
            )
        fault = find_fault(env, params)
        if fault is not None:
            wrong = f"{fault.what}, {fault.actual} instead of {fault.expected}"
            raise ValueError(
                f"env must be fit for training, got {self.name}: {wrong}; {fault.remedy}"
            )

    def _look(self) -> dict[str, Any]:
        """What the environment is like, by the fields of this class."""
        env, params = self.env_and_params()
        actions, observations = env.action_space(params), env.observation_space(params)
        limit = getattr(params, "max_steps_in_episode", None)
        states = int(observations.n) if hasattr(observations, "n") else None
        seen = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), params)[0])
        few = int(np.prod(seen.shape)) <= MAX_BOUNDS
        return {
            "action_space": read_action_space(actions),
            "action_shape": tuple(getattr(actions, "shape", ())),
            "num_states": states,
            "time_limit": None if limit is None else int(limit),
            "bounds": tuple(read_bounds(observations, seen.shape))
            if few and states is None
            else (),
        }

    @property
    def name(self) -> str:
        """The name that it has in gymnax."""
        return (
            self.source
            if isinstance(self.source, str)
            else getattr(self.source, "name", type(self.source).__name__)
        )

    def env_and_params(self) -> tuple[Any, PyTree]:
        """The environment and the parameters that its functions are called with."""
        return (
            _made(self.source, self.options)
            if isinstance(self.source, str)
            else (self.source, self.params)
        )

    @property
    def observation_bounds(self) -> Bounds:
        """As the space declares them; nothing for images and other observations of very many numbers."""
        return self.bounds

    def reset(self, key: Key[Array, ""]) -> GymnaxState:
        """Draw a first state, as `reset_env` does."""
        env, params = self.env_and_params()
        observation, inner = env.reset_env(key, params)
        inner, observation = jax.tree.map(jnp.asarray, (inner, observation))
        return GymnaxState(inner, observation, jnp.zeros((), bool), jnp.zeros((), bool))

    def step(
        self, state: GymnaxState, action: Num[ArrayLike, "*n"], key: Key[Array, ""]
    ) -> tuple[GymnaxState, Float[Array, ""]]:
        """Take a step, as `step_env` does, which never resets; terminated and truncated are told apart."""
        env, params = self.env_and_params()
        shaped = jnp.reshape(action, self.action_shape)
        observation, inner, reward, *flags, _ = env.step_env(key, state.inner, shaped, params)
        if len(flags) == 1 and hasattr(env, "is_truncated"):
            flags = [flags[0], env.is_truncated(inner, params)]
        elif len(flags) == 1:  # before gymnax 1.0, `done` was the one or the other
            done, endless = flags[0], _without_limit(params)
            terminated = env.step_env(key, state.inner, shaped, endless)[3]
            flags = [terminated, jnp.logical_and(done, jnp.logical_not(terminated))]
        kept = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state.inner, inner)
        ends = (jnp.asarray(flag, bool).reshape(()) for flag in flags)
        following = GymnaxState(kept, jnp.asarray(observation, state.observation.dtype), *ends)
        return following, jnp.asarray(reward, jnp.result_type(float)).reshape(())

    def observe(self, state: GymnaxState) -> Any:
        """What the last step, or the reset, returned."""
        return state.observation

    def terminated(self, state: GymnaxState) -> Bool[Array, ""]:
        """Whether the task itself has ended."""
        return state.terminated

    def truncated(self, state: GymnaxState) -> Bool[Array, ""]:
        """Whether the steps allowed are used up."""
        return state.truncated


def from_gymnax(env: Any, params: PyTree = None) -> GymnaxEnv:
    """Make an environment of gymnax, or anything with its functions, one that is trained inside JAX.

    It is stepped by `step_env`, which never resets. A time limit truncates and never terminates,
    also where an old version says only `done`: what its step says without the limit is a
    termination.

    Args:
        env: has `reset_env(key, params)`, `step_env(key, state, action, params)`,
            `action_space(params)` and `observation_space(params)`, as the environments that
            `gymnax.make` returns. A step returns five values, or six if `terminated` and
            `truncated` are told apart.
        params: what its functions are called with; by default `env.default_params`.
            `max_steps_in_episode` is the time limit, if there is one.

    Returns:
        The environment.
    """
    if not is_like_gymnax(env):
        missing = [name for name in FUNCTIONS if not callable(getattr(env, name, None))]
        got = (
            f"a class, {env.__name__}"
            if isinstance(env, type)
            else f"{type(env).__name__} without {missing[0]}"
        )
        raise ValueError(
            f"env must be an environment of gymnax, such as gymnax.make(...)[0], got {got}."
        )
    return GymnaxEnv(env, getattr(env, "default_params", None) if params is None else params)


@cache
def _made(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, PyTree]:
    """The environment of a name with its default parameters; options that are parameters replace these."""
    try:
        import gymnax
    except ImportError as error:
        raise ValueError(
            f"{PREFIX}{name} needs the package gymnax: `pip install 'occupax[gymnax]'`."
        ) from error
    if name not in gymnax.registered_envs:
        raise unknown("gymnax environment", name, gymnax.registered_envs)
    given = dict(options)
    with jax.ensure_compile_time_eval():  # kept for all programs, whichever asks first
        _, defaults = gymnax.make(name)
        fields = [field.name for field in dataclasses.fields(defaults)]
        try:
            env, params = gymnax.make(
                name, **{key: value for key, value in given.items() if key not in fields}
            )
        except TypeError as error:
            raise ValueError(
                f"{PREFIX}{name} does not take the options {given}: {error}"
            ) from error
    return env, dataclasses.replace(
        params, **{key: value for key, value in given.items() if key in fields}
    )


def _without_limit(params: PyTree) -> PyTree:
    limited = hasattr(params, "max_steps_in_episode")
    return dataclasses.replace(params, max_steps_in_episode=NEVER) if limited else params

"""Environments of gymnax, and others with its functions, which run in JAX.

gymnax itself is imported for environments by name only; any object with the functions `reset_env`,
`step_env`, `action_space` and `observation_space` is accepted.
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
    """State of a gymnax environment, and the results of its last step."""

    inner: PyTree
    observation: Any
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class GymnaxEnv(Environment):
    """A gymnax environment, by name or as an object. See `occupax.from_gymnax`.

    Args:
        source: name in gymnax, or an object with the functions of a gymnax environment.
        params: parameters of the functions of an object; those of a name are options.
        **options: passed to `gymnax.make`, or replaced in the default parameters of a name.
    """

    source: Any = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    params: PyTree
    action_space: ActionSpace = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)
    num_states: int | None = eqx.field(static=True)
    time_limit: int | None = eqx.field(static=True)
    bounds: Bounds = eqx.field(static=True)

    def __init__(self, source: Any, params: PyTree = None, **options: Any):
        self.source = source
        self.params = params
        self.options = hashable_options(options)
        self._check_functions()
        for name, value in self._read_fields().items():
            setattr(self, name, value)

    def __check_init__(self) -> None:
        if not isinstance(self.source, str):
            return
        for name, value in self._read_fields().items():
            actual = getattr(self, name)
            if actual != value:
                raise ValueError(
                    f"{name} must be that of gymnax, {value!s:.60}, got {actual!s:.60}."
                )

    def _check_functions(self) -> None:
        """Raise ValueError for an environment whose functions do not work."""
        env, params = self.env_and_params()
        limit = getattr(params, "max_steps_in_episode", None)
        if limit is not None:
            check_integer("max_steps_in_episode", limit)
            if not dataclasses.is_dataclass(params):
                raise ValueError(
                    "params must be a dataclass if they have max_steps_in_episode, got "
                    f"{shown(params)}."
                )
        fault = find_fault(env, params)
        if fault is not None:
            raise ValueError(
                f"env must be fit for training, got {self.name}: {fault.what}, {fault.actual} "
                f"instead of {fault.expected}; {fault.remedy}"
            )

    def _read_fields(self) -> dict[str, Any]:
        """Return the fields of this class that the environment determines."""
        env, params = self.env_and_params()
        actions = env.action_space(params)
        space = env.observation_space(params)
        limit = getattr(params, "max_steps_in_episode", None)
        states = getattr(space, "n", None)
        observation, _ = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), params))
        bounds: Bounds = ()
        if states is None and np.prod(observation.shape) <= MAX_BOUNDS:
            bounds = tuple(read_bounds(space, observation.shape))
        return {
            "action_space": read_action_space(actions),
            "action_shape": tuple(getattr(actions, "shape", ())),
            "num_states": None if states is None else int(states),
            "time_limit": None if limit is None else int(limit),
            "bounds": bounds,
        }

    @property
    def name(self) -> str:
        """Name in gymnax."""
        if isinstance(self.source, str):
            return self.source
        return getattr(self.source, "name", type(self.source).__name__)

    def env_and_params(self) -> tuple[Any, PyTree]:
        """Return the gymnax environment and the parameters of its functions."""
        if isinstance(self.source, str):
            return _make_of_name(self.source, self.options)
        return self.source, self.params

    @property
    def observation_bounds(self) -> Bounds:
        """Bounds that the space declares. Empty for images and other large observations."""
        return self.bounds

    def reset(self, key: Key[Array, ""]) -> GymnaxState:
        """Draw an initial state by `reset_env`."""
        env, params = self.env_and_params()
        observation, inner = env.reset_env(key, params)
        inner, observation = jax.tree.map(jnp.asarray, (inner, observation))
        return GymnaxState(inner, observation, jnp.zeros((), bool), jnp.zeros((), bool))

    def step(
        self, state: GymnaxState, action: Num[ArrayLike, "*n"], key: Key[Array, ""]
    ) -> tuple[GymnaxState, Float[Array, ""]]:
        """Take a step by `step_env`, which never resets.

        Termination and truncation are separated.
        """
        env, params = self.env_and_params()
        action = jnp.reshape(action, self.action_shape)
        observation, inner, reward, *flags, _ = env.step_env(key, state.inner, action, params)
        if len(flags) == 2:
            terminated, truncated = flags
        elif hasattr(env, "is_truncated"):
            terminated = flags[0]
            truncated = env.is_truncated(inner, params)
        else:  # before gymnax 1.0, `done` means either
            ended = flags[0]
            unlimited = _without_limit(params)
            _, _, _, terminated, _ = env.step_env(key, state.inner, action, unlimited)
            truncated = jnp.logical_and(ended, jnp.logical_not(terminated))
        next_state = GymnaxState(
            jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state.inner, inner),
            jnp.asarray(observation, state.observation.dtype),
            jnp.asarray(terminated, bool).reshape(()),
            jnp.asarray(truncated, bool).reshape(()),
        )
        return next_state, jnp.asarray(reward, jnp.result_type(float)).reshape(())

    def observe(self, state: GymnaxState) -> Any:
        """Return the observation of the last step or reset."""
        return state.observation

    def terminated(self, state: GymnaxState) -> Bool[Array, ""]:
        """Return whether the task has ended."""
        return state.terminated

    def truncated(self, state: GymnaxState) -> Bool[Array, ""]:
        """Return whether the time limit is reached."""
        return state.truncated


def from_gymnax(env: Any, params: PyTree = None) -> GymnaxEnv:
    """Wrap a gymnax environment, or any object with its functions, for training inside JAX.

    The environment is stepped by `step_env`, which never resets. A time limit truncates and never
    terminates, also in old versions that return only `done`: an end that also occurs without the
    limit is a termination.

    Args:
        env: has `reset_env(key, params)`, `step_env(key, state, action, params)`,
            `action_space(params)` and `observation_space(params)`, as the environments that
            `gymnax.make` returns. A step returns five values, or six with separate `terminated` and
            `truncated`.
        params: parameters of the functions; by default `env.default_params`.
            `max_steps_in_episode` is the time limit, if there is one.

    Returns:
        The environment.

    Raises:
        ValueError: if a function is missing or does not work.
    """
    if is_like_gymnax(env):
        if params is None:
            params = getattr(env, "default_params", None)
        return GymnaxEnv(env, params)
    if isinstance(env, type):
        problem = f"a class, {env.__name__}"
    else:
        missing = [name for name in FUNCTIONS if not callable(getattr(env, name, None))]
        problem = f"{type(env).__name__} without {missing[0]}"
    raise ValueError(
        f"env must be an environment of gymnax, such as gymnax.make(...)[0], got {problem}."
    )


@cache
def _make_of_name(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, PyTree]:
    """Return a gymnax environment and its parameters, replaced by options of the same names."""
    try:
        import gymnax
    except ImportError as error:
        raise ValueError(
            f"{PREFIX}{name} needs the package gymnax: `pip install 'occupax[gymnax]'`."
        ) from error
    if name not in gymnax.registered_envs:
        raise unknown("gymnax environment", name, gymnax.registered_envs)
    with jax.ensure_compile_time_eval():  # cached for all programs, whichever calls first
        _, defaults = gymnax.make(name)
        parameters = {field.name for field in dataclasses.fields(defaults)}
        changes = {key: value for key, value in options if key in parameters}
        arguments = {key: value for key, value in options if key not in parameters}
        try:
            env, params = gymnax.make(name, **arguments)
        except TypeError as error:
            raise ValueError(
                f"{PREFIX}{name} does not take the options {dict(options)}: {error}"
            ) from error
    return env, dataclasses.replace(params, **changes)


def _without_limit(params: PyTree) -> PyTree:
    if not hasattr(params, "max_steps_in_episode"):
        return params
    return dataclasses.replace(params, max_steps_in_episode=NEVER)

"""Environments by name."""

import builtins
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, get_args

import equinox as eqx
import jax

from occupax.envs.acrobot import Acrobot
from occupax.envs.base import DecisionProcess
from occupax.envs.cartpole import CartPole, ContinuousCartPole
from occupax.envs.gymnasium import GymnasiumEnv, check_names
from occupax.envs.gymnax import PREFIX, GymnaxEnv
from occupax.envs.lookup import closing, find, ignoring_rounded_bounds, make_gymnasium
from occupax.envs.missing_envs import missing_env_hint
from occupax.envs.mountain_car import ContinuousMountainCar, MountainCar
from occupax.envs.pendulum import Pendulum
from occupax.envs.tables import NoTableError
from occupax.envs.tabular import TabularMDP
from occupax.errors import shown, unknown

Backend = Literal["auto", "gymnasium"]

_FACTORIES: dict[str, Callable[..., DecisionProcess]] = {
    "CartPole-v0": partial(CartPole, time_limit=200),
    "CartPole-v1": partial(CartPole, time_limit=500),
    "Acrobot-v1": partial(Acrobot, time_limit=500),
    "MountainCar-v0": partial(MountainCar, time_limit=200),
    "MountainCarContinuous-v0": partial(ContinuousMountainCar, time_limit=999),
    "Pendulum-v1": partial(Pendulum, time_limit=200),
    "ContinuousCartPole-v1": partial(ContinuousCartPole, time_limit=500),
}
_GYMNASIUM_TABLES = {
    "FrozenLake-v1": (16, 4, 3),
    "FrozenLake8x8-v1": (64, 4, 3),
    "CliffWalking-v1": (48, 4, 1),
    "CliffWalkingSlippery-v1": (48, 4, 3),
    "Taxi-v4": (500, 6, 1),
}
"""Numbers of states, actions and outcomes per action of the table of each id."""


def register(name: str, factory: Callable[..., DecisionProcess]) -> None:
    """Register a factory of environments for `make`.

    Args:
        name: a new name.
        factory: a function that returns an environment; `make` passes its options on.

    Raises:
        ValueError: if the name is registered already.
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"name must be a string that is not empty, got {name!r}.")
    if name in list():
        raise ValueError(f"name must be new, but {name!r} is registered already.")
    if not callable(factory):
        raise ValueError(
            f"factory must be a function that returns an environment, got {factory!r}."
        )
    _FACTORIES[name] = factory


def list() -> builtins.list[str]:  # noqa: A001
    """Return the names of the environments of `make`.

    Returns:
        Sorted names.
    """
    return sorted([*_FACTORIES, *_GYMNASIUM_TABLES])


def table_name(env: TabularMDP) -> str | None:
    """Return the Gymnasium id of a table with default options. None for any other table."""
    for name, shape in _GYMNASIUM_TABLES.items():
        if env.successors.shape != shape:
            continue
        with suppress(ValueError):  # Gymnasium may be of another version
            known = make(name)
            if eqx.tree_equal(jax.tree.leaves(known), jax.tree.leaves(env)):
                return name
    return None


def episode_limit(env: TabularMDP, name: str | None = None) -> int | None:
    """Return the time limit in Gymnasium of a table's id.

    Args:
        env: the table, which has no time limit of its own.
        name: the id; by default the id of the table.

    Returns:
        The number of steps; None for a table without an id, or an id without a limit.
    """
    import gymnasium as gym

    spec = gym.registry.get((name or table_name(env) or "").rpartition(":")[2])
    return None if spec is None else spec.max_episode_steps


def make(
    source: DecisionProcess | str | Callable[..., Any],
    backend: Backend = "auto",
    info: Sequence[str] = (),
    **options: Any,
) -> DecisionProcess:
    """Make an environment of a name, or of a class or function.

    Args:
        source: a Gymnasium id or a registered name, for example "FrozenLake8x8-v1" or
            "CartPole-v1"; module:ID, which imports the module that registers the id first;
            "gymnax/..." and a name of gymnax; a class of environments of occupax; a class or
            function that makes a Gymnasium environment; or module:factory, where the module may be
            a file in the current directory. An environment of occupax is returned unchanged.
        backend: "auto" (default) is an exact table if Gymnasium publishes one, a JAX implementation
            if there is one, and the Gymnasium environment otherwise; "gymnasium" is always the
            Gymnasium environment.
        info: names of numbers in the `info` of a Gymnasium environment to record; see
            `GymnasiumEnv`.
        **options: passed to the factory, for example `is_slippery=False`; for gymnax also
            parameters, for example `max_steps_in_episode=100`.

    Returns:
        The environment.

    Raises:
        ValueError: if the name or an option is unknown, or the environment cannot be made.
    """
    if backend not in get_args(Backend):
        raise unknown("backend", backend, get_args(Backend))
    if not isinstance(source, str | DecisionProcess) and not callable(source):
        raise unknown("environment", source, list())
    check_names("info", info)
    if not isinstance(source, str):
        return _make_of_factory(source, info, options)
    may_replace = backend == "auto" and not info
    if source in _FACTORIES and may_replace:
        return _call(_FACTORIES[source], source, options)
    if source.startswith(PREFIX):
        if backend != "auto":
            raise ValueError(f"backend must be 'auto' for a gymnax environment, got {backend!r}.")
        if info:
            raise ValueError(f"info must be empty for a gymnax environment, got {shown(info)}.")
        return GymnaxEnv(source.removeprefix(PREFIX), **options)
    factory = find(source)
    if isinstance(factory, str):
        return _make_of_id(factory, may_replace, info, options)
    return _make_of_factory(factory, info, options)


def _make_of_id(
    name: str, may_replace: bool, info: Sequence[str], options: dict[str, Any]
) -> DecisionProcess:
    """Make the environment of a Gymnasium id, as a table if that is allowed and published."""
    import gymnasium as gym

    if ":" not in name and name not in gym.registry:
        hint = missing_env_hint(name)
        if hint is None:
            raise unknown("environment", name, list())
        raise ValueError(hint)
    if may_replace:
        instance = closing(make_gymnasium(name, options))
        with ignoring_rounded_bounds(), instance as env, suppress(NoTableError):
            return TabularMDP.from_gymnasium(env)
    return GymnasiumEnv(name, info, **options)


def _make_of_factory(factory: Any, info: Sequence[str], options: dict[str, Any]) -> DecisionProcess:
    """Make an environment of a class or function. Return an environment unchanged."""
    if isinstance(factory, DecisionProcess):
        if options or info:
            raise ValueError(
                "options and info go with a name or a class, but env is made already, got "
                f"{options}."
            )
        return factory
    if isinstance(factory, type) and issubclass(factory, DecisionProcess):
        return _call(factory, factory.__name__, options)
    return GymnasiumEnv(factory, info, **options)


def wrap(env: Any) -> DecisionProcess:
    """Return an environment. One of Gymnasium is wrapped and not closed."""
    import gymnasium as gym

    if isinstance(env, DecisionProcess):
        return env
    if not isinstance(env, gym.Env):
        raise ValueError(
            "env must be a Gymnasium id, or an environment of Gymnasium or occupax, got "
            f"{shown(env)}."
        )

    class Open(gym.Wrapper[Any, Any, Any, Any]):
        def close(self) -> None:
            """Leave the environment to its owner."""

    def make_open() -> Any:
        return Open(env)

    return GymnasiumEnv(make_open)


def implementation(source: Any) -> DecisionProcess | None:
    """Return the JAX environment of a Gymnasium id or a registered name. None without one."""
    if not isinstance(source, str) or source not in _FACTORIES:
        return None
    return _call(_FACTORIES[source], source, {})


def _call(
    factory: Callable[..., DecisionProcess], name: str, options: dict[str, Any]
) -> DecisionProcess:
    try:
        return factory(**options)
    except TypeError as error:
        raise ValueError(f"{name} does not take the options {options}: {error}") from error

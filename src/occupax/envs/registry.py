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
from occupax.envs.missing_envs import advice
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
"""How many states, actions and outcomes of an action the table of an id has."""


def register(name: str, factory: Callable[..., DecisionProcess]) -> None:
    """Make `factory` available as `make(name)`, which passes its options on to it; a name that is taken is refused."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"name must be a text that is not empty, got {name!r}.")
    if name in list():
        raise ValueError(f"name must be new, but {name!r} is registered already.")
    if not callable(factory):
        raise ValueError(
            f"factory must be a function that returns an environment, got {factory!r}."
        )
    _FACTORIES[name] = factory


def list() -> builtins.list[str]:  # noqa: A001
    """The names `make` knows, sorted."""
    return sorted([*_FACTORIES, *_GYMNASIUM_TABLES])


def table_name(env: TabularMDP) -> str | None:
    """The id of Gymnasium whose table, with default options, this is; None if it is another."""
    for name, shape in _GYMNASIUM_TABLES.items():
        if env.successors.shape == shape:
            with suppress(ValueError):  # Gymnasium may be of another version
                if eqx.tree_equal(jax.tree.leaves(make(name)), jax.tree.leaves(env)):
                    return name
    return None


def episode_limit(env: TabularMDP, name: str | None = None) -> int | None:
    """Return the most steps of an episode in Gymnasium of a table with this name, or by default of the table's id.

    A table has no clock, and so no time limit of its own. None is a table of no id, or an id
    without a limit.
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
            function that makes one of Gymnasium; or module:factory, where the module may be a file
            in the current directory. What is an environment of occupax already is returned as it
            is.
        backend: "auto" is an exact table where Gymnasium publishes one, a JAX twin where there is
            one, and the environment of Gymnasium itself elsewhere; "gymnasium" is the latter in any
            case.
        info: names of numbers in the `info` of Gymnasium's environment to record; see
            `GymnasiumEnv`.
        **options: passed to the factory, for example `is_slippery=False`; those of gymnax may be
            parameters, too, for example `max_steps_in_episode=100`.
    """
    import gymnasium as gym

    if backend not in get_args(Backend):
        raise unknown("backend", backend, get_args(Backend))
    if not isinstance(source, str | DecisionProcess) and not callable(source):
        raise unknown("environment", source, list())
    check_names("info", info)
    itself = backend == "gymnasium" or bool(info)
    if isinstance(source, str) and source in _FACTORIES and not itself:
        return _call(_FACTORIES[source], source, options)
    if isinstance(source, str) and source.startswith(PREFIX):
        if backend != "auto":
            raise ValueError(
                f"backend must be 'auto' for an environment of gymnax, got {backend!r}."
            )
        if info:
            raise ValueError(f"info must be empty for an environment of gymnax, got {shown(info)}.")
        return GymnaxEnv(source.removeprefix(PREFIX), **options)
    factory: Any = find(source) if isinstance(source, str) else source
    if not isinstance(factory, str):
        return _make_own(factory, info, options)
    if ":" not in factory and factory not in gym.registry:
        what = advice(factory)
        raise unknown("environment", factory, list()) if what is None else ValueError(what)
    if not itself:
        with (
            ignoring_rounded_bounds(),
            closing(make_gymnasium(factory, options)) as made,
            suppress(NoTableError),
        ):
            return TabularMDP.from_gymnasium(made)
    return GymnasiumEnv(factory, info, **options)


def wrap(env: Any) -> DecisionProcess:
    """Return an environment of occupax as it is, and a made environment of Gymnasium as one that is never closed."""
    import gymnasium as gym

    if isinstance(env, DecisionProcess):
        return env
    if not isinstance(env, gym.Env):
        raise ValueError(
            f"env must be a Gymnasium id, or an environment of Gymnasium or occupax, got {shown(env)}."
        )

    class Open(gym.Wrapper[Any, Any, Any, Any]):
        def close(self) -> None:
            """Leave the environment to its owner."""

    def given() -> Any:
        return Open(env)

    return GymnasiumEnv(given)


def implementation(source: Any) -> DecisionProcess | None:
    """Return the environment in JAX of a Gymnasium id or a registered name; None if there is none."""
    return (
        _call(_FACTORIES[source], source, {})
        if isinstance(source, str) and source in _FACTORIES
        else None
    )


def _make_own(factory: Any, info: Sequence[str], options: dict[str, Any]) -> DecisionProcess:
    """An environment of occupax, or of a class of such; of all else, one of Gymnasium."""
    if isinstance(factory, DecisionProcess):
        if options or info:
            raise ValueError(
                f"options and info go with a name or a class, but env is made already, got {options}."
            )
        return factory
    if isinstance(factory, type) and issubclass(factory, DecisionProcess):
        return _call(factory, factory.__name__, options)
    return GymnasiumEnv(factory, info, **options)


def _call(
    factory: Callable[..., DecisionProcess], name: str, options: dict[str, Any]
) -> DecisionProcess:
    try:
        return factory(**options)
    except TypeError as error:
        raise ValueError(f"{name} does not take the options {options}: {error}") from error

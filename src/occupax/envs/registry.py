"""Environments by name."""

import builtins
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, get_args

from occupax._errors import unknown
from occupax.envs.acrobot import Acrobot
from occupax.envs.base import DecisionProcess
from occupax.envs.cartpole import CartPole, ContinuousCartPole
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.lookup import closing, find, make_gymnasium
from occupax.envs.mountain_car import ContinuousMountainCar, MountainCar
from occupax.envs.pendulum import Pendulum
from occupax.envs.tables import NoTableError
from occupax.envs.tabular import TabularMDP

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
_GYMNASIUM_TABLES = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4")


def register(name: str, factory: Callable[..., DecisionProcess]) -> None:
    """Make `factory` available as `make(name)`, which passes its options on to it; a name that is taken is refused."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"name must be a text that is not empty, got {name!r}.")
    if name in list():
        raise ValueError(f"name must be new, but {name!r} is registered already.")
    if not callable(factory):
        raise ValueError(f"factory must be a function that returns an environment, got {factory!r}.")
    _FACTORIES[name] = factory


def list() -> builtins.list[str]:  # noqa: A001
    """The names `make` knows, sorted."""
    return sorted([*_FACTORIES, *_GYMNASIUM_TABLES])


def make(name: str, backend: Backend = "auto", info: Sequence[str] = (), **options: Any) -> DecisionProcess:
    """Make an environment of a Gymnasium id, or one that was registered.

    Args:
        name: for example "FrozenLake8x8-v1" or "CartPole-v1", or module:factory, where the factory makes an environment
            of Gymnasium and the module may be a file in the current directory.
        backend: "auto" is an exact table where Gymnasium publishes one, a JAX twin where there is one, and the
            environment of Gymnasium itself elsewhere; "gymnasium" is the latter in any case.
        info: names of numbers in the `info` of Gymnasium's environment to record; see `GymnasiumEnv`.
        **options: passed to the factory, for example `is_slippery=False`.
    """
    import gymnasium as gym

    if backend not in get_args(Backend):
        raise unknown("backend", backend, get_args(Backend))
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unknown("environment", name, list())
    itself = backend == "gymnasium" or bool(info)
    if name in _FACTORIES and not itself:
        try:
            return _FACTORIES[name](**options)
        except TypeError as error:
            raise ValueError(f"{name} does not take the options {options}: {error}") from error
    source = find(name)
    if isinstance(source, str) and ":" not in source and source not in gym.registry:
        raise unknown("environment", name, list())
    if isinstance(source, str) and not itself:
        with closing(make_gymnasium(source, options)) as made, suppress(NoTableError):
            return TabularMDP.from_gymnasium(made)
    return GymnasiumEnv(source, info, **options)

"""Environments by name."""

import builtins
from collections.abc import Callable
from functools import partial
from typing import Any

from occupax._errors import unknown
from occupax.envs.acrobot import Acrobot
from occupax.envs.base import Environment
from occupax.envs.cartpole import CartPole
from occupax.envs.tables import make_gymnasium
from occupax.envs.tabular import TabularMDP

_FACTORIES: dict[str, Callable[..., Environment]] = {
    "CartPole-v0": partial(CartPole, time_limit=200),
    "CartPole-v1": partial(CartPole, time_limit=500),
    "Acrobot-v1": partial(Acrobot, time_limit=500),
}
_GYMNASIUM_TABLES = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4")


def register(name: str, factory: Callable[..., Environment]) -> None:
    """Make `factory` available as `make(name)`.

    Args:
        name: the new name; one that is taken is refused.
        factory: returns the environment; options given to `make` are passed on to it.
    """
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


def make(name: str, **options: Any) -> Environment:
    """Make an environment: an exact table or a JAX twin of a Gymnasium id, or one that was registered.

    Args:
        name: for example "FrozenLake8x8-v1" or "CartPole-v1"; any Gymnasium id that publishes its table works.
        **options: passed to the factory, for example `is_slippery=False`.
    """
    import gymnasium as gym

    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unknown("environment", name, list())
    if name in _FACTORIES:
        try:
            return _FACTORIES[name](**options)
        except TypeError as error:
            raise ValueError(f"{name} does not take the options {options}: {error}") from error
    if name not in gym.registry:
        raise unknown("environment", name, list())
    made = make_gymnasium(name, options)
    try:
        return TabularMDP.from_gymnasium(made)
    except ValueError as error:
        raise ValueError(f"{name} has neither a table nor a JAX twin here: {error}") from error

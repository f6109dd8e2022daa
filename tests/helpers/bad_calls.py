"""Environments, problems, policies and functions that calls with invalid arguments are made of."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import occupax as ox
from occupax import policies, utilities

NAN, INF = float("nan"), float("inf")


@cache
def lake() -> Any:
    return ox.make("FrozenLake-v1")


@cache
def cartpole() -> Any:
    return ox.make("CartPole-v1")


def problem(utility: Any = None, env: Any = None, **options: Any) -> Any:
    return ox.Problem(lake() if env is None else env, utility, **options)


def key() -> Any:
    return jax.random.key(0)


def policy(env: Any = None) -> Any:
    return policies.tabular()(lake(), key()) if env is None else policies.mlp((2,))(env, key())


def table(
    transition: Any = None, reward: Any = None, initial: Any = None, terminal: Any = None
) -> Any:
    """A process of three states and two actions, with some of its arrays replaced."""
    return ox.TabularMDP(
        np.full((3, 2, 3), 1 / 3) if transition is None else transition,
        np.zeros((3, 2)) if reward is None else reward,
        [1.0, 0.0, 0.0] if initial is None else initial,
        terminal,
    )


def uniform(shape: tuple[int, int] = (16, 4), **row: Any) -> Any:
    """Uniform action probabilities, with row 3 replaced."""
    probs = np.full(shape, 1 / shape[1])
    if row:
        probs[3] = row["row"]
    return probs


def fails(*_: Any) -> Any:
    raise RuntimeError("out of coffee")


def fails_with_value_error(*_: Any) -> Any:
    raise ValueError("out of coffee")


def limit(**bounds: Any) -> Any:
    return ox.Constraint(np.ones((16, 4)), **bounds)


def reward() -> Any:
    return utilities.Reward()


def not_concave() -> Any:
    return utilities.Custom(lambda u: jnp.sum(u**2))


def trajectories() -> Any:
    return ox.sample(problem(horizon=2), policy(), 1, key())

"""Interfaces of environments: those of Gymnasium, and those sampled inside JAX."""

from abc import abstractmethod
from functools import lru_cache
from numbers import Integral
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, Num, PyTree

from occupax.envs.actions import ActionSpace, DiscreteActions
from occupax.errors import shown

Bounds = tuple[tuple[float, float], ...]


class DecisionProcess(eqx.Module):
    """Base class of all environments, with the properties that policies and problems need."""

    action_space: eqx.AbstractVar[ActionSpace]
    """Set of actions."""
    time_limit: eqx.AbstractVar[int | None]
    """Largest number of steps of an episode; None without a limit."""

    @abstractmethod
    def observation_spec(self) -> Any:
        """Return shape and dtype of one observation."""

    @property
    def observation_bounds(self) -> Bounds:
        """Lowest and highest value of each number of an observation, flat. Empty if unknown."""
        return ()

    @property
    def num_actions(self) -> int:
        """Number of discrete actions."""
        if isinstance(self.action_space, DiscreteActions):
            return self.action_space.n
        raise ValueError(
            f"{type(self).__name__} has no number of actions, because it takes {self.action_space}."
        )


class Environment(DecisionProcess):
    """A Markov decision process as pure functions of its state.

    There is no autoreset: a state for which `terminated` holds is the last one of its episode, and
    the caller decides what follows. Reaching the time limit makes a state `truncated`, never
    `terminated`.
    """

    def observation_spec(self) -> Any:
        """Return shape and dtype of one observation, by tracing."""
        double = bool(jax.config.read("jax_enable_x64"))
        try:
            hash(self)
        except TypeError:  # the environment has arrays
            return _traced_spec.__wrapped__(self, double)
        return _traced_spec(self, double)

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> PyTree:
        """Draw an initial state.

        Args:
            key: random key.

        Returns:
            The state.
        """

    @abstractmethod
    def step(
        self, state: PyTree, action: Num[ArrayLike, "*n"], key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, ""]]:
        """Take one action.

        Args:
            state: current state.
            action: action of the shape and dtype of `action_space.spec()`.
            key: random key.

        Returns:
            The next state and the reward.
        """

    @abstractmethod
    def observe(self, state: PyTree) -> Any:
        """Return the observation of a state."""

    @abstractmethod
    def terminated(self, state: PyTree) -> Bool[Array, ""]:
        """Return whether the episode ends in a state."""

    @abstractmethod
    def truncated(self, state: PyTree) -> Bool[Array, ""]:
        """Return whether the time limit truncates the episode in a state."""


@lru_cache(maxsize=8)  # tracing is slow, and the initial policy of every seed needs the spec
def _traced_spec(env: Environment, _double: bool) -> Any:
    """Return shape and dtype of an initial observation, which may depend on the precision."""
    return jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0))))


class Timed(eqx.Module):
    """State of a physical system, and the number of its steps."""

    physics: Float[Array, " n"]
    time: Int[Array, ""]


class TimeLimited(Environment):
    """An environment of `Timed` states that truncates episodes after `time_limit` steps."""

    first: ClassVar[tuple[tuple[float, float], ...]]
    """Lowest and highest value of each number of an initial state."""
    time_limit: int = eqx.field(default=500, static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def __check_init__(self):
        if not isinstance(self.time_limit, Integral) or self.time_limit < 1:
            raise ValueError(
                f"time_limit must be a positive number of steps, got {self.time_limit!r}."
            )

    def reset(self, key: Key[Array, ""]) -> Timed:
        """Draw a state at time 0, uniform between the bounds of `first`."""
        low, high = jnp.array(self.first).T
        physics = jax.random.uniform(key, low.shape, minval=low, maxval=high)
        return Timed(physics, jnp.zeros((), jnp.int32))

    def truncated(self, state: Timed) -> Bool[Array, ""]:
        """Return whether the time limit is reached, whether or not the state is terminal."""
        return jnp.asarray(state.time >= self.time_limit)


def observation_spec(env: DecisionProcess) -> Any:
    """Return shape and dtype of one observation, after a check that `env` is an environment."""
    check_environment(env)
    return env.observation_spec()


def check_environment(env: Any) -> None:
    """Raise ValueError unless `env` is an environment."""
    if not isinstance(env, DecisionProcess):
        raise ValueError(
            f"env must come from occupax.make or be an occupax environment, got {shown(env, 80)}."
        )


def reward_size(env: DecisionProcess) -> int | None:
    """Return the length of a vector reward. None for scalar rewards."""
    return getattr(env, "reward_size", None)


def number_of_states(env: DecisionProcess) -> int | None:
    """Return the number of states if observations are states. None otherwise."""
    return getattr(env, "num_states", None)

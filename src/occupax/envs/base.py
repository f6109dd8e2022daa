"""What every environment provides, and what one that is sampled inside JAX provides besides."""

from abc import abstractmethod
from functools import lru_cache
from numbers import Integral
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, Num, PyTree

from occupax.envs.actions import ActionSpace, DiscreteActions

Bounds = tuple[tuple[float, float], ...]


class DecisionProcess(eqx.Module):
    """What a policy, a feature and a problem need to know of an environment, wherever it runs."""

    action_space: eqx.AbstractVar[ActionSpace]
    """Which actions it takes."""
    time_limit: eqx.AbstractVar[int | None]

    @abstractmethod
    def observation_spec(self) -> Any:
        """Shape and dtype of one observation."""

    @property
    def observation_bounds(self) -> Bounds:
        """The lowest and the highest value of each number of an observation, flat; nothing where they are unknown."""
        return ()

    @property
    def num_actions(self) -> int:
        """How many discrete actions there are."""
        if isinstance(self.action_space, DiscreteActions):
            return self.action_space.n
        raise ValueError(
            f"{type(self).__name__} has no number of actions, because it takes {self.action_space}."
        )


class Environment(DecisionProcess):
    """A Markov decision process as pure functions of its state.

    There is no autoreset: a state for which `terminated` holds is the last one of its episode, and
    whoever steps the environment decides what to do next. Reaching the time limit makes a state
    `truncated`, never `terminated`.
    """

    def observation_spec(self) -> Any:
        """Shape and dtype of one observation, found without running the environment."""
        double = bool(jax.config.read("jax_enable_x64"))
        try:
            hash(self)
        except TypeError:  # it has arrays
            return _first_seen.__wrapped__(self, double)
        return _first_seen(self, double)

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> PyTree:
        """Draw a first state."""

    @abstractmethod
    def step(
        self, state: PyTree, action: Num[ArrayLike, "*n"], key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, ""]]:
        """Take one action; return the next state and the reward."""

    @abstractmethod
    def observe(self, state: PyTree) -> Any:
        """What the policy sees of a state."""

    @abstractmethod
    def terminated(self, state: PyTree) -> Bool[Array, ""]:
        """Whether the episode has ended in this state."""

    @abstractmethod
    def truncated(self, state: PyTree) -> Bool[Array, ""]:
        """Whether the time limit cuts the episode in this state."""


@lru_cache(maxsize=8)  # to trace an environment takes long, and the first policy of every seed asks
def _first_seen(env: Environment, _double: bool) -> Any:
    """Shape and dtype of a first observation; they may depend on the precision."""
    return jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0))))


class Timed(eqx.Module):
    """A physical system of a few numbers, and how many steps it has taken."""

    physics: Float[Array, " n"]
    time: Int[Array, ""]


class TimeLimited(Environment):
    """An environment of `Timed` states that cuts its episodes after `time_limit` steps."""

    first: ClassVar[tuple[tuple[float, float], ...]]
    """The lowest and the highest value of each number of a first state."""
    time_limit: int = eqx.field(default=500, static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def __check_init__(self):
        if not isinstance(self.time_limit, Integral) or self.time_limit < 1:
            raise ValueError(
                f"time_limit must be a positive number of steps, but it is {self.time_limit!r}."
            )

    def reset(self, key: Key[Array, ""]) -> Timed:
        """Draw a state at time 0 whose numbers are uniform between their bounds."""
        low, high = jnp.array(self.first).T
        physics = jax.random.uniform(key, low.shape, minval=low, maxval=high)
        return Timed(physics, jnp.zeros((), jnp.int32))

    def truncated(self, state: Timed) -> Bool[Array, ""]:
        """Whether the steps allowed are used up, be the state terminal or not."""
        return jnp.asarray(state.time >= self.time_limit)


def observation_spec(env: DecisionProcess) -> Any:
    """Shape and dtype of one observation of what must be an environment."""
    check_environment(env)
    return env.observation_spec()


def check_environment(env: Any) -> None:
    """Refuse what is not an environment."""
    if not isinstance(env, DecisionProcess):
        got = " ".join(repr(env).split())
        raise ValueError(
            f"env must come from occupax.make or be an occupax environment, got {got:.80}."
        )


def reward_size(env: DecisionProcess) -> int | None:
    """How many numbers a reward has, where it is a vector; None elsewhere."""
    return getattr(env, "reward_size", None)


def number_of_states(env: DecisionProcess) -> int | None:
    """How many states there are, where observations are numbers of states; None elsewhere."""
    return getattr(env, "num_states", None)

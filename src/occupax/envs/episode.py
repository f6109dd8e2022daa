"""One episode of a Gymnasium environment, in a vector of them or by itself: its seed, its loop and its time limit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, UInt32


class EpisodeFailedError(Exception):
    """An environment returned what is of no use, or raised the cause of this error; the message names the step."""


class StructureError(EpisodeFailedError):
    """A call of an environment returned something else than a tuple of the right length."""

    def __init__(self, returned: Any, expected: int, step: int):
        super().__init__(f"{useless(step)}: it is not a tuple of {expected} values")
        self.returned = returned


class Episode:
    """An episode of an environment of Gymnasium, call by call."""

    def __init__(self, env: Any, seed: int):
        self.env, self.seed, self.steps = env, seed, 0

    def begin(self) -> tuple[Any, Any]:
        """Reset the environment with the seed; return what it returns."""
        try:
            returned = self.env.reset(seed=self.seed)
        except (
            BaseException
        ) as error:  # SystemExit, too; Ctrl-C is for the main thread, where no episode is played
            raise EpisodeFailedError(f"raised {type(error).__name__} at reset") from error
        return checked(returned, 2, self.steps)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step; return what the environment returns."""
        self.steps += 1
        try:
            returned = self.env.step(action)
        except BaseException as error:
            raise raised(error, self.steps, action) from error
        return checked(returned, 5, self.steps)


def raised(error: BaseException, step: int, action: Any) -> EpisodeFailedError:
    """The error for a step that raised another one."""
    return EpisodeFailedError(f"raised {type(error).__name__} at step {step} with action {action}")


def checked(returned: Any, expected: int, step: int) -> Any:
    """What a call of an environment returned, if it is a tuple of as many values as it should be."""
    if not isinstance(returned, tuple) or len(returned) != expected:
        raise StructureError(returned, expected, step)
    return returned


def useless(step: int) -> str:
    """The beginning of a sentence about something that cannot be used."""
    return f"returned what is of no use at step {step}, as occupax.check_env can tell"


def read_number(value: Any) -> float:
    """A reward, or a value of the info, as a float; a text or an array with axes is not a number."""
    if value is True or value is False:
        return value
    if isinstance(value, str) or getattr(value, "ndim", 0) or np.iscomplexobj(value):
        raise TypeError(f"{value!r:.60} is not a number")
    return float(value)


def read_flag(value: Any) -> bool:
    """Whether an episode has ended, as True or False; a text, or an array with axes, does not say."""
    if value is True or value is False:
        return value
    if isinstance(value, str) or getattr(value, "ndim", 0) or value not in (0, 1):
        raise TypeError(f"{value!r:.60} is neither True nor False")
    return bool(value)


def episode_seeds(key: UInt32[np.ndarray, "2"], first: int, stop: int) -> list[int]:
    """The seeds of the episodes from number `first` to before `stop`; `key` is the data of a random key."""
    seeds, _ = seeds_and_keys(jax.random.wrap_key_data(jnp.asarray(key)), jnp.arange(first, stop))
    return np.asarray(seeds).tolist()


@jax.jit
def seeds_and_keys(
    key: Key[Array, ""], numbers: Int[Array, " n"]
) -> tuple[Int[Array, " n"], UInt32[Array, "n 2"]]:
    """The seed of each episode, a number that any simulator takes, and the data of the key of its actions."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    bits = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, 0)))(keys)
    return (bits >> 1).astype(jnp.int32), jax.random.key_data(keys)


def time_limit(env: Any) -> int | None:
    """How many steps the wrappers of an environment allow in an episode; None if there is no limit."""
    import gymnasium as gym

    limits: list[int] = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env.get_wrapper_attr("_max_episode_steps"))
        env = env.env
    return min(limits, default=None)

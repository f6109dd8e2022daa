"""A single episode of a Gymnasium environment: seeds, calls, and the time limit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, UInt32


class EpisodeFailedError(Exception):
    """An environment returned invalid data, or raised the cause of this error. With the step."""


class StructureError(EpisodeFailedError):
    """A call of an environment returned no tuple of the right length."""

    def __init__(self, returned: Any, expected: int, step: int):
        message = invalid_result_message(step)
        super().__init__(f"{message}: the result is not a tuple of {expected} values")
        self.returned = returned


class Episode:
    """An episode of a Gymnasium environment, call by call."""

    def __init__(self, env: Any, seed: int):
        self.env = env
        self.seed = seed
        self.steps = 0

    def begin(self) -> tuple[Any, Any]:
        """Reset the environment with the seed. Return observation and info."""
        try:
            returned = self.env.reset(seed=self.seed)
        except BaseException as error:  # SystemExit, too; Ctrl-C reaches the main thread only
            raise EpisodeFailedError(f"raised {type(error).__name__} at reset") from error
        return check_structure(returned, 2, self.steps)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step. Return the five values of the environment."""
        self.steps += 1
        try:
            returned = self.env.step(action)
        except BaseException as error:
            raise step_error(error, self.steps, action) from error
        return check_structure(returned, 5, self.steps)


def step_error(error: BaseException, step: int, action: Any) -> EpisodeFailedError:
    """Return the error for a step that raised another one."""
    return EpisodeFailedError(f"raised {type(error).__name__} at step {step} with action {action}")


def check_structure(returned: Any, expected: int, step: int) -> Any:
    """Return the result of a call if it is a tuple of the expected length. Raise otherwise."""
    if not isinstance(returned, tuple) or len(returned) != expected:
        raise StructureError(returned, expected, step)
    return returned


def invalid_result_message(step: int) -> str:
    """Return the beginning of a message about invalid data."""
    return f"returned invalid data at step {step} (run occupax.check_env for details)"


def read_number(value: Any) -> float:
    """Return a reward, or a value of the info, as a float. Raise TypeError for other values."""
    if value is True or value is False:
        return value
    if isinstance(value, str) or getattr(value, "ndim", 0) or np.iscomplexobj(value):
        raise TypeError(f"{value!r:.60} is not a number")
    return float(value)


def read_flag(value: Any) -> bool:
    """Return an end of an episode as a boolean.

    Strings and arrays with axes raise TypeError.
    """
    if value is True or value is False:
        return value
    if isinstance(value, str) or getattr(value, "ndim", 0) or value not in (0, 1):
        raise TypeError(f"{value!r:.60} is neither True nor False")
    return bool(value)


def episode_seeds(key: UInt32[np.ndarray, "2"], first: int, stop: int) -> list[int]:
    """Return the seeds of the episodes `first` to `stop - 1`. `key` is the data of a random key."""
    seeds, _ = seeds_and_keys(jax.random.wrap_key_data(jnp.asarray(key)), jnp.arange(first, stop))
    return np.asarray(seeds).tolist()


@jax.jit
def seeds_and_keys(
    key: Key[Array, ""], numbers: Int[Array, " n"]
) -> tuple[Int[Array, " n"], UInt32[Array, "n 2"]]:
    """Return the seed of each episode, a 31-bit integer, and the key data of its actions."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    bits = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, 0)))(keys)
    return (bits >> 1).astype(jnp.int32), jax.random.key_data(keys)


def time_limit(env: Any) -> int | None:
    """Return the smallest time limit of the wrappers of an environment. None without one."""
    import gymnasium as gym

    limits: list[int] = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env.get_wrapper_attr("_max_episode_steps"))
        env = env.env
    return min(limits, default=None)

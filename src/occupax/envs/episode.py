"""One episode of a Gymnasium environment, in a vector of them or by itself: its seed, its loop and its time limit."""

from collections.abc import Callable, Generator
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
    """An episode of an environment of Gymnasium, which training, `evaluate` and `check_env` play; `busy` during a call.

    `send(None)` begins it, and `send(action)` takes a step; both return what the environment returns.
    """

    def __init__(self, env: Any, seed: int):
        self.env, self.seed, self.steps, self.busy = env, seed, 0, False
        self.send = self._play().send

    def _play(self) -> Generator[Any, Any, None]:
        action = yield self._call(2, self.env.reset, seed=self.seed)
        while True:
            self.steps += 1
            action = yield self._call(5, self.env.step, action)

    def _call(self, expected: int, function: Callable[..., Any], *action: Any, **seed: int) -> Any:
        self.busy = True
        try:
            returned = function(*action, **seed)
        except BaseException as error:  # SystemExit, too; Ctrl-C is for the main thread, where no episode is played
            what = f"step {self.steps} with action {action[0]}" if action else "reset"
            raise EpisodeFailedError(f"raised {type(error).__name__} at {what}") from error
        finally:
            self.busy = False
        if not isinstance(returned, tuple) or len(returned) != expected:
            raise StructureError(returned, expected, self.steps)
        return returned


def useless(step: int) -> str:
    """The beginning of a sentence about something that cannot be used."""
    return f"returned what is of no use at step {step}, as occupax.check_env can tell"


def read_number(value: Any) -> float:
    """A reward, or a value of the info, as a float; a text or an array with axes is not a number."""
    if isinstance(value, str) or getattr(value, "ndim", 0):
        raise TypeError(f"{value!r:.60} is not a number")
    return float(value)


def read_flag(value: Any) -> bool:
    """Whether an episode has ended, as True or False; a text, or an array with axes, does not say."""
    if isinstance(value, str) or getattr(value, "ndim", 0) or value not in (0, 1):
        raise TypeError(f"{value!r:.60} is neither True nor False")
    return bool(value)


def episode_seeds(key: UInt32[np.ndarray, "2"], first: int, stop: int) -> list[int]:
    """The seeds of the episodes from number `first` to before `stop`; `key` is the data of a random key."""
    seeds, _ = seeds_and_keys(jax.random.wrap_key_data(jnp.asarray(key)), jnp.arange(first, stop))
    return np.asarray(seeds).tolist()


@jax.jit
def seeds_and_keys(key: Key[Array, ""], numbers: Int[Array, " n"]) -> tuple[Int[Array, " n"], UInt32[Array, "n 2"]]:
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

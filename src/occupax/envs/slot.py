"""One place of a vector of Gymnasium environments.

It makes the environment plain: observations are states or flat vectors, actions count from 0, and of the `info` only
the values asked for remain. It waits when there is no episode left to play, and nothing that goes wrong leaves it as
an exception, of which a vector of environments does not tell the place: it is reported in the `info`.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

FAILURE = "failure"
VALUES = "values"
LARGEST = float(np.finfo(np.float32).max)


class EpisodeFailedError(Exception):
    """What is wrong with an episode."""


class Slot(gym.Env[Any, Any]):
    """Plays an episode after each reset with a seed; after one without a seed it waits."""

    def __init__(self, make: Callable[[], Any], info: tuple[str, ...]):
        if multiprocessing.current_process().name.startswith("Worker<AsyncVectorEnv>"):
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
        self._env, self._info = make(), info
        space = self._env.observation_space
        self._first_action = int(self._env.action_space.start)
        self._first_state = int(space.start) if isinstance(space, gym.spaces.Discrete) else None
        self.action_space = gym.spaces.Discrete(int(self._env.action_space.n))
        self.observation_space: Any = gym.spaces.flatten_space(space)
        if self._first_state is not None:
            self.observation_space = gym.spaces.Discrete(int(space.n))
        self._seen = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        self._waits, self._step = True, 0
        self.busy = False
        """Whether a call of the environment is under way."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the episode of a seed, or wait."""
        del options
        self._waits, self._step = seed is None, 0
        if seed is None:
            return self._seen, {}
        try:
            observation, _ = self._call(lambda: self._env.reset(seed=seed), "reset")
            self._seen = self._read(observation)
        except Exception as error:  # noqa: BLE001 - an environment may raise and return anything
            return self._seen, {FAILURE: self._failure(error)}
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step of the episode; while waiting, nothing happens."""
        if self._waits:
            return self._seen, 0.0, False, False, {}
        self._step += 1
        taken = self._first_action + int(action)
        try:
            returned = self._call(lambda: self._env.step(taken), f"step {self._step} with action {taken}")
            observation, reward, terminated, truncated, info = returned
            self._seen = self._read(observation)
            earned = self._number("the reward", reward)
            values = {VALUES: self._values(info)} if self._info else {}
        except Exception as error:  # noqa: BLE001 - an environment may raise and return anything
            return self._seen, 0.0, True, False, {FAILURE: self._failure(error)}
        return self._seen, earned, bool(terminated), bool(truncated), values

    def close(self) -> None:
        """Close the environment; if that fails, nothing is lost."""
        with contextlib.suppress(Exception):
            self._env.close()

    def _call(self, function: Callable[[], Any], what: str) -> Any:
        self.busy = True
        try:
            return function()
        except Exception as error:
            raise EpisodeFailedError(f"raised {type(error).__name__} at {what}: {error}") from error
        finally:
            self.busy = False

    def _failure(self, error: Exception) -> str:
        if isinstance(error, EpisodeFailedError):
            return str(error)
        reason = f"{type(error).__name__}: {error}"
        return f"returned what is of no use at step {self._step}, as occupax.check_env can tell: {reason}"

    def _read(self, observation: Any) -> np.ndarray:
        """A state or a vector."""
        space, ours = self._env.observation_space, self.observation_space
        if not isinstance(space, gym.spaces.Box) and not space.contains(observation):
            raise EpisodeFailedError(f"returned {observation!r:.60} at step {self._step}, which is not in {space}")
        if self._first_state is not None:
            return np.asarray(int(observation) - self._first_state, ours.dtype)
        flat = np.array(gym.spaces.flatten(space, observation), ours.dtype)
        if flat.shape != ours.shape:
            raise EpisodeFailedError(f"returned an observation at step {self._step} that is not of {space}")
        real = np.abs(flat) <= LARGEST
        if not real.all():
            unreal = flat[~real][0]
            raise EpisodeFailedError(f"returned an observation with {unreal} at step {self._step}")
        return flat

    def _number(self, what: str, value: Any) -> float:
        number = float(value)
        if not abs(number) <= LARGEST:
            raise EpisodeFailedError(f"returned {number} as {what} at step {self._step}")
        return number

    def _values(self, info: dict[str, Any]) -> np.ndarray:
        missing = [name for name in self._info if name not in info]
        if missing:
            raise EpisodeFailedError(f"returned no {missing[0]!r} in its info at step {self._step}")
        return np.array([self._number(f"{name!r} in its info", info[name]) for name in self._info])

"""One environment of a vector of Gymnasium environments, made plain.

Observations are states or flat vectors, and actions numbers from 0 on or flat vectors. What goes wrong is reported in
the `info`: of an exception a vector of environments does not tell the place.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from occupax.envs.episode import Episode, EpisodeFailedError, read_flag, read_number, useless
from occupax.envs.gymnasium_actions import flat_space, read_actions, writing_actions

LARGEST = float(np.finfo(np.float32).max)


class VectorSlot(gym.Env[Any, Any]):
    """Plays an episode after each reset with a seed; after one without a seed it waits.

    Of the `info` only the values of the given names remain; if `flat`, observations of several parts become one vector.
    """

    def __init__(self, make: Callable[[], Any], info: tuple[str, ...], flat: bool = True):
        if multiprocessing.current_process().name.startswith("Worker<AsyncVectorEnv>"):
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
        self._env, self._info, self._flat = make(), info, flat
        self._space = space = self._env.observation_space
        self._vector: Any = gym.spaces.flatten_space(space)
        self._first_state = int(space.start) if isinstance(space, gym.spaces.Discrete) else None
        actions = read_actions(self._env.action_space)
        assert actions is not None, self._env.action_space  # noqa: S101 - the environment was looked at before
        self._write_action, self.action_space = writing_actions(self._env.action_space), flat_space(actions)
        self.observation_space: Any = self._vector if flat else space
        if self._first_state is not None:
            self.observation_space = gym.spaces.Discrete(int(space.n))
        self._seen = self.observation_space.sample()
        self._episode, self._waits = Episode(self._env, 0), True

    @property
    def busy(self) -> bool:
        """Whether a call of the environment is under way."""
        return self._episode.busy

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the episode of a seed, or wait."""
        del options
        self._waits, info = seed is None, dict[str, Any]()
        if seed is not None:
            self._episode = Episode(self._env, seed)
            try:
                self._seen = self._read(self._episode.send(None)[0])
            except BaseException as error:  # noqa: BLE001 - an environment may raise and return anything
                info["failure"] = self._failure(error)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step of the episode; while waiting, nothing happens."""
        if self._waits:
            return self._seen, 0.0, False, False, {}
        try:
            observation, reward, terminated, truncated, info = self._episode.send(self._write_action(action))
            self._seen = self._read(observation)
            earned = self._number("the reward", {"reward": reward}, "reward")
            values = np.array([self._number(f"{name!r} in its info", info, name) for name in self._info])
            ended = read_flag(terminated), read_flag(truncated)
        except BaseException as error:  # noqa: BLE001 - an environment may raise and return anything
            return self._seen, 0.0, True, False, {"failure": self._failure(error)}
        return self._seen, earned, *ended, {"values": values} if self._info else {}

    def close(self) -> None:
        """Close the environment; if that fails, nothing is lost."""
        with contextlib.suppress(BaseException):
            self._env.close()

    def _failure(self, error: BaseException) -> str:
        if isinstance(error, EpisodeFailedError):
            return str(error) if error.__cause__ is None else f"{error}: {error.__cause__}"
        return f"{useless(self._episode.steps)}: {type(error).__name__}: {error}"

    def _refuse(self, returned: str, more: str = "") -> NoReturn:
        raise EpisodeFailedError(f"returned {returned} at step {self._episode.steps}{more}")

    def _read(self, observation: Any) -> Any:
        """A state, a vector or, if they are not to be flat, all the parts."""
        space = self._space
        if not isinstance(space, gym.spaces.Box) and not space.contains(observation):
            self._refuse(f"{observation!r:.60}", f", which is not in {space}")
        if self._first_state is not None:
            return np.asarray(int(observation) - self._first_state, self.observation_space.dtype)
        vector = np.asarray(gym.spaces.flatten(space, observation), self._vector.dtype)
        if vector.shape != self._vector.shape:
            self._refuse("an observation", f" that is not of {space}")
        real = np.abs(vector) <= LARGEST
        if not real.all():
            self._refuse(f"an observation with {vector[~real][0]}")
        return vector if self._flat else observation

    def _number(self, what: str, found: dict[str, Any], name: str) -> float:
        if name not in found:
            self._refuse(f"no {what}")
        number = read_number(found[name])
        if not abs(number) <= LARGEST:
            self._refuse(f"{number} as {what}")
        return number

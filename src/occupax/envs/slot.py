"""One place of a vector of Gymnasium environments.

It makes the environment plain: observations are states or flat vectors, actions count from 0, and of the `info` only
the values asked for remain. It waits when there is no episode left to play, and nothing that goes wrong leaves it as
an exception, of which a vector of environments does not tell the place: it is reported in the `info`.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np

FAILURE = "failure"
VALUES = "values"


class EpisodeFailedError(Exception):
    """What is wrong with an episode."""


class Slot(gym.Env[Any, Any]):
    """Plays an episode after each reset with a seed; after one without a seed it waits."""

    def __init__(self, make: Callable[[], Any], info: tuple[str, ...]):
        self._env, self._info = make(), info
        self._first_action = int(self._env.action_space.start)
        self._first_state = int(getattr(self._env.observation_space, "start", 0))
        self.action_space = gym.spaces.Discrete(int(self._env.action_space.n))
        space = self._env.observation_space
        if isinstance(space, gym.spaces.Discrete):
            self.observation_space: Any = gym.spaces.Discrete(int(space.n))
        else:
            self.observation_space = gym.spaces.flatten_space(space)
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
            self._look_at(self._call(lambda: self._env.reset(seed=seed), "reset")[0])
        except EpisodeFailedError as error:
            return self._seen, {FAILURE: str(error)}
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step of the episode; while waiting, nothing happens."""
        if self._waits:
            return self._seen, 0.0, False, False, {}
        self._step += 1
        try:
            taken = self._first_action + int(action)
            returned = self._call(lambda: self._env.step(taken), f"step {self._step} with action {taken}")
            observation, reward, terminated, truncated, info = returned
            self._look_at(observation)
            self._check_reward(reward)
            values = {VALUES: self._values(info)} if self._info else {}
        except EpisodeFailedError as error:
            return self._seen, 0.0, True, False, {FAILURE: str(error)}
        return self._seen, float(reward), bool(terminated), bool(truncated), values

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _call(self, function: Callable[[], Any], what: str) -> Any:
        self.busy = True
        try:
            return function()
        except Exception as error:
            raise EpisodeFailedError(f"raised {type(error).__name__} at {what}: {error}") from error
        finally:
            self.busy = False

    def _check_reward(self, reward: Any) -> None:
        if not isfinite(reward):
            raise EpisodeFailedError(f"returned the reward {reward} at step {self._step}")

    def _look_at(self, observation: Any) -> None:
        """Make a state or a vector of an observation, and refuse one that is no number or no state."""
        space = self._env.observation_space
        if isinstance(space, gym.spaces.Discrete):
            state = int(observation) - self._first_state
            if not 0 <= state < self.observation_space.n:
                raise EpisodeFailedError(
                    f"returned the state {observation} at step {self._step}, which is not in {space}"
                )
            self._seen = np.asarray(state, self.observation_space.dtype)
            return
        try:
            flat = gym.spaces.flatten(space, observation)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise EpisodeFailedError(
                f"returned an observation at step {self._step} that is not of {space}. {reason}"
            ) from error
        self._seen = np.array(flat, self.observation_space.dtype)
        if self._seen.shape != self.observation_space.shape:
            raise EpisodeFailedError(f"returned an observation at step {self._step} that is not of {space}")
        if not np.isfinite(self._seen).all():
            unreal = self._seen[~np.isfinite(self._seen)][0]
            raise EpisodeFailedError(f"returned an observation with {unreal} at step {self._step}")

    def _values(self, info: dict[str, Any]) -> np.ndarray:
        values = np.zeros(len(self._info))
        for i, name in enumerate(self._info):
            if name not in info:
                raise EpisodeFailedError(f"returned no {name!r} in its info at step {self._step}")
            try:
                values[i] = float(info[name])
            except (TypeError, ValueError):
                values[i] = np.nan
            if not isfinite(values[i]):
                raise EpisodeFailedError(f"returned {info[name]!r:.60} as {name!r} in its info at step {self._step}")
        return values

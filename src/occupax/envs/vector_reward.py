"""Gymnasium environments with vector rewards, such as those of mo-gymnasium."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from occupax.errors import real_array


def reward_names(size: int | None) -> tuple[str, ...]:
    """Return the names of the entries of a vector reward in the `info`."""
    return tuple(f"reward[{i}]" for i in range(size or 0))


def vector_reward_size(env: Any) -> int | None:
    """Return the length of the rewards of an environment. None for scalar rewards.

    An environment with vector rewards has a `reward_space`. A wrapper around it may return scalars,
    so only a step tells.
    """
    if not hasattr(env.unwrapped, "reward_space"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's check of the first step expects a scalar
        env.reset(seed=0)
        _, reward, *_ = env.step(env.action_space.sample())
    return len(reward) if np.ndim(reward) == 1 else None


class SplitReward(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that returns the sum of a vector reward, and each entry as a value of the `info`."""

    def __init__(self, env: Any, size: int):
        super().__init__(env)
        self._names = reward_names(size)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step. Raise ValueError for a reward of another shape."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        rewards = real_array("the reward", reward).astype(np.float64)
        size = len(self._names)
        if rewards.shape != (size,):
            raise ValueError(
                f"the reward must be a vector of {size} numbers, got shape {rewards.shape}"
            )
        entries = dict(zip(self._names, rewards.tolist(), strict=True))
        return observation, float(rewards.sum()), terminated, truncated, {**info, **entries}

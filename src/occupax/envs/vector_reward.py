"""Environments of Gymnasium whose reward is a vector, as those of mo-gymnasium, made plain."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from occupax.errors import real_array


def reward_names(size: int | None) -> tuple[str, ...]:
    """What the entries of a vector of rewards are called in the `info`."""
    return tuple(f"reward[{i}]" for i in range(size or 0))


def reward_size(env: Any) -> int | None:
    """The length of the rewards of an environment; None if they are numbers.

    An environment with such rewards has a `reward_space`. A wrapper around it may make numbers of
    them, so it takes a step to know.
    """
    if not hasattr(env.unwrapped, "reward_space"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's own check of the first step wants a number
        env.reset(seed=0)
        reward = env.step(env.action_space.sample())[1]
    return len(reward) if np.ndim(reward) == 1 else None


class SplitReward(gym.Wrapper[Any, Any, Any, Any]):
    """Returns the sum of the rewards as the reward, and each of them as a value of the `info`."""

    def __init__(self, env: Any, size: int):
        super().__init__(env)
        self._names = reward_names(size)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; a reward of another shape is refused."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        rewards = real_array("the reward", reward).astype(np.float64)
        if rewards.shape != (len(self._names),):
            raise ValueError(
                f"the reward must be a vector of {len(self._names)} numbers, got shape {rewards.shape}"
            )
        named = dict(zip(self._names, rewards.tolist(), strict=True))
        return observation, float(rewards.sum()), terminated, truncated, {**info, **named}

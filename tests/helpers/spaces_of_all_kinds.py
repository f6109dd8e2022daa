"""Environments whose spaces are of any kind."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

PARTS = {
    "b": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
    "a": spaces.Discrete(3, start=1),
    "c": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]),
}


class Anything(gym.Env[Any, Any]):
    """Shows and takes whatever its spaces say, for three steps."""

    def __init__(self, observation: Any, action: Any):
        self.observation_space, self.action_space, self._left = observation, action, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 3
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._left -= 1
        return self.observation_space.sample(), 1.0, self._left == 0, False, {}

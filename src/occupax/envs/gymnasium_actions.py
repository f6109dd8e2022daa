"""The actions of Gymnasium's environments as ours, and back."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions


def read_actions(space: Any) -> ActionSpace | None:
    """Return the actions of a space of Gymnasium, flat and counted from 0; None if its kind is not supported."""
    if isinstance(space, gym.Space) and space.shape is not None and 0 in space.shape:
        return None
    match space:
        case gym.spaces.Discrete():
            return DiscreteActions(int(space.n))
        case gym.spaces.MultiDiscrete():
            return MultiDiscreteActions(space.nvec.ravel().tolist())
        case gym.spaces.MultiBinary():
            return MultiDiscreteActions([2] * int(np.prod(space.shape)))
        case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            return BoxActions(space.low.ravel().tolist(), space.high.ravel().tolist())
        case _:
            return None


def writing_actions(space: Any) -> Callable[[np.ndarray], list[Any]]:
    """A function that makes of several of our actions what the `step` of environments with this space takes."""
    match space:
        case gym.spaces.Discrete():
            first = int(space.start)
            return lambda actions: list(first + actions.astype(np.int64))
        case gym.spaces.MultiDiscrete():
            return lambda actions: list((space.start + actions.reshape(-1, *space.shape)).astype(space.dtype))
        case gym.spaces.MultiBinary():
            return lambda actions: list(actions.reshape(-1, *space.shape).astype(space.dtype))
        case _:  # clipped once more, because rounding to another type may take an action out of its bounds
            return lambda actions: list(
                np.clip(actions.reshape(-1, *space.shape).astype(space.dtype), space.low, space.high)
            )

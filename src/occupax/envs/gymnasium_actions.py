"""Conversion of actions between Gymnasium's spaces and those of this package."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions


def read_actions(space: Any) -> ActionSpace | None:
    """Return the actions of a Gymnasium space, flat and counted from 0. None if unsupported."""
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


def read_action(space: Any, action: Any) -> np.ndarray:
    """Return a Gymnasium action in the form of this package: flat, and counted from 0.

    Continuous actions may lie outside of the bounds, as those of a policy may.
    """
    invalid = ValueError(f"policy must choose an action of {space}, got {action!r:.60}.")
    try:
        array = np.asarray(action)
    except Exception as error:
        raise invalid from error
    if array.shape != space.shape and array.size != int(np.prod(space.shape)):
        raise invalid
    if isinstance(space, gym.spaces.Box):
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise invalid
        return array.reshape(-1).astype(np.float64)
    if array.dtype.kind not in "biu":
        raise invalid
    entries = array.reshape(space.shape).astype(np.int64)
    if not space.contains(entries if space.shape else int(entries)):
        raise invalid
    start = getattr(space, "start", 0)  # MultiBinary begins at 0
    return (entries - start).reshape(-1 if space.shape else ())


def action_writer(space: Any) -> Callable[[np.ndarray], list[Any]]:
    """Return a function that converts actions of this package to those of a Gymnasium space."""
    if isinstance(space, gym.spaces.Discrete):
        start = int(space.start)
        return lambda actions: list(start + actions.astype(np.int64))

    def write(actions: np.ndarray) -> list[Any]:
        shaped = actions.reshape(-1, *space.shape)
        if isinstance(space, gym.spaces.MultiDiscrete):
            shaped = space.start + shaped
        shaped = shaped.astype(space.dtype)
        if isinstance(space, gym.spaces.Box):  # rounding to the dtype may leave the bounds
            shaped = np.clip(shaped, space.low, space.high)
        return list(shaped)

    return write

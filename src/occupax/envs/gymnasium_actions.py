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


def read_action(space: Any, action: Any) -> np.ndarray:
    """Return an action that fits a space of Gymnasium as ours: flat, and counted from 0.

    Actions of real numbers need not lie within the bounds, as those of a policy need not.
    """
    wrong = ValueError(f"policy must choose an action of {space}, got {action!r:.60}.")
    try:
        array = np.asarray(action)
    except Exception as error:
        raise wrong from error
    if array.shape != space.shape and array.size != int(np.prod(space.shape)):
        raise wrong
    if isinstance(space, gym.spaces.Box):
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise wrong
        return array.reshape(-1).astype(np.float64)
    if array.dtype.kind not in "biu":
        raise wrong
    entries = array.reshape(space.shape).astype(np.int64)
    if not space.contains(entries if space.shape else int(entries)):
        raise wrong
    return (entries - _first(space)).reshape(-1 if space.shape else ())


def _first(space: Any) -> Any:
    """Return the lowest number of each entry of an action."""
    return 0 if isinstance(space, gym.spaces.MultiBinary) else space.start


def writing_actions(space: Any) -> Callable[[np.ndarray], list[Any]]:
    """A function that makes of several of our actions what the `step` of environments with this space takes."""
    match space:
        case gym.spaces.Discrete():
            first = int(space.start)
            return lambda actions: list(first + actions.astype(np.int64))
        case gym.spaces.MultiDiscrete():
            return lambda actions: list(
                (space.start + actions.reshape(-1, *space.shape)).astype(space.dtype)
            )
        case gym.spaces.MultiBinary():
            return lambda actions: list(actions.reshape(-1, *space.shape).astype(space.dtype))
        case _:  # clipped once more, because rounding to another type may take an action out of its bounds
            return lambda actions: list(
                np.clip(
                    actions.reshape(-1, *space.shape).astype(space.dtype), space.low, space.high
                )
            )

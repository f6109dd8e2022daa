"""Checks of observation spaces, and of observations against their space."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from occupax.envs.issues import EnvIssue, describe, describe_with_type, make_issue

SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def check_space(space: Any, part: str = "observation_space") -> Iterator[EnvIssue]:
    """Yield the parts of an observation space that cannot be flattened to a non-empty vector."""
    unsupported = list(_check_kinds(space, part))
    yield from unsupported
    if not unsupported and spaces.flatdim(space) == 0:
        yield make_issue("empty_space", describe(space), f"env.{part}", part=part)


def _check_kinds(space: Any, part: str) -> Iterator[EnvIssue]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _check_kinds(inner, f"{part}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from _check_kinds(inner, f"{part}[{index}]")
    elif not isinstance(space, SUPPORTED):
        yield make_issue("kind_of_space", describe(space), f"env.{part}", part=part)


def check_observation(
    space: Any, value: Any, where: str, part: str = "observation"
) -> Iterator[EnvIssue]:
    """Yield the parts of an observation outside of their space.

    Spaces that `check_space` reports are skipped.
    """
    if isinstance(space, spaces.Dict):
        yield from _check_dict(space, value, where, part)
    elif isinstance(space, spaces.Tuple):
        if isinstance(value, (tuple, list)) and len(value) == len(space.spaces):
            for index, (inner, entry) in enumerate(zip(space.spaces, value, strict=True)):
                yield from check_observation(inner, entry, where, f"{part}[{index}]")
        else:
            size = len(space.spaces)
            yield make_issue("tuple", describe_with_type(value), where, part=part, size=size)
    elif isinstance(space, spaces.Discrete):
        yield from _check_state(space, value, where, part)
    elif isinstance(space, spaces.Box):
        yield from _check_array(space, space.low, space.high, value, where, part)
    elif isinstance(space, spaces.MultiDiscrete):
        high = space.start + (space.nvec - 1)
        yield from _check_array(space, space.start, high, value, where, part)
    elif isinstance(space, spaces.MultiBinary):
        low = np.zeros(space.shape)
        yield from _check_array(space, low, low + 1, value, where, part)


def _check_dict(space: spaces.Dict, value: Any, where: str, part: str) -> Iterator[EnvIssue]:
    names = {
        "part": part,
        "keys": describe(list(space.spaces)),
        "space": part.replace("observation", "observation_space", 1),
    }
    if not isinstance(value, dict):
        yield make_issue("dict", describe_with_type(value), where, aspect="type", **names)
        return
    if set(value) != set(space.spaces):
        actual = f"the keys {describe(list(value))}"
        yield make_issue("dict", actual, where, aspect="keys", **names)
    for key, inner in space.spaces.items():
        if key in value:
            yield from check_observation(inner, value[key], where, f"{part}[{key!r}]")


def _check_state(space: Any, value: Any, where: str, part: str) -> Iterator[EnvIssue]:
    first = int(space.start)
    last = first + int(space.n) - 1
    is_integer = isinstance(value, int | np.integer)
    if isinstance(value, np.ndarray | jax.Array) and value.shape == ():
        is_integer = np.issubdtype(value.dtype, np.integer)
    names = {"part": part, "first": first, "last": last}
    if not is_integer:
        yield make_issue("state_type", describe_with_type(value), where, **names)
    elif not first <= int(value) <= last:
        yield make_issue("state_bounds", str(int(value)), where, **names)


def _check_array(
    space: Any, low: Any, high: Any, value: Any, where: str, part: str
) -> Iterator[EnvIssue]:
    """Yield the first fault among type, shape, dtype, infinities and bounds."""
    names = {"part": part, "shape": tuple(space.shape), "dtype": np.dtype(space.dtype)}
    if not isinstance(value, np.ndarray | np.generic | jax.Array):
        yield make_issue("array_type", describe_with_type(value), where, **names)
        return
    if value.shape != tuple(space.shape):
        yield make_issue("array_shape", str(value.shape), where, **names)
        return
    if isinstance(space, spaces.MultiBinary):  # any integers are accepted
        is_castable = np.dtype(value.dtype).kind in "biu"
    else:
        is_castable = np.can_cast(value.dtype, space.dtype)
    if not is_castable:
        returned = value.dtype
        yield make_issue("array_dtype", str(returned), where, returned=returned, **names)
        return
    value = np.asarray(value)
    is_infinite = ~np.isfinite(value)
    is_outside = (value < low) | (value > high)
    if is_infinite.any():
        actual = _first_entry(value, is_infinite, part)
        yield make_issue("array_not_finite", actual, where, part=part)
    elif is_outside.any():
        index = tuple(np.argwhere(is_outside)[0])
        actual = _first_entry(value, is_outside, part)
        yield make_issue("array_bounds", actual, where, part=part, low=low[index], high=high[index])


def _first_entry(value: Any, is_wrong: Any, part: str) -> str:
    """Return the first wrong entry, and the number of further ones."""
    index = tuple(int(i) for i in np.argwhere(is_wrong)[0])
    entry = f"{part}{list(index)}" if index else part
    count = int(is_wrong.sum())
    more = f", and {count - 1} other entries" if count > 1 else ""
    return f"{entry} is {value[index]}{more}"

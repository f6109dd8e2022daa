"""Whether observations are of a kind that can be learned from, and lie in their space."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from occupax.envs.check.findings import Finding, kind, text

KINDS = "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"


def check_space(space: Any, part: str = "observation_space") -> Iterator[Finding]:
    """Name the parts of an observation space that cannot be made a vector of numbers."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from check_space(inner, f"{part}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from check_space(inner, f"{part}[{index}]")
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        yield Finding(
            "error",
            f"{part} is of a kind that Occupax does not take",
            KINDS,
            text(space),
            f"env.{part}",
            "make it a vector: gymnasium.wrappers.TransformObservation(env, function, gymnasium.spaces.Box(...)).",
        )


def check_observation(space: Any, value: Any, where: str, part: str = "observation") -> Iterator[Finding]:
    """Name the parts of an observation that do not lie in their space; one that `check_space` refuses is left out.

    Args:
        space: the space, or a part of it.
        value: the observation, or that part of it.
        where: the call that returned it.
        part: what to call it.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        yield from _check_dict(space, value, where, part)
    elif isinstance(space, spaces.Tuple):
        yield from _check_tuple(space, value, where, part)
    elif isinstance(space, spaces.Discrete):
        yield from _check_discrete(space, value, where, part)
    elif isinstance(space, spaces.Box):
        yield from _check_array(space, space.low, space.high, value, where, part)
    elif isinstance(space, spaces.MultiDiscrete):
        yield from _check_array(space, space.start, space.start + (space.nvec - 1), value, where, part)
    elif isinstance(space, spaces.MultiBinary):
        yield from _check_array(space, np.zeros(space.shape), np.ones(space.shape), value, where, part)


def _check_dict(space: Any, value: Any, where: str, part: str) -> Iterator[Finding]:
    keys = list(space.spaces)
    expected = f"a dict with the keys {text(keys)}"
    remedy = f"return a dict with exactly the keys of env.{part.replace('observation', 'observation_space', 1)}."
    if not isinstance(value, dict):
        yield Finding("error", f"{part} has the wrong type", expected, kind(value), where, remedy)
        return
    if set(value) != set(keys):
        yield Finding("error", f"{part} has the wrong keys", expected, f"the keys {text(list(value))}", where, remedy)
    for key in keys:
        if key in value:
            yield from check_observation(space[key], value[key], where, f"{part}[{key!r}]")


def _check_tuple(space: Any, value: Any, where: str, part: str) -> Iterator[Finding]:
    if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
        expected = f"a tuple of {len(space.spaces)} parts"
        remedy = "return a tuple with one part for each part of its space."
        yield Finding("error", f"{part} has the wrong type", expected, kind(value), where, remedy)
        return
    for index, (inner, entry) in enumerate(zip(space.spaces, value, strict=True)):
        yield from check_observation(inner, entry, where, f"{part}[{index}]")


def _check_discrete(space: Any, value: Any, where: str, part: str) -> Iterator[Finding]:
    first, last = int(space.start), int(space.start) + int(space.n) - 1
    expected = f"a whole number from {first} to {last}"
    is_scalar = isinstance(value, (np.ndarray, jax.Array)) and value.shape == ()
    if not isinstance(value, (int, np.integer)) and not (is_scalar and np.issubdtype(value.dtype, np.integer)):
        yield Finding("error", f"{part} has the wrong type", expected, kind(value), where, "return int(...) of it.")
    elif not first <= int(value) <= last:
        remedy = f"correct the state, or declare {part} as Discrete with a larger n or another start."
        yield Finding("error", f"{part} is out of bounds", expected, str(int(value)), where, remedy)


def _check_array(space: Any, low: Any, high: Any, value: Any, where: str, part: str) -> Iterator[Finding]:
    shape, dtype = tuple(space.shape), np.dtype(space.dtype)
    if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
        expected = f"an array of shape {shape} and dtype {dtype}"
        remedy = f"return np.asarray(..., dtype=np.{dtype})."
        yield Finding("error", f"{part} has the wrong type", expected, kind(value), where, remedy)
    elif value.shape != shape:
        remedy = "return an array of that shape, or declare the shape that is returned in the space."
        yield Finding("error", f"{part} has the wrong shape", str(shape), str(value.shape), where, remedy)
    elif not _fits(np.dtype(value.dtype), space):
        remedy = f"return it with .astype(np.{dtype}), or declare dtype=np.{value.dtype} in the space."
        yield Finding("error", f"{part} has the wrong dtype", str(dtype), str(value.dtype), where, remedy)
    else:
        yield from _check_values(np.asarray(value), low, high, where, part)


def _fits(dtype: np.dtype[Any], space: Any) -> bool:
    """Whether numbers of a dtype can be read as those of the space; MultiBinary takes any whole numbers."""
    from gymnasium import spaces

    return dtype.kind in "biu" if isinstance(space, spaces.MultiBinary) else np.can_cast(dtype, space.dtype)


def _check_values(value: Any, low: Any, high: Any, where: str, part: str) -> Iterator[Finding]:
    """Name the first entry that is not finite, or else the first that is out of bounds."""
    infinite, outside = ~np.isfinite(value), (value < low) | (value > high)
    if infinite.any():
        actual = _first(value, infinite, part)
        remedy = "look for a division by zero or an overflow in what computes it."
        yield Finding("error", f"{part} is not finite", "finite numbers", actual, where, remedy)
    elif outside.any():
        index = tuple(np.argwhere(outside)[0])
        expected = f"from {low[index]} to {high[index]} there"
        remedy = "clip it with np.clip, or declare wider bounds in the space."
        yield Finding("error", f"{part} is out of bounds", expected, _first(value, outside, part), where, remedy)


def _first(value: Any, wrong: Any, part: str) -> str:
    """The first entry that is wrong, and how many more there are."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{part}{list(index)}" if index else part
    more = f", and {wrong.sum() - 1} other entries" if wrong.sum() > 1 else ""
    return f"{place} is {value[index]}{more}"

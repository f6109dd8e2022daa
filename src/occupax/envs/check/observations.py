"""Whether observations are of a kind that can be learned from, and lie in their space."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from occupax.envs.check.findings import Finding, found, kind, text


def check_space(space: Any, part: str = "observation_space") -> Iterator[Finding]:
    """Name the parts of an observation space that cannot be made a vector of at least one number."""
    unfit = list(_check_kinds(space, part))
    yield from unfit
    if not unfit and spaces.flatdim(space) == 0:
        yield found("empty_space", text(space), f"env.{part}", part=part)


def _check_kinds(space: Any, part: str) -> Iterator[Finding]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, inner in (
            space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        ):
            yield from _check_kinds(inner, f"{part}[{key!r}]")
    elif not isinstance(
        space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    ):
        yield found("kind_of_space", text(space), f"env.{part}", part=part)


def check_observation(
    space: Any, value: Any, where: str, part: str = "observation"
) -> Iterator[Finding]:
    """Name the parts of an observation that do not lie in their space; one that `check_space` refuses is left out."""
    if isinstance(space, spaces.Dict):
        is_dict = isinstance(value, dict)
        if not is_dict or set(value) != set(space.spaces):
            aspect, actual = (
                ("keys", f"the keys {text(list(value))}") if is_dict else ("type", kind(value))
            )
            names = {"part": part, "keys": text(list(space.spaces)), "aspect": aspect}
            yield found(
                "dict",
                actual,
                where,
                space=part.replace("observation", "observation_space", 1),
                **names,
            )
        for key in [key for key in space.spaces if is_dict and key in value]:
            yield from check_observation(space[key], value[key], where, f"{part}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if isinstance(value, (tuple, list)) and len(value) == len(space.spaces):
            for index, (inner, entry) in enumerate(zip(space.spaces, value, strict=True)):
                yield from check_observation(inner, entry, where, f"{part}[{index}]")
        else:
            yield found("tuple", kind(value), where, part=part, size=len(space.spaces))
    else:
        yield from _check_numbers(space, value, where, part)


def _check_numbers(space: Any, value: Any, where: str, part: str) -> Iterator[Finding]:
    if isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start) + int(space.n) - 1
        is_scalar = isinstance(value, (np.ndarray, jax.Array)) and value.shape == ()
        if not isinstance(value, (int, np.integer)) and not (
            is_scalar and np.issubdtype(value.dtype, np.integer)
        ):
            yield found("state_type", kind(value), where, part=part, first=first, last=last)
        elif not first <= int(value) <= last:
            yield found("state_bounds", str(int(value)), where, part=part, first=first, last=last)
    elif isinstance(space, spaces.Box):
        yield from _check_array(space, space.low, space.high, value, where, part)
    elif isinstance(space, spaces.MultiDiscrete):
        yield from _check_array(
            space, space.start, space.start + (space.nvec - 1), value, where, part
        )
    elif isinstance(space, spaces.MultiBinary):
        yield from _check_array(
            space, np.zeros(space.shape), np.ones(space.shape), value, where, part
        )


def _check_array(
    space: Any, low: Any, high: Any, value: Any, where: str, part: str
) -> Iterator[Finding]:
    """Name the first of the type, shape, dtype, infinities and bounds that is wrong."""
    names = {"part": part, "shape": tuple(space.shape), "dtype": np.dtype(space.dtype)}
    if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
        yield found("array_type", kind(value), where, **names)
        return
    whole = np.dtype(value.dtype).kind in "biu"  # MultiBinary takes any whole numbers
    if value.shape != tuple(space.shape):
        yield found("array_shape", str(value.shape), where, **names)
    elif not (
        whole if isinstance(space, spaces.MultiBinary) else np.can_cast(value.dtype, space.dtype)
    ):
        yield found("array_dtype", str(value.dtype), where, returned=value.dtype, **names)
    else:
        value = np.asarray(value)
        infinite, outside = ~np.isfinite(value), (value < low) | (value > high)
        if infinite.any():
            yield found("array_not_finite", _first(value, infinite, part), where, part=part)
        elif outside.any():
            index = tuple(np.argwhere(outside)[0])
            bounds = {"low": low[index], "high": high[index]}
            yield found("array_bounds", _first(value, outside, part), where, part=part, **bounds)


def _first(value: Any, wrong: Any, part: str) -> str:
    """The first entry that is wrong, and how many more there are."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{part}{list(index)}" if index else part
    more = f", and {wrong.sum() - 1} other entries" if wrong.sum() > 1 else ""
    return f"{place} is {value[index]}{more}"

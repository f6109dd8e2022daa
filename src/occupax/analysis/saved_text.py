"""Saved values as text, from the JSON and the arrays of `codec.pack`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from occupax.display import MAX_NUMBERS
from occupax.io.codec import class_name


def words(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """Return a saved value much as Python would write it.

    Args:
        description: Result of `codec.pack`.
        arrays: The arrays that the description refers to.

    Returns:
        The text. Fields that are None are left out, and large arrays shown by their shape.
    """
    match description:
        case {"class": str(), "fields": dict() as fields}:
            parts: list[str] = []
            for name, field in fields.items():
                if field is not None:
                    parts.append(f"{name}={words(field, arrays)}")
            return f"{class_name(description)}({', '.join(parts)})"
        case {"opaque": str()} | {"function": str()}:
            return class_name(description)
        case {"tuple": list() as parts} | (list() as parts):
            return f"({', '.join(words(part, arrays) for part in parts)})"
        case {"array": str() as name}:
            return _array_words(arrays[name])
        case {"float": str() as number}:
            return number
        case float():
            return f"{description:,.6g}"
        case None:
            return "none"
        case _:
            return str(description)


def _array_words(array: np.ndarray) -> str:
    if array.size > MAX_NUMBERS:
        return f"array {' x '.join(map(str, array.shape))}"
    numbers = ", ".join(f"{float(number):,.6g}" for number in array.ravel())
    if array.ndim == 0:
        return numbers
    return f"[{numbers}]"


def environment_words(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """Return a saved environment in words, a table by its size."""
    if class_name(description) != "TabularMDP":
        return words(description, arrays)
    successors = description["fields"]["successors"]["array"]
    states, actions, _ = arrays[successors].shape
    return f"TabularMDP({states:,} states, {actions:,} actions)"

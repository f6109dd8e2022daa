"""Saved values as text, from the JSON and the arrays of `codec.pack`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from occupax.display import MOST_NUMBERS
from occupax.io.codec import class_name


def words(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """What `codec.pack` made of a value, in words, much as Python would write it."""
    match description:
        case {"class": str(), "fields": dict() as fields}:
            parts = ", ".join(
                f"{name}={words(field, arrays)}"
                for name, field in fields.items()
                if field is not None
            )
            return f"{class_name(description)}({parts})"
        case {"opaque": str()} | {"function": str()}:
            return class_name(description)
        case {"tuple": list() as parts} | (list() as parts):
            return f"({', '.join(words(part, arrays) for part in parts)})"
        case {"array": str() as name}:
            array = arrays[name]
            numbers = ", ".join(f"{float(number):,.6g}" for number in array.ravel()[:MOST_NUMBERS])
            shape = " x ".join(map(str, array.shape))
            return (
                (numbers if array.ndim == 0 else f"[{numbers}]")
                if array.size <= MOST_NUMBERS
                else f"array {shape}"
            )
        case {"float": str() as number}:
            return number
        case float():
            return f"{description:,.6g}"
        case _:
            return "none" if description is None else str(description)


def environment_words(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """What `codec.pack` made of an environment, in words."""
    if class_name(description) != "TabularMDP":
        return words(description, arrays)
    states, actions, _ = arrays[description["fields"]["successors"]["array"]].shape
    return f"TabularMDP({states:,} states, {actions:,} actions)"

"""The configuration of a run in words, read from `config.json`: it is there even where no object can be restored."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from occupax.serial import class_name
from occupax.training.result import Result

MOST_NUMBERS = 6
"""Larger arrays are given by their shape."""


def settings(result: Result) -> list[tuple[str, str]]:
    """What was trained and with what, in pairs of a name and a text; the run need not have been restored."""
    setup, arrays = result.config["setup"], result.arrays
    problem = setup["problem"].get("fields", {})
    every = "iteration" if setup["record_every"] == 1 else f"{setup['record_every']} iterations"
    parts = ("utility", "features", "discount", "horizon", "termination")
    return [
        ("Environment", _environment(problem.get("env"), arrays)),
        *((name.capitalize(), words(problem.get(name), arrays)) for name in parts),
        ("Algorithm", words(setup["algorithm"], arrays)),
        ("Policy", class_name(setup["policy"])),
        ("Episodes", f"{result.config['episodes']:,} for each seed"),
        ("Seeds", _seeds(result.seeds)),
        ("Records", f"one every {every}, {len(result.episodes):,} in all"),
        ("Time", f"{result.seconds:,.0f} seconds"),
        ("Versions", _versions(result.config["versions"])),
    ]


def words(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """A value that `serial.pack` made a description and arrays of in words, much as Python would write it."""
    match description:
        case {"class": str(), "fields": dict() as fields}:
            parts = ", ".join(f"{name}={words(field, arrays)}" for name, field in fields.items() if field is not None)
            return f"{class_name(description)}({parts})"
        case {"opaque": str()} | {"function": str()}:
            return class_name(description)
        case {"tuple": list() as parts} | (list() as parts):
            return f"({', '.join(words(part, arrays) for part in parts)})"
        case {"array": str() as name}:
            array = arrays[name]
            numbers = ", ".join(f"{float(number):,.6g}" for number in array.ravel()[:MOST_NUMBERS])
            shape = " x ".join(map(str, array.shape))
            return (numbers if array.ndim == 0 else f"[{numbers}]") if array.size <= MOST_NUMBERS else f"array {shape}"
        case {"float": str() as number}:
            return number
        case float():
            return f"{description:,.6g}"
        case _:
            return "none" if description is None else str(description)


def _environment(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """The environment; of a table its size instead of its arrays."""
    if class_name(description) != "TabularMDP":
        return words(description, arrays)
    states, actions, _ = arrays[description["fields"]["successors"]["array"]].shape
    return f"TabularMDP of {states:,} states and {actions:,} actions"


def _seeds(seeds: tuple[int, ...]) -> str:
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 2 and seeds == tuple(range(first, last + 1)):
        return f"{len(seeds)} ({first} to {last})"
    return ", ".join(map(str, seeds))


def _versions(versions: Mapping[str, Any]) -> str:
    names = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "float64")
    return f"{names}; {'float64' if versions.get('float64') else 'float32'}"

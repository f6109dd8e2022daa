"""Runs and their numbers in words.

The configuration of a run is read from `config.json`: it is there even where no object can be restored.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from occupax.serial import class_name
from occupax.training.result import Result

MOST_NUMBERS = 6
"""Larger arrays are given by their shape."""
UNKNOWN = "\N{EN DASH}"
"""The text in the place of a number that is not known."""


class MetricWords(NamedTuple):
    """A metric in words; `metrics.toml` explains the fields."""

    label: str
    meaning: str
    shown: str = ""
    from_zero: bool = False


METRICS = {
    metric: MetricWords(**entry)
    for metric, entry in tomllib.loads(files("occupax.analysis").joinpath("metrics.toml").read_text("utf-8")).items()
}
HEADLINES, DIAGNOSTICS = ([metric for metric, it in METRICS.items() if it.shown == size] for size in ("large", "small"))
"""The metrics that a report shows large, and those that it shows small as far as they were recorded."""


def describe_metric(metric: str) -> MetricWords:
    """A metric in words; one without any is called by its name."""
    return METRICS.get(metric, MetricWords(metric.replace("_", " "), ""))


def number(value: Any) -> str:
    """A number for a table: four digits, or all of a whole number."""
    if np.isnan(value):
        return UNKNOWN
    if value == 0 or isinstance(value, np.integer) or 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:#.4g}".removesuffix(".")


def settings(result: Result) -> list[tuple[str, str]]:
    """What was trained and with what, in pairs of a name and a text; the run need not have been restored."""
    setup, arrays = result.config["setup"], result.arrays
    problem = setup["problem"].get("fields", {})
    versions = [f"{name} {version}" for name, version in result.config["versions"].items() if name != "float64"]
    precision = "float64" if result.config["versions"].get("float64") else "float32"
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
        ("Versions", f"{', '.join(versions)}; {precision}"),
    ]


def words(description: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """What `serial.pack` made of a value, in words, much as Python would write it."""
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
    if class_name(description) != "TabularMDP":
        return words(description, arrays)
    states, actions, _ = arrays[description["fields"]["successors"]["array"]].shape
    return f"TabularMDP of {states:,} states and {actions:,} actions"


def _seeds(seeds: tuple[int, ...]) -> str:
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 2 and seeds == tuple(range(first, last + 1)):
        return f"{len(seeds)} ({first} to {last})"
    return ", ".join(map(str, seeds))

"""What the recorded numbers are called and what they mean."""

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

UNKNOWN = "\N{EN DASH}"
"""The text in the place of a number that is not known."""


class Words(NamedTuple):
    """A metric in words; `words.toml` explains the fields."""

    label: str
    meaning: str
    shown: str = ""
    from_zero: bool = False


METRICS = {
    metric: Words(**entry)
    for metric, entry in tomllib.loads(files(__package__).joinpath("words.toml").read_text("utf-8")).items()
}
HEADLINES, DIAGNOSTICS = ([metric for metric, it in METRICS.items() if it.shown == size] for size in ("large", "small"))
"""The metrics that a report shows large, and those that it shows small as far as they were recorded."""


def describe_metric(metric: str) -> Words:
    """A metric in words; one without any is called by its name."""
    return METRICS.get(metric, Words(metric.replace("_", " "), ""))


def number(value: Any) -> str:
    """A number for a table: four digits, or all of a whole number."""
    if np.isnan(value):
        return UNKNOWN
    if value == 0 or isinstance(value, np.integer) or 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:#.4g}".removesuffix(".")

"""What an experiment has to show: claims with verdicts, figures and tables; the words are in `report.toml`."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from operator import getitem
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from occupax.analysis.charts import Chart, Maps
from occupax.analysis.describe import number
from occupax.analysis.statistics import Interval, bootstrap, interquartile_mean

TEXTS = tomllib.loads((files("occupax.experiments") / "report.toml").read_text(encoding="utf-8"))
Verdict = Literal["reproduced", "partly", "not reproduced", "cannot tell"]
Seeds = Float[np.ndarray, " seed"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be true or false, and what was measured."""

    where: str
    """The section of the paper."""
    says: str
    """What it says, in our words."""
    setting: str
    """Which settings were used: "printed", "tuned", or what was computed."""
    measured: str
    verdict: Verdict


@dataclass(frozen=True)
class TextTable:
    """Numbers in rows, as text; the first `words` columns are words."""

    name: str
    caption: str
    header: Sequence[str]
    words: int
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    anchor: str
    title: str
    text: str
    claims: Sequence[Claim] = ()
    figures: Sequence[Chart | Maps] = ()
    tables: Sequence[TextTable] = ()


def text(*place: str, **values: Any) -> Any:
    """The text at a place of the file, or all that are there by name, with values for the fields in braces."""
    return _filled(reduce(getitem, place, TEXTS), values)


def _filled(entry: Any, values: dict[str, Any]) -> Any:
    if isinstance(entry, dict):
        return {name: _filled(part, values) for name, part in entry.items()}
    if isinstance(entry, list):
        return [_filled(part, values) for part in entry]
    return " ".join(entry.format(**values).split()) if isinstance(entry, str) else entry


def claim(name: str, tests: Iterable[bool | None], **values: Any) -> Claim:
    """A claim of the texts, with what tests of it come to; `values` are what was measured."""
    found = list(tests)
    return Claim(**text("claims", name, tally=tally(found), **values), verdict=verdict(found))


def verdict(tests: Iterable[bool | None]) -> Verdict:
    """Reproduced if all tests hold; partly if some do; not if none does and one fails; None is one that cannot tell."""
    found = list(tests)
    if found and all(found):
        return "reproduced"
    if any(found):
        return "partly"
    return "not reproduced" if any(test is False for test in found) else "cannot tell"


def tally(tests: Sequence[bool | None]) -> str:
    """How many tests hold, in words."""
    held, failed = sum(test is True for test in tests), sum(test is False for test in tests)
    return f"{held} of {len(tests)} hold, {failed} are refuted, {len(tests) - held - failed} cannot be told"


def answer(test: bool | None) -> str:
    """The outcome of a test in words."""
    return {True: "yes", False: "no", None: "cannot tell"}[test]


def above(interval: Interval, bound: float = 0.0) -> bool | None:
    """Whether a number is above a bound, for all that its interval says; None if the bound lies within."""
    if interval.lower > bound:
        return True
    return False if interval.upper < bound else None


def centre(values: Seeds) -> Interval:
    """The interquartile mean over seeds and its 95% bootstrap interval; the number itself if there is one seed only."""
    if len(values) > 1:
        return bootstrap(values)
    return Interval(*[interquartile_mean(values)] * 3)


def upper_median(values: np.ndarray) -> np.ndarray:
    """The upper median over seeds, which is one of the values: an infinite one never makes a mean."""
    return np.asarray(np.sort(values, axis=0)[len(values) // 2])


def median(values: Seeds) -> Interval:
    """The median over seeds, which may be infinite, and its 95% bootstrap interval."""
    return bootstrap(values, upper_median)


def shown(interval: Interval) -> str:
    """A number and its interval."""
    estimate, lower, upper = ("never" if np.isinf(bound) else number(bound) for bound in interval)
    return estimate if estimate == lower == upper else f"{estimate} [{lower}, {upper}]"

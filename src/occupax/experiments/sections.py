"""What an experiment has to show: claims with verdicts, figures and tables; the words are in `report.toml`."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from operator import getitem
from typing import Any, Literal

import numpy as np

from occupax.analysis.charts import Chart, Maps
from occupax.analysis.describe import number
from occupax.analysis.statistics import Interval

TEXTS = tomllib.loads((files("occupax.experiments") / "report.toml").read_text(encoding="utf-8"))
Verdict = Literal["reproduced", "partly", "not reproduced", "cannot tell"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be true or false, and what was measured."""

    where: str
    """The section of the paper."""
    says: str
    """What it says, in our words."""
    on: str
    """The task and the settings that were used, or what was computed."""
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
    folded: bool = False
    """Whether a reader must open it to see more than its caption."""


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    anchor: str
    title: str
    text: str
    claims: Sequence[Claim] = ()
    figures: Sequence[Chart | Maps] = ()
    tables: Sequence[TextTable] = ()

    @property
    def pairs(self) -> list[Sequence[Chart | Maps]]:
        """The figures, two side by side."""
        return [self.figures[at : at + 2] for at in range(0, len(self.figures), 2)]


def text(*place: str, **values: Any) -> Any:
    """The text at a place of the file, or all that are there by name, with values for the fields in braces."""
    return _filled(reduce(getitem, place, TEXTS), values)


def _filled(entry: Any, values: dict[str, Any]) -> Any:
    if isinstance(entry, dict):
        return {name: _filled(part, values) for name, part in entry.items()}
    if isinstance(entry, list):
        return [_filled(part, values) for part in entry]
    return " ".join(entry.format(**values).split()) if isinstance(entry, str) else entry


def claim(
    name: str, tests: Mapping[str, bool | None], measured: str, on: str, **values: Any
) -> Claim:
    """A claim of the texts, with the verdict of tests of its parts, what was measured, and on what."""
    return Claim(
        **text("claims", name, **values), on=on, measured=measured, verdict=verdict(tests.values())
    )


def verdict(tests: Iterable[bool | None]) -> Verdict:
    """Reproduced if all tests hold; partly if some do; not if none does and one fails; None is one that cannot tell."""
    found = list(tests)
    if found and all(found):
        return "reproduced"
    if any(found):
        return "partly"
    return "not reproduced" if any(test is False for test in found) else "cannot tell"


def parts(tests: Mapping[str, bool | None]) -> str:
    """Which parts of a claim hold, which are refuted and of which that cannot be told, unless they are all alike."""
    kinds = {True: "Holds", False: "Refuted", None: "Cannot tell"}
    if len(set(tests.values())) < 2:
        return ""
    listed = {
        kind: [name for name, test in tests.items() if test is of] for of, kind in kinds.items()
    }
    return " " + " ".join(f"{kind}: {', '.join(names)}." for kind, names in listed.items() if names)


def answer(test: bool | None) -> str:
    """The outcome of a test in words."""
    return {True: "yes", False: "no", None: "cannot tell"}[test]


def ordered(test: bool | None) -> str:
    """Where the first of two stands, by the test whether it is above the second."""
    return {True: "ahead of", False: "behind", None: "not told apart from"}[test]


def shown(interval: Interval) -> str:
    """A number and its interval."""
    estimate, lower, upper = ("never" if np.isinf(bound) else number(bound) for bound in interval)
    return estimate if estimate == lower == upper else f"{estimate} [{lower}, {upper}]"

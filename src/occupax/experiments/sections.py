"""Sections of the report: claims with verdicts, figures and tables. `report.toml` has the words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from occupax.analysis.charts import Chart, Maps
from occupax.analysis.describe import number
from occupax.analysis.statistics import Interval
from occupax.analysis.text_table import TextTable
from occupax.analysis.texts import Texts
from occupax.experiments.inference import Answer

TEXTS = Texts("occupax.experiments", "report.toml")
text = TEXTS.get
Verdict = Literal["reproduced", "partly", "not reproduced", "cannot tell"]
Tests = Mapping[str, Answer]
"""Results of the tests of a claim, by the name of the part."""


@dataclass(frozen=True)
class Claim:
    """Statement of the paper that can be true or false, and its measurement."""

    where: str
    """Section of the paper."""
    says: str
    """Statement in our words."""
    on: str
    """Task and hyperparameters, or the computed quantity."""
    measured: str
    verdict: Verdict


@dataclass(frozen=True)
class Section:
    """Part of the report."""

    anchor: str
    title: str
    text: str
    claims: Sequence[Claim] = ()
    figures: Sequence[Chart | Maps] = ()
    tables: Sequence[TextTable] = ()

    @property
    def pairs(self) -> list[Sequence[Chart | Maps]]:
        """Figures in pairs, side by side."""
        return [self.figures[i : i + 2] for i in range(0, len(self.figures), 2)]


def claim(name: str, tests: Tests, measured: str, on: str, **values: Any) -> Claim:
    """Return a claim of the texts with the verdict of its tests and its measurement."""
    words = text("claims", name, **values)
    measured = " ".join(measured.split())
    return Claim(**words, on=on, measured=measured, verdict=verdict(tests.values()))


def table(name: str, rows: Sequence[Sequence[str]], **values: Any) -> TextTable:
    """Return a table of the texts with its rows."""
    return TextTable(**text("tables", name, **values), rows=rows)


def verdict(answers: Iterable[Answer]) -> Verdict:
    """Return "reproduced" if all tests hold, "partly" if some do, "not reproduced" if one fails."""
    answers = list(answers)
    if answers and all(answers):
        return "reproduced"
    if any(answers):
        return "partly"
    if False in answers:
        return "not reproduced"
    return "cannot tell"


def parts(tests: Tests) -> str:
    """Return the parts of a claim that hold and fail, unless all are alike."""
    if len(set(tests.values())) < 2:
        return ""
    sentences: list[str] = []
    for word, answer in (("Holds", True), ("Refuted", False), ("Cannot tell", None)):
        names = names_with(tests, answer)
        if names:
            sentences.append(f" {word}: {', '.join(names)}.")
    return "".join(sentences)


def names_with(tests: Tests, answer: Answer) -> list[str]:
    """Return the names of the tests with a result."""
    return [name for name, result in tests.items() if result is answer]


def answer_word(answer: Answer) -> str:
    """Return the result of a test as a word."""
    return {True: "yes", False: "no", None: "cannot tell"}[answer]


def order_words(answer: Answer) -> str:
    """Return the place of the first of two, by the test whether it is above the second."""
    return {True: "ahead of", False: "behind", None: "not told apart from"}[answer]


def shown(interval: Interval) -> str:
    """Return an estimate with its interval as text."""
    estimate, lower, upper = map(_number_text, interval)
    if estimate == lower == upper:
        return estimate
    return f"{estimate} [{lower}, {upper}]"


def _number_text(value: Any) -> str:
    if np.isinf(value):
        return "never"
    return number(value)

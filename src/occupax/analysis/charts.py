"""Data of figures. `plots` draws them, and a page adds their numbers."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Num

from occupax.analysis.statistics import quartiles
from occupax.errors import unknown

Style = Literal["line", "points", "dashed"]
Points = Num[np.ndarray, " point"]

MAX_POINTS = 160
"""The most points of a drawn line: more than a page resolves, and few enough for a small file."""


@dataclass(frozen=True, eq=False)
class Series:
    """Numbers y at x, with a band or error bars from lower to upper if they are given."""

    name: str
    x: Points
    y: Points
    """NaN is a gap."""
    lower: Points | None = None
    upper: Points | None = None
    style: Style = "line"
    """A "line"; "points" that no line joins; or "dashed", for what was fitted or is a reference."""

    def __post_init__(self) -> None:
        if self.style not in get_args(Style):
            raise unknown("style", self.style, get_args(Style))
        if (self.lower is None) != (self.upper is None):
            raise ValueError(f"lower and upper of the series {self.name!r} must be given together.")
        lengths = [len(array) for array in self.arrays().values()]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"the arrays of the series {self.name!r} must have one length, got {lengths}."
            )

    def arrays(self) -> dict[str, Points]:
        """The arrays that are given, by name."""
        columns = {"x": self.x, "y": self.y, "lower": self.lower, "upper": self.upper}
        return {name: array for name, array in columns.items() if array is not None}


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with, such as the exact optimum."""

    name: str
    y: float


@dataclass(frozen=True, eq=False)
class _Figure:
    name: str
    """The name of its files and its id in a page: letters, digits, hyphens and underscores."""
    title: str
    caption: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.name, re.ASCII):
            raise ValueError(
                f"name must consist of letters, digits, hyphens and underscores, got {self.name!r}."
            )


@dataclass(frozen=True, eq=False)
class Chart(_Figure):
    """Series over one x axis. The labels contain the unit of their axis."""

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()
    log: bool = False
    """Both axes are logarithmic."""
    look: Mapping[str, int] | None = None
    """A number for each name of a series, by default its place, from which colour, dashes and
    marker follow."""
    limits: tuple[float, float] | None = None
    """The ends of the y axis, for charts that are compared; by default they follow from the
    numbers."""
    singles: tuple[Series, ...] = ()
    """Thin lines behind the first series, such as the single seeds that it is the median of."""
    forbidden: tuple[float, float] | None = None
    """Ends of a range of the y axis that is coloured, such as the violation of a constraint."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [part.name for part in (*self.series, *self.levels)]
        if len(set(names)) < len(names):
            parts = f"the series and levels of the chart {self.name!r}"
            raise ValueError(f"{parts} must have different names, got {names}.")


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A map of how often each cell is visited, and where a policy goes from there."""

    title: str
    values: Num[np.ndarray, "row column"]
    """0 or more; 0 is never."""
    arrows: Sequence[Sequence[str]] | None = None
    """For each cell a text of none or some of the arrows ←↓→↑."""
    marks: Sequence[Sequence[str]] | None = None
    """For each cell a letter, or nothing."""
    walls: Bool[np.ndarray, "row column"] | None = None
    """Whether each cell is a wall, which nobody can visit."""

    def __post_init__(self) -> None:
        shape = self.values.shape
        for name, texts in (("arrows", self.arrows), ("marks", self.marks)):
            if texts is not None and [len(row) for row in texts] != [shape[1]] * shape[0]:
                raise ValueError(
                    f"the {name} of the map {self.title!r} must be {shape[0]} rows of "
                    f"{shape[1]} strings."
                )


@dataclass(frozen=True, eq=False)
class Maps(_Figure):
    """Grids of visits side by side, on one scale of colours."""

    grids: tuple[HeatMap, ...]
    x_label: str = ""
    y_label: str = ""


def figure_name(text: str) -> str:
    """Return a valid figure name for a text. Invalid characters become their code points."""
    return re.sub(r"\W", _code_point, text, flags=re.ASCII)


def _code_point(match: re.Match[str]) -> str:
    return f"-{ord(match[0]):x}-"


def seeds_series(name: str, x: Points, values: Num[np.ndarray, "seed point"]) -> Series:
    """Return the median over the seeds, with the quartiles as band of several seeds."""
    lower, median, upper = quartiles(np.asarray(values, float))
    if len(values) == 1:
        return Series(name, x, median)
    return Series(name, x, median, lower, upper)


def thin(series: Series, most: int = MAX_POINTS) -> Series:
    """Return a series with at most `most` points, evenly spread, with first and last."""
    indices = spread(len(series.x), most)
    thinned = {name: array[indices] for name, array in series.arrays().items()}
    return replace(series, **thinned)


def spread(count: int, most: int = MAX_POINTS) -> np.ndarray:
    """Return the indices of at most `most` of some points, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def csv_text(chart: Chart | Maps) -> str:
    """Return all numbers of a figure as CSV.

    Levels are series without x. NaN is an empty cell.
    """
    if isinstance(chart, Maps):
        rows: list[Sequence[Any]] = [("map", "row", "column", "value", "arrow")]
        for grid in chart.grids:
            for (i, j), value in np.ndenumerate(grid.values):
                rows.append(
                    (grid.title, i, j, _cell(value), grid.arrows[i][j] if grid.arrows else "")
                )
        return csv_lines(rows)
    rows = [("series", "x", "y", "lower", "upper")]
    for series in chart.series:
        columns = series.arrays().values()
        rows += [
            (series.name, *map(_cell, row), *[""] * (4 - len(row)))
            for row in zip(*columns, strict=True)
        ]
    return csv_lines([*rows, *((level.name, "", _cell(level.y), "", "") for level in chart.levels)])


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as the text of a CSV file."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _cell(number: float) -> str:
    return "" if np.isnan(number) else f"{number:.10g}"

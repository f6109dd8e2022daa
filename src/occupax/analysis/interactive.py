"""Figures of a page that answer: lines can be hidden, and the pointer or the arrow keys show the numbers."""

import json
from html import escape
from typing import Any

import numpy as np

from occupax.analysis import plots
from occupax.analysis.charts import Chart, Grid, Level, Maps, Series, thin
from occupax.analysis.svg import SHOWN, inline_svg
from occupax.analysis.words import number


def interactive(chart: Chart | Maps) -> str:
    """A figure of a page, drawn by Matplotlib, with its numbers for the script of the page beside it."""
    from matplotlib import style

    description = _describe_maps(chart) if isinstance(chart, Maps) else describe_chart(chart)
    with style.context("default"):  # the page has its own colours, whatever the user's figures look like
        figure = plots.draw(chart, bare=True)
        svg = inline_svg(figure, chart.name, description)
    data = _maps(chart, figure) if isinstance(chart, Maps) else _chart(chart, figure)
    toggles = "" if isinstance(chart, Maps) else _toggles(chart)
    numbers = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure class="live" id="{chart.name}">\n{toggles}'
        f'<div class="plot" tabindex="0" role="group" aria-label="{escape(chart.title)}: arrow keys show numbers">\n'
        f'{svg}\n<div class="tip" role="status" hidden></div>\n</div>\n'
        f"<figcaption><strong>{escape(chart.title)}.</strong> {escape(chart.caption)}</figcaption>\n"
        f'<script type="application/json">{numbers}</script>\n</figure>'
    )


def describe_chart(chart: Chart) -> str:
    """A chart in a sentence, for those who do not see it."""
    courses = [f"{series.name}: {_course(series)}" for series in chart.series]
    courses += [f"{level.name}: {number(level.y)}" for level in chart.levels]
    return f"{chart.y_label} against {_first_line(chart.x_label)}; {'; '.join(courses)}."


def _course(series: Series) -> str:
    known = series.y[~np.isnan(series.y)]
    return f"from {number(known[0])} to {number(known[-1])}" if known.size else "not known"


def _describe_maps(maps: Maps) -> str:
    seen = [np.count_nonzero(grid.values > plots.VISITS_SHOWN * grid.values.max()) for grid in maps.grids]
    texts = [f"{count} of {grid.values.size}, {grid.title}" for count, grid in zip(seen, maps.grids, strict=True)]
    return f"Maps of the cells visited: {'; '.join(texts)}."


def _toggles(chart: Chart) -> str:
    """A button for each part, with a sample of it: the legend too."""
    buttons = [_button(f"s{i}", one.name, _sample(plots.look(chart, one))) for i, one in enumerate(chart.series)]
    if chart.singles:
        thin_line = f'<path d="M1 5H29" stroke="{_shown(chart, chart.series[0])}" stroke-width="0.8" opacity="0.6"/>'
        buttons.append(_button("singles", "single seeds", thin_line))
    for i, level in enumerate(chart.levels):
        pattern = plots.LEVELS[i % len(plots.LEVELS)]
        buttons.append(_button(f"l{i}", level.name, _sample(plots.Look("#000000", pattern, None), width=1.2)))
    lines = "\n".join(buttons)
    return f'<div class="toggles" role="group" aria-label="Shown in the figure">\n{lines}\n</div>\n'


def _button(part: str, name: str, sample: str) -> str:
    drawn = f'<svg class="sample" viewBox="0 0 30 10" aria-hidden="true">{sample}</svg>'
    return f'<button type="button" aria-pressed="true" data-toggles="{part}">{drawn}{escape(name)}</button>'


def _sample(look: plots.Look, width: float = 1.8) -> str:
    """A piece of a line and its marker."""
    colour, parts = SHOWN[look.colour], ""
    if look.dashes is not None:
        dashes = " ".join(f"{width * length:g}" for length in look.dashes) or "none"
        parts = f'<path d="M1 5H29" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    return parts if look.marker is None else f'{parts}<path d="{_outline(look.marker)}" fill="{colour}"/>'


def _outline(marker: str) -> str:
    """The outline of one of Matplotlib's markers, in the middle of a sample."""
    from matplotlib.markers import MarkerStyle

    if marker == "o":
        return "M12 5a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z"
    style = MarkerStyle(marker)
    corners = np.asarray(style.get_path().transformed(style.get_transform()).to_polygons()[0]) * (6.0, -6.0) + (15, 5)
    return f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in corners)}z"


def _chart(chart: Chart, figure: Any) -> dict[str, Any]:
    axes = figure.axes[0]
    return {
        "label": _first_line(chart.x_label),
        "box": _box(figure, axes),
        "across": [*map(float, axes.get_xlim()), axes.get_xscale() == "log"],
        "up": [*map(float, axes.get_ylim()), axes.get_yscale() == "log"],
        "series": [_series(f"s{i}", thin(one), _shown(chart, one)) for i, one in enumerate(chart.series)],
        "levels": [_level(f"l{i}", one) for i, one in enumerate(chart.levels)],
    }


def _series(part: str, series: Series, colour: str) -> dict[str, Any]:
    columns = {"x": series.x, "y": series.y, "lower": series.lower, "upper": series.upper}
    numbers = {name: _numbers(array, 10 if name == "x" else 6) for name, array in columns.items() if array is not None}
    return {"part": part, "name": series.name, "colour": colour, **numbers}


def _level(part: str, level: Level) -> dict[str, Any]:
    return {"part": part, "name": level.name, "y": _numbers(np.array([level.y]), 6)[0]}


def _maps(maps: Maps, figure: Any) -> dict[str, Any]:
    panels = figure.axes[: len(maps.grids)]
    return {"grids": [_grid(grid, _box(figure, axes)) for grid, axes in zip(maps.grids, panels, strict=True)]}


def _grid(grid: Grid, box: list[float]) -> dict[str, Any]:
    values = [_numbers(row, 5) for row in grid.values]
    return {"title": grid.title, "box": box, "values": values, "arrows": grid.arrows and [list(r) for r in grid.arrows]}


def _box(figure: Any, axes: Any) -> list[float]:
    """Left, top, right and bottom of the axes, in the points of the SVG."""
    (left, bottom), (right, top) = axes.get_position().get_points()
    width, height = 72 * figure.get_size_inches()
    return [
        round(float(place), 2) for place in (left * width, (1 - top) * height, right * width, (1 - bottom) * height)
    ]


def _numbers(array: np.ndarray, digits: int) -> list[float | int | None]:
    """Short numbers for a page; what is not finite is null."""
    rounded = [float(f"{number:.{digits}g}") for number in array]
    return [None if not np.isfinite(number) else int(number) if number.is_integer() else number for number in rounded]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _shown(chart: Chart, series: Series) -> str:
    return SHOWN[plots.look(chart, series).colour]

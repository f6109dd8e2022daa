"""Figures of a page: drawings of Matplotlib, and the numbers that the script of the page shows."""

import re
from typing import Any

import numpy as np

from occupax.analysis import plots
from occupax.analysis.charts import Chart, Maps, Series, thin
from occupax.analysis.describe import number

SHOWN = {colour: f"var(--c{i})" for i, colour in enumerate(plots.COLOURS)} | {
    "#000000": "currentColor"
}
"""The colour in the page of each colour of the figures; the page has others in the light than in
the dark."""


def interactive(chart: Chart | Maps) -> dict[str, Any]:
    """Return the data of the template of a figure: drawing, buttons of its parts, and numbers."""
    from matplotlib import style

    # the page has its own colours, independent of the user's style
    with style.context("default"):
        figure = plots.draw(chart, bare=True)
        if isinstance(chart, Maps):
            data = drawing(figure, chart, _describe_maps(chart))
        else:
            data = drawing(figure, chart, describe_chart(chart))
    if isinstance(chart, Maps):
        return {**data, "buttons": [], "numbers": _maps(chart, figure)}
    return {**data, "buttons": _buttons(chart), "numbers": _chart(chart, figure)}


def drawing(figure: Any, chart: Chart | Maps, description: str) -> dict[str, Any]:
    """Return a figure as SVG in the colours of the page.

    A part with a gid such as "part-a-0" gets the attribute `data-part="a"`.
    """
    _, _, text = plots.svg_text(figure, chart.name, transparent=True).partition("<svg")
    box = re.search(r'viewBox="([^"]*)"', text)
    svg = re.sub(r"<(metadata|style).*?</\1>\s*", "", text.partition(">")[2], flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', svg))
    svg = re.sub(r' id="part-(\w+)-\d+"', r' data-part="\1"', svg)
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    for colour, shown in SHOWN.items():
        svg = svg.replace(colour, shown)
    words = {
        "name": chart.name,
        "title": chart.title,
        "caption": chart.caption,
        "description": description,
    }
    return {**words, "box": box[1] if box else "", "svg": svg.rstrip()}


def describe_chart(chart: Chart) -> str:
    """Return a sentence about a chart, for screen readers."""
    courses: list[str] = []
    for series in chart.series:
        known = series.y[~np.isnan(series.y)]
        course = f"from {number(known[0])} to {number(known[-1])}" if known.size else "not known"
        courses.append(f"{series.name}: {course}")
    courses += [f"{level.name}: {number(level.y)}" for level in chart.levels]
    against, _, _ = chart.x_label.partition("\n")
    return f"{chart.y_label} against {against}; {'; '.join(courses)}."


def _describe_maps(maps: Maps) -> str:
    texts: list[str] = []
    for grid in maps.grids:
        visited = np.count_nonzero(grid.values > 0)
        texts.append(f"{visited} of {grid.values.size}, {grid.title}")
    return f"Maps of the cells visited: {'; '.join(texts)}."


def _buttons(chart: Chart) -> list[dict[str, Any]]:
    looks = [plots.look(chart, series) for series in chart.series]
    buttons = [_button(f"s{i}", chart.series[i].name, look) for i, look in enumerate(looks)]
    if chart.singles:
        thin_line = plots.Look(looks[0].colour, (), None)
        buttons.append(_button("singles", "single seeds", thin_line, width=0.8, opacity=0.6))
    for i, level in enumerate(chart.levels):
        pattern = plots.LEVEL_DASHES[i % len(plots.LEVEL_DASHES)]
        buttons.append(
            _button(f"l{i}", level.name, plots.Look("#000000", pattern, None), width=1.2)
        )
    return buttons


def _button(
    part: str, name: str, look: plots.Look, width: float = 1.8, opacity: float = 1.0
) -> dict[str, Any]:
    dashes = (
        None
        if look.dashes is None
        else " ".join(f"{width * length:g}" for length in look.dashes) or "none"
    )
    line = {"colour": SHOWN[look.colour], "width": width, "dashes": dashes, "opacity": opacity}
    return {"part": part, "name": name, "outline": look.marker and _outline(look.marker), **line}


def _outline(marker: str) -> str:
    from matplotlib.markers import MarkerStyle

    if marker == "o":
        return "M12 5a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z"
    style = MarkerStyle(marker)
    corners = np.asarray(style.get_path().transformed(style.get_transform()).to_polygons()[0]) * (
        6.0,
        -6.0,
    ) + (15, 5)
    return f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in corners)}z"


def _chart(chart: Chart, figure: Any) -> dict[str, Any]:
    axes, heights = figure.axes[0], _numbers(np.array([level.y for level in chart.levels]), 6)
    return {
        "label": chart.x_label.partition("\n")[0],
        "box": _box(figure, axes),
        "across": [*map(float, axes.get_xlim()), axes.get_xscale() == "log"],
        "up": [*map(float, axes.get_ylim()), axes.get_yscale() == "log"],
        "series": [
            {"part": f"s{i}", **_series(chart, series)} for i, series in enumerate(chart.series)
        ],
        "levels": [
            {"part": f"l{i}", "name": chart.levels[i].name, "y": y} for i, y in enumerate(heights)
        ],
    }


def _series(chart: Chart, series: Series) -> dict[str, Any]:
    numbers = {
        name: _numbers(array, 10 if name == "x" else 6)
        for name, array in thin(series).arrays().items()
    }
    return {"name": series.name, "colour": SHOWN[plots.look(chart, series).colour], **numbers}


def _maps(maps: Maps, figure: Any) -> dict[str, Any]:
    grids: list[dict[str, Any]] = []
    for grid, axes in zip(maps.grids, figure.axes, strict=False):
        texts = {"arrows": grid.arrows, "marks": grid.marks}
        values = [_numbers(row, 5) for row in grid.values]
        grids.append({"box": _box(figure, axes), "title": grid.title, "values": values, **texts})
    return {"grids": grids}


def _box(figure: Any, axes: Any) -> list[float]:
    (left, bottom), (right, top) = axes.get_position().get_points()
    width, height = 72 * figure.get_size_inches()
    places = (left * width, (1 - top) * height, right * width, (1 - bottom) * height)
    return [round(float(place), 2) for place in places]


def _numbers(array: np.ndarray, digits: int) -> list[float | int | None]:
    rounded = [float(f"{number:.{digits}g}") for number in array]
    return [
        None if not np.isfinite(number) else int(number) if number.is_integer() else number
        for number in rounded
    ]

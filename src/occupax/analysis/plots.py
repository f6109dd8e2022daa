"""Matplotlib figures of charts.

The figures have no pyplot window: display them in a notebook, or use `figure.savefig(path)`.
"""

import io
import re
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis.charts import Chart, HeatMap, Maps, Series, csv_text, thin
from occupax.io.files import write_bytes, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""The colours of Okabe and Ito, which colour-blind readers can tell apart, but for yellow, hard to
see on white."""
DASHES = (
    (),
    (6, 1.6),
    (6, 1.6, 1.2, 1.6),
    (1.5, 1.3),
    (10, 2),
    (4, 1.4, 1.2, 1.4, 1.2, 1.4),
    (3, 3),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers and dashes tell lines apart where there is no colour."""
FITTED_DASHES = (3.5, 2)
LEVEL_DASHES = ((6, 3), (1.5, 2), (8, 2, 1, 2))
MARKERS_A_LINE = 8
ROUND = (1, 2, 2.5, 5, 10)
"""Steps between the numbers of an axis, but for a power of ten."""
COLOUR_MAP = "viridis"
"""Colours of visits, everywhere."""
FORBIDDEN_COLOUR = "#d55e00"
EXPONENT = 0.5
"""Exponent of visits in the scale of colours: the square root shows rare visits too."""
WALL_COLOUR = "#b0b0b0"
MOVES = {"←": (-1, 0), "↓": (0, 1), "→": (1, 0), "↑": (0, -1)}
"""The columns and rows by which each arrow moves."""
MAPS_ABREAST = 3
MAP_WIDTHS = {1: 4.2, 2: 2.6}
"""How wide a map is in a page, in inches, where there are few of them."""
LETTERS_A_TITLE_ROW = 56
LETTERS_AN_INCH = 11
"""How many letters of the title of a map fit into an inch."""
LETTERS_A_LEGEND_ROW = 100


def draw(chart: Chart | Maps, *, bare: bool = False) -> "Figure":
    """Draw a chart or maps.

    A bare figure has the size of a figure in a page, and neither title nor legend.
    """
    return _draw_maps(chart, bare) if isinstance(chart, Maps) else _draw_chart(chart, bare)


def save(chart: Chart | Maps, folder: str | Path) -> None:
    """Write a figure as `.svg` and `.png`, and its numbers as `.csv`, into files of its name."""
    from matplotlib import style

    path = Path(folder) / chart.name
    with style.context("default"):
        figure = draw(chart)
        write_text(path.with_suffix(".svg"), svg_text(figure, chart.name))  # makes the folder
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=160)
        write_bytes(path.with_suffix(".png"), image.getvalue())
    write_text(path.with_suffix(".csv"), csv_text(chart))


def svg_text(figure: "Figure", name: str, *, transparent: bool = False) -> str:
    """Return a figure as SVG with letters as text.

    The same figure with the same name gives the same text.
    """
    import matplotlib as mpl

    stream = io.StringIO()

    def tenths(match: re.Match[str]) -> str:  # a tenth of a point is finer than a screen
        return f"{float(match[0]):.1f}".removesuffix(".0")

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=transparent, metadata={"Date": None})
    shorter = re.sub(
        r' (?:d|x|y)="[^"]*"',
        lambda match: re.sub(r"-?\d+\.\d+", tenths, match[0]),
        stream.getvalue(),
    )
    one_line_each = re.sub(r"\s*\n\s*", "\n", shorter)
    return one_line_each.replace("\nL ", "L")


class Look(NamedTuple):
    """Colour, dashes and marker of a series."""

    colour: str
    dashes: tuple[float, ...] | None
    """Lengths of lines and gaps, as multiples of the width. Empty for a solid line, None for no
    line."""
    marker: str | None


def look(chart: Chart, series: Series) -> Look:
    """Return the look of a series of a chart.

    Colours, dashes and markers repeat in different combinations.
    """
    number = (chart.look or {}).get(series.name, chart.series.index(series))
    again = number // len(COLOURS)
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[(number + 2 * again) % len(MARKERS)]
    if series.style == "points":
        return Look(colour, None, marker)
    if series.style == "dashed":
        return Look(colour, FITTED_DASHES, "o" if len(series.x) < 2 else None)
    several = sum(one.style == "line" for one in chart.series) > 1
    return Look(
        colour,
        DASHES[(number + again) % len(DASHES)],
        marker if several or len(series.x) < 3 else None,
    )


def _draw_chart(chart: Chart, bare: bool) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 3.2) if bare else (7.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for i, one in enumerate(chart.singles):
        name = "single seeds" if i == 0 else "_"  # a legend omits labels with an underscore
        colour = look(chart, chart.series[0]).colour
        axes.plot(
            one.x,
            one.y,
            color=colour,
            linewidth=0.8,
            alpha=0.5,
            label=name,
            gid=f"part-singles-{i}",
        )
    only_band = sum(series.lower is not None for series in chart.series) == 1
    for i, series in enumerate(chart.series):
        _draw_series(axes, thin(series), look(chart, series), i, "quartiles" if only_band else "_")
    for i, level in enumerate(chart.levels):
        pattern = (0.0, LEVEL_DASHES[i % len(LEVEL_DASHES)])
        axes.axhline(
            level.y,
            color="#000000",
            linewidth=1.2,
            linestyle=pattern,
            label=level.name,
            gid=f"part-l{i}-0",
        )
    if chart.levels:  # with the same margin as the series have
        axes.update_datalim([(0.0, level.y) for level in chart.levels], updatex=False)
        axes.autoscale_view()
    _finish(axes, chart)
    _colour_forbidden(axes, chart)
    if not bare:
        longest = max((len(part.name) for part in (*chart.series, *chart.levels)), default=0)
        columns = max(
            1, min(4, LETTERS_A_LEGEND_ROW // (longest + 7))
        )  # seven for the sample of the line
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, frameon=False, fontsize=9
        )
        figure.suptitle(fill(chart.title, LETTERS_A_TITLE_ROW), fontsize=13, fontweight="bold")
    return figure


def _colour_forbidden(axes: Any, chart: Chart) -> None:
    """Colour the visible part of the forbidden range, without a change of the axis."""
    if chart.forbidden is None:
        return
    limits = axes.get_ylim()
    low, high = np.clip(chart.forbidden, *limits)
    axes.axhspan(low, high, color=FORBIDDEN_COLOUR, alpha=0.12, linewidth=0)
    axes.set_ylim(*limits)


def _draw_series(axes: Any, series: Series, style: Look, index: int, band: str) -> None:
    """Draw a series as a line or as points, with its band. Markers of several lines are shifted."""
    has_line = style.dashes is not None
    if series.lower is not None:
        bounds = {"color": style.colour, "gid": f"part-s{index}-1"}
        if has_line:
            bounds |= {"alpha": 0.2, "linewidth": 0, "label": band}
            axes.fill_between(series.x, series.lower, series.upper, **bounds)
        else:
            axes.vlines(series.x, series.lower, series.upper, linewidth=1.2, **bounds)
    marker_step = ceil(len(series.x) / MARKERS_A_LINE)
    markers = None
    if has_line and len(series.x) > MARKERS_A_LINE:
        markers = (index * marker_step // 3 % marker_step, marker_step)
    line: dict[str, Any] = {"color": style.colour, "linestyle": "-"}
    if style.dashes is None:
        line["linestyle"] = "none"
    elif style.dashes:
        line["linestyle"] = (0.0, style.dashes)
    line["linewidth"] = 1.8 if series.style == "line" else 1.5
    line |= {"marker": style.marker, "markersize": 4.5, "markevery": markers}
    axes.plot(series.x, series.y, label=series.name, gid=f"part-s{index}-0", **line)


def _finish(axes: Any, chart: Chart) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if chart.log:
        axes.set(xscale="log", yscale="log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
        x = np.concatenate(
            [np.asarray(series.x, float) for series in chart.series] or [np.zeros(1)]
        )
        if np.isfinite(x).any() and 0 <= 2 * np.nanmin(x) <= np.nanmax(x):
            axes.set_xlim(left=0)
        low, high = axes.get_ylim()
        if high - low < 1e-3 * abs(high):  # rounding errors are not to be magnified
            axes.set_ylim(low - 0.05 * abs(low), high + 0.05 * abs(high))
    if chart.limits is not None:
        axes.set_ylim(*chart.limits)
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_formatter(lambda number, _: f"{number:,.10g}")
        if chart.log:
            decades = np.log10(limits[1] / limits[0])
            axis.set_major_locator(
                LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.5 else (1.0,), numticks=7)
            )
            axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
    axes.grid(axis="both" if chart.log else "y", color="#808080", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_maps(maps: Maps, bare: bool) -> "Figure":
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    most = max(float(grid.values.max()) for grid in maps.grids) or 1.0
    scale = PowerNorm(EXPONENT, 0.0, most)
    columns = min(len(maps.grids), MAPS_ABREAST)
    rows = ceil(len(maps.grids) / columns)
    width = MAP_WIDTHS.get(columns, 1.85) if bare else 2.4
    height = width * min(
        2.0, max(grid.values.shape[0] / grid.values.shape[1] for grid in maps.grids)
    )
    titles = [fill(grid.title, int(width * LETTERS_AN_INCH)) for grid in maps.grids]
    title_rows = max(title.count("\n") + 1 for title in titles)
    heading = 0.0 if bare else 0.4
    panel_height = height + 0.15 + 0.17 * title_rows
    figure = Figure(
        figsize=(width * columns + 0.3, panel_height * rows + heading + 1.2), layout="constrained"
    )
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(maps.grids) :]:
        axes.remove()
    image = None
    for axes, grid, title in zip(panels, maps.grids, titles, strict=False):
        shown = np.ma.masked_less_equal(grid.values, 0.0)
        image = axes.imshow(shown, norm=scale, cmap=COLOUR_MAP, interpolation="none")
        axes.patch.set(hatch="////", edgecolor="#808080")
        _draw_walls(axes, grid)
        _draw_arrows(axes, grid, np.ma.filled(scale(shown), np.nan))
        _draw_marks(axes, grid, np.ma.filled(scale(shown), np.nan))
        axes.set_title(title, fontsize=10)
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(maps.x_label, fontsize=9)
        if axes is panels[0]:
            axes.set_ylabel(maps.y_label, fontsize=9)
    if image is not None:
        place: Any = {
            "ax": panels[: len(maps.grids)],
            "orientation": "horizontal",
            "aspect": 32,
            "fraction": 0.05,
        }
        figure.colorbar(image, label="discounted visits per episode", **place).ax.minorticks_off()
    if not bare:
        figure.suptitle(maps.title, fontsize=13, fontweight="bold")
    return figure


def _draw_walls(axes: Any, grid: HeatMap) -> None:
    """Fill the cells of walls with grey."""
    from matplotlib.patches import Rectangle

    if grid.walls is None:
        return
    for row, column in np.argwhere(grid.walls):
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=WALL_COLOUR, linewidth=0))


def _draw_arrows(axes: Any, grid: HeatMap, brightness: Float[np.ndarray, "row column"]) -> None:
    """Draw arrows from the middle of each cell.

    They are light on dark cells, dark on bright cells, and black on hatched cells.
    """
    places = [
        (i, j, arrow)
        for i, row in enumerate(grid.arrows or ())
        for j, text in enumerate(row)
        for arrow in text
    ]
    if not places:
        return
    i, j, arrows = zip(*places, strict=True)
    directions = np.array([MOVES[arrow] for arrow in arrows], float)
    colours = _on(brightness[list(i), list(j)])
    units = {"angles": "xy", "units": "xy", "scale_units": "xy", "scale": 1}
    sizes = {
        "width": 0.07,
        "headwidth": 4,
        "headlength": 3.6,
        "headaxislength": 3.4,
        "minlength": 0,
    }
    axes.quiver(j, i, *(0.42 * directions).T, color=list(colours), **units, **sizes)


def _draw_marks(axes: Any, grid: HeatMap, brightness: Float[np.ndarray, "row column"]) -> None:
    """A letter in the middle of a cell or, if arrows begin there, in its corner."""
    for i, row in enumerate(grid.marks or ()):
        for j, mark in enumerate(row):
            if not mark:
                continue
            busy = bool(grid.arrows and grid.arrows[i][j])
            x, y, size = (j - 0.28, i - 0.25, 7) if busy else (j, i, 9)
            style = {"ha": "center", "va": "center", "fontsize": size, "fontweight": "bold"}
            axes.text(x, y, mark, color=str(_on(brightness[i, j])), **style)


def _on(brightness: Any) -> np.ndarray:
    """Return a colour of text that is legible on cells of a brightness. NaN is a hatched cell."""
    return np.where(
        np.isnan(brightness), "#000000", np.where(brightness > 0.5, "#101010", "#fafafa")
    )

"""Figures of training runs. They belong to no pyplot window: show them in a notebook, or use `figure.savefig(path)`."""

from collections.abc import Sequence
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from occupax._errors import unknown
from occupax.analysis.describe import class_name
from occupax.analysis.statistics import moving_average, quartiles
from occupax.analysis.words import label
from occupax.training.records import EXACT as EXACT_METRICS
from occupax.training.result import Result

if TYPE_CHECKING:
    import matplotlib.figure

Against = Literal["episodes", "steps"]

ESTIMATE, EXACT = "#0072b2", "#d55e00"
"""Blue and vermilion of Okabe and Ito, which colour-blind readers can tell apart; in grey the dashes do it."""

MOST_SINGLE_LINES = 10
MOST_POINTS = 160
"""Of a drawn line: more than a page resolves, and few enough for a small SVG."""
SMOOTHED_SHARE = 0.02
"""Of the records in the window of the moving average, where there are more of them than points."""
FROM_ZERO = ("gap", "episode_length", "grad_norm", "clipped", "effective_sample_size", "negative_occupancy")
"""What is drawn from zero on."""
ROUND = (1, 2, 2.5, 5, 10)
"""Steps between the numbers of an axis, but for a power of ten."""
VISITS_SHOWN = 1e-3
"""Of the most visited state: what is visited less than that has the same colour as this."""


def plot_metric(
    result: Result, metric: str = "utility", *, against: Against = "episodes"
) -> "matplotlib.figure.Figure":
    """Median and quartiles over the seeds of a training run, and the single seeds if they are few.

    Many records are thinned and drawn as a moving average, which the axis then says. Where the exact utility was
    recorded, it is drawn beside the estimate.

    Args:
        result: the run.
        metric: what to draw, one of `result.metrics`.
        against: sampled "episodes", or environment "steps", of which seeds take different numbers: the median is used.
    """
    from matplotlib.figure import Figure

    if metric not in result.metrics:
        raise unknown("metric", metric, result.metrics)
    if against not in get_args(Against):
        raise unknown("against", against, get_args(Against))
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    draw_metric(axes, result, metric, against)
    add_legend(axes, columns=4)
    figure.suptitle(algorithm_name(result), fontsize=13, fontweight="bold")
    return figure


def draw_metric(axes: Any, result: Result, metric: str, against: Against = "episodes", singles: bool = True) -> None:
    """Draw a metric into Matplotlib axes."""
    window = 1 if metric in EXACT_METRICS else smoothing_window(result)
    values = moving_average(result.metrics[metric], window)
    shown = _shown(len(result.episodes))
    values, known = values[:, shown], ~np.isnan(values[:, shown])
    steps = result.steps[:, shown].astype(float)
    episodes = np.broadcast_to(result.episodes[shown].astype(float), steps.shape)
    own = np.where(known, steps if against == "steps" else episodes, np.nan)
    common = quartiles(own)[1] if against == "steps" else episodes[0]
    lower, median, upper = quartiles(values)
    count, marker = len(result.seeds), "o" if len(common) < 3 else None
    if singles and 1 < count <= MOST_SINGLE_LINES:
        for i, (x, y) in enumerate(zip(own, values, strict=True)):
            name = "single seeds" if i == 0 else "_"  # which a legend leaves out
            axes.plot(x, y, color=ESTIMATE, linewidth=0.6, alpha=0.35, label=name)
    if count > 1:
        axes.fill_between(common, lower, upper, color=ESTIMATE, alpha=0.2, linewidth=0, label="quartiles")
    name = f"median of {count} seeds" if count > 1 else f"seed {result.seeds[0]}"
    axes.plot(common, median, color=ESTIMATE, linewidth=1.8, marker=marker, label=name)
    if metric == "utility" and "exact_utility" in result.metrics:
        exact = quartiles(result.metrics["exact_utility"][:, shown])[1]
        axes.plot(common, exact, color=EXACT, linewidth=1.8, linestyle="--", marker=marker, label="exact utility")
    _finish_x(axes, against, window)
    _finish_y(axes, metric, logarithmic=metric == "largest_weight" and bool(np.any(values[known] > 100)))


def add_legend(axes: Any, columns: int) -> None:
    """A legend above the axes, where it covers nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, frameon=False, fontsize=9)


def plot_visits(grids: Sequence[tuple[str, Float[np.ndarray, "n n"]]]) -> "matplotlib.figure.Figure":
    """Maps of how often each cell is visited, side by side on one logarithmic scale; hatched is never."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    most = max(float(grid.max()) for _, grid in grids)
    scale = LogNorm(VISITS_SHOWN * most, most)
    figure = Figure(figsize=(2.3 * len(grids) + 0.4, 3.1), layout="constrained")
    panels = figure.subplots(1, len(grids), squeeze=False)[0]
    for axes, (title, grid) in zip(panels, grids, strict=True):
        shown = np.ma.masked_equal(np.where(grid > 0, np.maximum(grid, VISITS_SHOWN * most), 0.0), 0.0)
        image = axes.imshow(shown, norm=scale, cmap="cividis", interpolation="none")
        axes.patch.set(hatch="////", edgecolor="#808080")
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        if axes is panels[-1]:
            figure.colorbar(image, ax=list(panels), orientation="horizontal", label="discounted visits per episode")
    return figure


def smoothing_window(result: Result) -> int:
    """Over how many records a line is averaged: one, unless there are more of them than can be drawn.

    Whole cycles of the algorithm, because its snapshots and refinements differ, and would make waves otherwise.
    """
    records = len(result.episodes)
    if records <= MOST_POINTS:
        return 1
    cycle = 1 if result.algorithm is None else len(result.algorithm.cycle)
    period = cycle // gcd(cycle, result.config["setup"]["record_every"])
    return period * ceil(SMOOTHED_SHARE * records / period)


def algorithm_name(result: Result) -> str:
    """The class of the algorithm, even of one that could not be restored."""
    if result.algorithm is not None:
        return type(result.algorithm).__name__
    return class_name(result.config["setup"]["algorithm"])


def _shown(records: int) -> np.ndarray:
    """The records to draw, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, records - 1, min(records, MOST_POINTS)).round().astype(int))


def _finish_x(axes: Any, against: Against, window: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, steps=ROUND, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(_number))
    axes.set_xlim(left=0)
    smoothed = f"\n(moving average of {window} records)" if window > 1 else ""
    axes.set_xlabel(("sampled episodes" if against == "episodes" else "environment steps, median") + smoothed)


def _finish_y(axes: Any, metric: str, logarithmic: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = axes.get_ylim()
    if logarithmic:
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        if metric in FROM_ZERO:
            axes.set_ylim(0, 1.05 * high)
        elif high - low < 1e-3 * abs(high):  # rounding errors are nothing to look at
            axes.set_ylim(low - 0.05 * abs(low), high + 0.05 * abs(high))
    axes.set_ylabel(label(metric))
    axes.grid(axis="y", color="#808080", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _number(number: float, _: Any = None) -> str:
    return f"{number:,.10g}"

"""Figures of what a training run recorded."""

from dataclasses import replace
from math import ceil, gcd
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from occupax import serial
from occupax._errors import unknown
from occupax.analysis import plots
from occupax.analysis.charts import MOST_POINTS, Chart, Series, seeds_series, spread
from occupax.analysis.describe import describe_metric
from occupax.analysis.statistics import moving_average, quartiles
from occupax.training.records import EXACT
from occupax.training.result import Result
from occupax.training.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Against = Literal["episodes", "steps"]

MOST_SINGLE_LINES = 10
SMOOTHED_SHARE = 0.02
"""The share of all records that a moving average covers, where there are more records than points."""
HUGE_WEIGHT = 100
"""Importance weights above this are drawn on a logarithmic scale."""


def plot_metric(result: Result, metric: str = "utility", *, against: Against = "episodes") -> "Figure":
    """Draw the median and quartiles over the seeds of a training run, and the single seeds if they are few.

    Many records are thinned and drawn as a moving average, which the axis then says. Where the exact utility was
    recorded, it is drawn beside the estimate.

    Args:
        result: the run.
        metric: what to draw, one of `result.metrics`.
        against: sampled "episodes", or environment "steps", of which seeds take different numbers: the median is used.
    """
    if metric not in result.metrics:
        raise unknown("metric", metric, result.metrics)
    if against not in get_args(Against):
        raise unknown("against", against, get_args(Against))
    return draw_metric(metric_chart(metric, result, metric, against), metric)


def draw_metric(chart: Chart, metric: str, *, bare: bool = False) -> "Figure":
    """Draw the chart of a metric, from zero on or on a logarithmic scale where that is its nature."""
    figure = plots.draw(chart, bare=bare)
    axes, values = figure.axes[0], np.concatenate([series.y for series in (*chart.series, *chart.singles)])
    if describe_metric(metric).from_zero:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    elif metric == "largest_weight" and bool(np.any(values[~np.isnan(values)] > HUGE_WEIGHT)):
        axes.set_yscale("log")
    return figure


def metric_chart(name: str, result: Result, metric: str, against: Against = "episodes") -> Chart:
    """A chart of this name of a metric of a run, as `plot_metric` draws it."""
    words = describe_metric(metric)
    window = 1 if metric in EXACT else smoothing_window(result)
    shown = spread(len(result.episodes))
    values = moving_average(result.metrics[metric], window)[:, shown]
    steps = result.steps[:, shown].astype(float)
    episodes = np.broadcast_to(result.episodes[shown].astype(float), steps.shape)
    own = np.where(np.isnan(values), np.nan, steps if against == "steps" else episodes)
    common = quartiles(own)[1] if against == "steps" else episodes[0]
    count = len(result.seeds)
    series = [seeds_series(f"median of {count} seeds" if count > 1 else f"seed {result.seeds[0]}", common, values)]
    if metric == "utility" and "exact_utility" in result.metrics:
        exact = quartiles(result.metrics["exact_utility"][:, shown])[1]
        series.append(Series("exact utility", common, exact, style="dashed"))
    lines = zip(result.seeds, own, values, strict=True) if 1 < count <= MOST_SINGLE_LINES else ()
    singles = tuple(Series(f"seed {seed}", x, y) for seed, x, y in lines)
    axis = "sampled episodes" if against == "episodes" else "environment steps, median"
    axis += f"\n(moving average of {window} records)" if window > 1 else ""
    return Chart(name, algorithm_name(result), words.meaning, axis, words.label, tuple(series), singles=singles)


def smoothing_window(result: Result) -> int:
    """Over how many records a line is averaged: one, or a multiple of the algorithm's period where there are many."""
    records = len(result.episodes)
    if records <= MOST_POINTS:
        return 1
    repeats = 1 if result.algorithm is None else Schedule(result.algorithm).period
    period = repeats // gcd(repeats, result.config["setup"]["record_every"])
    return period * ceil(SMOOTHED_SHARE * records / period)


def complete(result: Result) -> Result:
    """The result without a last record of fewer iterations than the others, whose diagnostics do not compare."""
    if result.algorithm is None or len(result.episodes) < 2:
        return result
    if Schedule(result.algorithm).iterations(int(result.episodes[-1])) % result.config["setup"]["record_every"] == 0:
        return result
    metrics = {name: values[:, :-1] for name, values in result.metrics.items()}
    return replace(result, episodes=result.episodes[:-1], steps=result.steps[:, :-1], metrics=metrics)


def algorithm_name(result: Result) -> str:
    """The class of the algorithm, even of one that could not be restored."""
    return serial.class_name(result.config["setup"]["algorithm"])

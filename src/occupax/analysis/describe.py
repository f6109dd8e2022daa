"""A training run in words, even where its objects cannot be restored from `config.json`, and in figures."""

import tomllib
from dataclasses import replace
from importlib.resources import files
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from occupax._display import words
from occupax.analysis import plots, verdict
from occupax.analysis.charts import MOST_POINTS, Chart, Series, figure_name, seeds_series, spread
from occupax.analysis.statistics import moving_average, quartiles
from occupax.errors import unknown
from occupax.io.codec import class_name
from occupax.training.records import EXACT
from occupax.training.result import Result
from occupax.training.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Against = Literal["episodes", "steps"]

UNKNOWN = "\N{EN DASH}"
"""The text in the place of a number that is not known."""
MOST_SINGLE_LINES = 10
SMOOTHED_SHARE = 0.02
"""The share of all records that a moving average covers, where there are more records than
points."""
UTILITIES = ("utility", "exact_utility")
"""The metrics that are compared with what other policies are worth."""
HUGE_WEIGHT = 100
"""Importance weights above this are drawn on a logarithmic scale."""


class MetricWords(NamedTuple):
    """A metric in words; `metrics.toml` explains the fields."""

    label: str
    meaning: str
    shown: str = ""
    from_zero: bool = False


METRICS = {
    metric: MetricWords(**entry)
    for metric, entry in tomllib.loads(
        files("occupax.analysis").joinpath("metrics.toml").read_text("utf-8")
    ).items()
}
HEADLINES, DIAGNOSTICS = (
    [metric for metric, it in METRICS.items() if it.shown == size] for size in ("large", "small")
)
"""The metrics that a report shows large, and those that it shows small as far as they were
recorded."""


def describe_metric(metric: str) -> MetricWords:
    """A metric in words; one without any is called by its name."""
    kind, of, name = metric.partition("/")
    if of and kind in METRICS:  # of one constraint
        words = METRICS[kind]
        return words._replace(label=f"{words.label} {name}")
    return METRICS.get(metric, MetricWords(metric.replace("_", " "), ""))


def number(value: Any) -> str:
    """A number for a table: four digits, or all of a whole number."""
    if np.isnan(value):
        return UNKNOWN
    if value == 0 or isinstance(value, np.integer) or 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:#.4g}".removesuffix(".")


def settings(result: Result) -> list[tuple[str, str]]:
    """What was trained and with what, in pairs of a name and a text; the run need not have been restored."""
    setup, arrays = result.config["setup"], result.arrays
    problem = setup["problem"].get("fields", {})
    versions = [
        f"{name} {version}"
        for name, version in result.config["versions"].items()
        if name != "float64"
    ]
    precision = "float64" if result.config["versions"].get("float64") else "float32"
    every = "iteration" if setup["record_every"] == 1 else f"{setup['record_every']} iterations"
    parts = (
        "utility",
        "features",
        *(["constraints"] if problem.get("constraints") not in (None, {"tuple": []}) else []),
        "discount",
        "horizon",
        "termination",
    )
    return [
        ("Environment", verdict.environment_text(result)),
        *((name.capitalize(), words(problem.get(name), arrays)) for name in parts),
        ("Algorithm", words(setup["algorithm"], arrays)),
        ("Policy", class_name(setup["policy"])),
        ("Episodes", _episodes(result)),
        ("Seeds", _seeds(result.seeds)),
        ("Records", f"one every {every}, {len(result.episodes):,} in all"),
        ("Time", f"{result.seconds:,.0f} seconds"),
        ("Versions", f"{', '.join(versions)}; {precision}"),
    ]


def _episodes(result: Result) -> str:
    """Return the sampled episodes of a seed, and the budget where it was not spent."""
    sampled = int(result.episodes[-1]) if len(result.episodes) else 0
    budget = result.config["episodes"]
    if sampled == budget:
        return f"{sampled:,} for each seed"
    return f"{sampled:,} for each seed, of a budget of {budget:,}"


def _seeds(seeds: tuple[int, ...]) -> str:
    first, last = seeds[0], seeds[-1]
    if len(seeds) == 1:
        return f"1 (seed {first})"
    if len(seeds) > 2 and seeds == tuple(range(first, last + 1)):
        return f"{len(seeds)} ({first} to {last})"
    return ", ".join(map(str, seeds))


def plot_metric(
    result: Result, metric: str = "utility", *, against: Against = "episodes"
) -> "Figure":
    """Draw the median and quartiles over the seeds of a training run, and the single seeds if they are few.

    Many records are thinned and drawn as a moving average. Where the exact utility was recorded, it
    is drawn too.

    Args:
        result: the run.
        metric: what to draw, one of `result.metrics`.
        against: sampled "episodes", or environment "steps", of which seeds take different numbers:
            the median is used.
    """
    if metric not in result.metrics:
        raise unknown("metric", metric, result.metrics)
    if against not in get_args(Against):
        raise unknown("against", against, get_args(Against))
    return draw_metric(metric_chart(figure_name(metric), result, metric, against), metric)


def draw_metric(chart: Chart, metric: str, *, bare: bool = False) -> "Figure":
    """Draw the chart of a metric, from zero on or on a logarithmic scale where that is its nature."""
    figure = plots.draw(chart, bare=bare)
    axes, values = (
        figure.axes[0],
        np.concatenate([series.y for series in (*chart.series, *chart.singles)]),
    )
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
    series = [
        seeds_series(
            f"median of {count} seeds" if count > 1 else f"seed {result.seeds[0]}", common, values
        )
    ]
    if metric == "utility" and "exact_utility" in result.metrics:
        exact = quartiles(result.metrics["exact_utility"][:, shown])[1]
        series.append(Series("exact utility", common, exact, style="dashed"))
    lines = zip(result.seeds, own, values, strict=True) if 1 < count <= MOST_SINGLE_LINES else ()
    singles = tuple(Series(f"seed {seed}", x, y) for seed, x, y in lines)
    axis = "sampled episodes" if against == "episodes" else "environment steps, median"
    axis += f"\n(moving average of {window} records)" if window > 1 else ""
    levels = verdict.levels(result.references) if metric in UTILITIES else ()
    return Chart(
        name,
        verdict.algorithm_name(result),
        words.meaning,
        axis,
        words.label,
        tuple(series),
        levels,
        singles=singles,
    )


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
    if (
        Schedule(result.algorithm).iterations(int(result.episodes[-1]))
        % result.config["setup"]["record_every"]
        == 0
    ):
        return result
    metrics = {name: values[:, :-1] for name, values in result.metrics.items()}
    return replace(
        result, episodes=result.episodes[:-1], steps=result.steps[:, :-1], metrics=metrics
    )

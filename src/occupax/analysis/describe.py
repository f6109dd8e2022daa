"""Settings and metrics of a training run in words, and the charts of its metrics.

The settings do not need the objects that `config.json` describes, which may not be restorable.
"""

import tomllib
from dataclasses import replace
from importlib.resources import files
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from occupax.analysis import plots, verdict
from occupax.analysis.charts import MAX_POINTS, Chart, Series, figure_name, seeds_series, spread
from occupax.analysis.saved_text import words
from occupax.analysis.statistics import moving_average, quartiles
from occupax.display import in_words
from occupax.errors import unknown
from occupax.features import Stack
from occupax.io.codec import class_name
from occupax.io.records import EXACT
from occupax.outcome import Outcome, References
from occupax.training.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Against = Literal["episodes", "steps"]

UNKNOWN = "\N{EN DASH}"
"""The text in the place of a number that is not known."""
MAX_SINGLE_LINES = 10
SMOOTHED_SHARE = 0.02
"""The share of all records that a moving average covers, where there are more records than
points."""
UTILITIES = ("utility", "exact_utility")
"""The metrics that are compared with what other policies are worth."""
HUGE_WEIGHT = 100
"""Importance weights above this are drawn on a logarithmic scale."""


class MetricWords(NamedTuple):
    """Label and meaning of a metric. `metrics.toml` explains the fields."""

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
DIAGNOSTICS = [metric for metric, entry in METRICS.items() if entry.shown == "small"]
"""Metrics that a report draws small, as far as they were logged."""


def describe_metric(metric: str) -> MetricWords:
    """Return the label and the meaning of a metric. An unknown metric has its name as label."""
    kind, of, name = metric.partition("/")
    if of and kind in METRICS:  # of one constraint
        words = METRICS[kind]
        return words._replace(label=f"{words.label} {name}")
    return METRICS.get(metric, MetricWords(metric.replace("_", " "), ""))


def number(value: Any) -> str:
    """Return a number for a table: three digits, or all digits of an integer."""
    if np.isnan(value):
        return UNKNOWN
    if value == 0 or isinstance(value, np.integer) or 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:#.3g}".removesuffix(".")


def settings(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the settings of a run as pairs of a name and a text, from its configuration alone."""
    setup, arrays = outcome.config["setup"], outcome.arrays
    problem = setup["problem"].get("fields", {})
    versions = [
        f"{name} {version}"
        for name, version in outcome.config["versions"].items()
        if name != "float64"
    ]
    precision = "float64" if outcome.config["versions"].get("float64") else "float32"
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
        ("Environment", verdict.environment_text(outcome)),
        *((name.capitalize(), _problem_words(outcome, name)) for name in parts),
        ("Algorithm", words(setup["algorithm"], arrays)),
        ("Policy", class_name(setup["policy"])),
        ("Episodes", _sampled(outcome, outcome.episodes, "episodes")),
        ("Steps", _sampled(outcome, outcome.steps, "steps")),
        ("Seeds", _seeds(outcome.seeds)),
        ("Records", f"one every {every}, {len(outcome.episodes):,} in all"),
        ("Time", f"{outcome.seconds:,.1f} s"),
        ("Versions", f"{', '.join(versions)}; {precision}"),
    ]


def _sampled(outcome: Outcome, counts: np.ndarray, name: str) -> str:
    """Return the number of episodes or steps of a seed, and the budget where it was not spent."""
    last = counts[..., -1:]
    fewest = int(last.min(initial=2**62)) if last.size else 0
    most = int(last.max(initial=0))
    sampled = f"{most:,}"
    if fewest < most:
        sampled = f"{fewest:,} to {most:,}"
    budget = outcome.config.get(name)
    if budget is None or fewest == most == budget:
        return f"{sampled} for each seed"
    return f"{sampled} for each seed, of a budget of {budget:,}"


def _problem_words(outcome: Outcome, name: str) -> str:
    """Return a part of the problem as the user has stated it.

    The saved utility and features of a problem with constraints have a part for each constraint.
    """
    problem = outcome.problem
    if problem is not None and problem.constraints:
        if name == "utility":
            return in_words(problem.objective)
        if name == "features" and isinstance(problem.features, Stack):
            return in_words(problem.features.parts[0])
        if name == "constraints":
            return ", ".join(map(str, problem.constraints))
    fields = outcome.config["setup"]["problem"].get("fields", {})
    return words(fields.get(name), outcome.arrays)


def _seeds(seeds: tuple[int, ...]) -> str:
    first, last = seeds[0], seeds[-1]
    if len(seeds) == 1:
        return f"1 (seed {first})"
    if len(seeds) > 2 and seeds == tuple(range(first, last + 1)):
        return f"{len(seeds)} ({first} to {last})"
    return ", ".join(map(str, seeds))


def plot_metric(
    outcome: Outcome,
    metric: str = "utility",
    *,
    against: Against = "episodes",
    references: References | None = None,
) -> "Figure":
    """Draw the median and the quartiles of a metric over the seeds, and a few single seeds.

    Many records are thinned and drawn as a moving average. The exact utility is drawn too, if it
    was logged.

    Args:
        outcome: training run.
        metric: name of the metric, one of `outcome.metrics`.
        against: horizontal axis: sampled "episodes", or environment "steps", the median over the
            seeds.
        references: utilities of other policies, drawn as levels beside the utility.

    Returns:
        The figure.
    """
    if metric not in outcome.metrics:
        raise unknown("metric", metric, outcome.metrics)
    if against not in get_args(Against):
        raise unknown("against", against, get_args(Against))
    chart = metric_chart(figure_name(metric), outcome, metric, against, references)
    return draw_metric(chart, metric)


def draw_metric(chart: Chart, metric: str, *, bare: bool = False) -> "Figure":
    """Draw the chart of a metric, from zero or on a logarithmic axis if the metric has one."""
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


def metric_chart(
    name: str,
    outcome: Outcome,
    metric: str,
    against: Against = "episodes",
    references: References | None = None,
) -> Chart:
    """A chart of this name of a metric of a run, as `plot_metric` draws it."""
    words = describe_metric(metric)
    window = 1 if metric in EXACT else smoothing_window(outcome)
    shown = spread(len(outcome.episodes))
    values = moving_average(outcome.metrics[metric], window)[:, shown]
    steps = outcome.steps[:, shown].astype(float)
    episodes = np.broadcast_to(outcome.episodes[shown].astype(float), steps.shape)
    own = np.where(np.isnan(values), np.nan, steps if against == "steps" else episodes)
    common = quartiles(own)[1] if against == "steps" else episodes[0]
    count = len(outcome.seeds)
    series = [
        seeds_series(
            f"median of {count} seeds" if count > 1 else f"seed {outcome.seeds[0]}", common, values
        )
    ]
    if metric == "utility" and "exact_utility" in outcome.metrics:
        exact = quartiles(outcome.metrics["exact_utility"][:, shown])[1]
        series.append(Series("exact utility", common, exact, style="dashed"))
    lines = zip(outcome.seeds, own, values, strict=True) if 1 < count <= MAX_SINGLE_LINES else ()
    singles = tuple(Series(f"seed {seed}", x, y) for seed, x, y in lines)
    axis = "sampled episodes" if against == "episodes" else "environment steps, median"
    levels = verdict.levels(references) if metric in UTILITIES else ()
    caption = words.meaning
    if window > 1:
        caption += f" Moving average of {window} log entries."
    return Chart(
        name,
        verdict.algorithm_name(outcome),
        caption,
        axis,
        words.label,
        tuple(series),
        levels,
        singles=singles,
    )


def smoothing_window(outcome: Outcome) -> int:
    """Return the number of log entries in a moving average.

    It is 1 for few entries, and else a multiple of the period of the algorithm.
    """
    records = len(outcome.episodes)
    if records <= MAX_POINTS:
        return 1
    repeats = 1 if outcome.algorithm is None else Schedule(outcome.algorithm).period
    period = repeats // gcd(repeats, outcome.config["setup"]["record_every"])
    return period * ceil(SMOOTHED_SHARE * records / period)


def complete(outcome: Outcome) -> Outcome:
    """Return the outcome without a last log entry of fewer iterations than the others.

    Diagnostics of such an entry are not comparable.
    """
    if outcome.algorithm is None or len(outcome.episodes) < 2:
        return outcome
    if (
        Schedule(outcome.algorithm).iterations(int(outcome.episodes[-1]))
        % outcome.config["setup"]["record_every"]
        == 0
    ):
        return outcome
    metrics = {name: values[:, :-1] for name, values in outcome.metrics.items()}
    return replace(
        outcome, episodes=outcome.episodes[:-1], steps=outcome.steps[:, :-1], metrics=metrics
    )

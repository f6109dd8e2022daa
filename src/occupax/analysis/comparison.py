"""Comparison of several training runs: differing settings, utilities and learning curves."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from occupax.analysis import describe, statistics, verdict
from occupax.analysis.charts import Chart, Level, Series, seeds_series
from occupax.analysis.describe import METRICS, UNKNOWN, UTILITIES, Against, number
from occupax.analysis.page import TableCell
from occupax.analysis.saved_text import words
from occupax.analysis.statistics import Interval
from occupax.envs.tabular import TabularMDP
from occupax.io.records import EXACT
from occupax.outcome import Assessment, Outcome

Runs = Sequence[tuple[str, Outcome]]

AXES: dict[Against, str] = {"episodes": "sampled episodes", "steps": "environment steps"}
MAX_GRID_POINTS = 2000
PROFILE_POINTS = 100
MATTERS = (
    "Environment",
    "Utility",
    "Features",
    "Constraints",
    "Discount",
    "Horizon",
    "Termination",
)
"""The settings in which two runs of one problem agree."""
OF_NO_ACCOUNT = ("Time", "Records", "Versions")
"""What is told of each run, but is no setting of it."""
MIN_SEEDS_OF_PROFILE = 5
"""Number of seeds from which on a performance profile is drawn."""


def compare(runs: Runs, assessments: Sequence[Assessment]) -> dict[str, Any]:
    """Return the part of a page that compares several runs by their evaluations."""
    utilities = [assessment.utilities for assessment in assessments]
    exact = all("exact_utility" in outcome.metrics for _, outcome in runs)
    shown = ["exact_utility" if exact else "utility"]
    problems = [outcome.problem for _, outcome in runs]
    if any(one is None or verdict.has_reward(one.objective) for one in problems):
        shown.append("return")
    settings = differing(runs)
    different = [name.lower() for name in MATTERS if name in settings]
    if "environment" not in different and not _one_table(runs):
        different.append("environment")
    levels: tuple[Level, ...] = ()
    if not different:
        levels = verdict.levels(assessments[0].references)
    return {
        "differences": different,
        "settings": [[name, *texts] for name, texts in settings.items() if UNKNOWN not in texts],
        "names": [name for name, _ in runs],
        "worth": None if different else _worth(runs, utilities),
        "profile": None if different else _seeds_chart(runs, utilities),
        "parts": [] if different else [_against(runs, shown, axis, levels) for axis in AXES],
    }


def _one_table(runs: Runs) -> bool:
    """Return whether the tables of all runs are equal. Settings contain their size only."""
    tables = [outcome.problem.env for _, outcome in runs if outcome.problem is not None]
    tables = [env for env in tables if isinstance(env, TabularMDP)]
    return all(bool(eqx.tree_equal(tables[0], other)) for other in tables[1:])


def differing(runs: Runs) -> dict[str, list[str]]:
    """Return the settings in which runs differ, by name, each with its text for every run.

    Every hyperparameter of an algorithm is a setting of its own.
    """
    settings = [_flat_settings(outcome) for _, outcome in runs]
    different: dict[str, list[str]] = {}
    for name in [name for texts in settings for name in texts]:
        texts = [texts.get(name, describe.UNKNOWN) for texts in settings]
        if len(set(texts)) > 1:
            different[name] = texts
    return different


def _flat_settings(outcome: Outcome) -> dict[str, str]:
    algorithm = outcome.config["setup"]["algorithm"]
    parts = algorithm.get("fields") or {}
    own = {name: words(part, outcome.arrays) for name, part in parts.items()}
    plain = {name: text for name, text in describe.settings(outcome) if name not in OF_NO_ACCOUNT}
    return plain | {"Algorithm": verdict.algorithm_name(outcome)} | own


def short_names(runs: Runs) -> list[str]:
    """Return the names of runs, with their algorithms if each run has another one."""
    algorithms = [verdict.algorithm_name(outcome) for _, outcome in runs]
    names = [name for name, _ in runs]
    if len(runs) < 2 or len(set(algorithms)) < len(runs):
        return names
    return [f"{name}: {algorithm}" for name, algorithm in zip(names, algorithms, strict=True)]


def _worth(runs: Runs, utilities: Sequence[np.ndarray]) -> dict[str, Any] | None:
    """Return a table of the utilities of the runs and their differences to the best run.

    The result is None if no utility is known.
    """
    known = [
        (name, values[~np.isnan(values)]) for (name, _), values in zip(runs, utilities, strict=True)
    ]
    middles = [
        float(statistics.interquartile_mean(values)) if values.size else -np.inf
        for _, values in known
    ]
    best_name, best = known[int(np.argmax(middles))]
    if not best.size:
        return None
    rows: list[list[Any]] = []
    for name, values in known:
        row: list[Any] = [name, str(len(values)), interval(values)]
        if name == best_name or min(len(values), len(best)) < 2:
            rows.append(
                [*row, *(["best", "best"] if name == best_name else [describe.UNKNOWN] * 2)]
            )
            continue
        difference, likely = (
            statistics.bootstrap_difference(values, best),
            statistics.probability_of_improvement(values[None], best[None]),
        )
        rows.append([*row, _bounded(difference), _bounded(likely)])
    header = ["Run", "Seeds", "Utility", "Difference to the best", "Probability to beat the best"]
    return {"header": header, "rows": rows}


def _seeds_chart(runs: Runs, utilities: Sequence[np.ndarray]) -> Chart | None:
    """Return the utilities of all seeds: as profiles, or as points for few seeds."""
    seeds = [int(np.isfinite(values).sum()) for values in utilities]
    if min(seeds) >= MIN_SEEDS_OF_PROFILE:
        return _profile(runs, utilities)
    if max(seeds) < 2:
        return None
    series: list[Series] = []
    for (name, outcome), values in zip(runs, utilities, strict=True):
        seed_numbers = np.array(outcome.seeds, float)
        series.append(Series(name, seed_numbers, np.asarray(values, float), style="points"))
    title, caption = "Trained policies", "Utility of the trained policy of each seed."
    labels = ("seed", "utility of the trained policy")
    return Chart("compare-profile", title, caption, *labels, tuple(series))


def _profile(runs: Runs, utilities: Sequence[np.ndarray]) -> Chart | None:
    """Return the fraction of the seeds of each run whose policy exceeds each utility."""
    finite = [values[np.isfinite(values)] for values in utilities]
    pooled = np.concatenate(finite)
    if min(map(len, finite)) < 2 or pooled.min() == pooled.max():
        return None
    levels = np.linspace(pooled.min(), pooled.max(), PROFILE_POINTS)
    series: list[Series] = []
    for (name, _), values in zip(runs, finite, strict=True):
        profile = statistics.performance_profile(values[None], levels)
        series.append(Series(name, levels, profile.estimate, profile.lower, profile.upper))
    caption = (
        "Fraction of the seeds whose final policy has at least this utility. Higher is better. "
        "Band: 95% confidence interval."
    )
    title = "Performance profiles"
    return Chart(
        "compare-profile",
        title,
        caption,
        "utility of the trained policy",
        "fraction of the seeds",
        tuple(series),
    )


def _against(
    runs: Runs, metrics: Sequence[str], against: Against, levels: tuple[Level, ...]
) -> dict[str, Any]:
    """Return the data of the section that compares runs along one axis."""
    ranges: list[tuple[str, float, float]] = []
    for name, outcome in runs:
        x = np.atleast_2d(getattr(outcome, against))
        ranges.append((name, float(x[:, 0].max()), float(x[:, -1].min())))
    compared, low, high = overlapping(ranges)
    if len(compared) < 2:
        return {"axis": AXES[against], "charts": []}
    chosen = [(name, outcome) for name, outcome in runs if name in compared]
    look = {name: i for i, (name, _) in enumerate(runs)}
    grid = _grid(chosen, against, low, high)
    charts: list[Chart] = []
    header = ["Run", "Seeds"]
    for metric in metrics:
        own_levels = levels if metric in UTILITIES else ()
        charts.append(_chart(chosen, metric, against, grid, look, own_levels))
        label = metric.replace("_", " ")
        header += [f"Mean {label}", f"Final {label}"]
    return {
        "axis": AXES[against],
        "low": f"{low:,.0f}",
        "high": f"{high:,.0f}",
        "left_out": [name for name, _ in runs if name not in compared],
        "charts": charts,
        "header": header,
        "rows": [
            [name, str(len(outcome.seeds)), *_cells(outcome, metrics, against, grid)]
            for name, outcome in chosen
        ],
    }


def overlapping(ranges: Sequence[tuple[str, float, float]]) -> tuple[list[str], float, float]:
    """Return the largest group of runs whose ranges overlap, and their common range."""
    groups: list[list[tuple[str, float, float]]] = []
    for _, start, _ in ranges:
        groups.append([(name, low, high) for name, low, high in ranges if low <= start < high])
    largest = max(groups, key=len)
    if not largest:
        return [], 0.0, 0.0
    names, lows, highs = zip(*largest, strict=True)
    return list(names), max(lows), min(highs)


def _grid(runs: Runs, against: Against, low: float, high: float) -> Float[np.ndarray, " point"]:
    """Return the points of the horizontal axis at which runs are compared."""
    logged = [getattr(outcome, against).ravel() for _, outcome in runs]
    points = np.unique(np.concatenate(logged)).astype(float)
    points = points[(points >= low) & (points <= high)]
    if len(points) > MAX_GRID_POINTS:
        points = np.linspace(low, high, MAX_GRID_POINTS).round()
    return np.unique([low, *points, round(high - (high - low) / 10), high])


def _chart(
    runs: Runs,
    metric: str,
    against: Against,
    grid: np.ndarray,
    look: dict[str, int],
    levels: tuple[Level, ...],
) -> Chart:
    words = METRICS[metric]
    windows = {
        name: 1 if metric in EXACT else describe.smoothing_window(outcome) for name, outcome in runs
    }
    averages = {
        name: statistics.moving_average(outcome.metrics[metric], windows[name])
        for name, outcome in runs
    }
    curves = (
        statistics.on_grid(getattr(outcome, against), averages[name], grid)
        for name, outcome in runs
    )
    series = [seeds_series(name, grid, curve) for name, curve in zip(averages, curves, strict=True)]
    averaged = " or ".join(str(window) for window in sorted(set(windows.values())) if window > 1)
    smoothed = f" Moving averages of {averaged} records." if averaged else ""
    caption = f"{words.meaning} Line: median of the seeds; band: between their quartiles.{smoothed}"
    title = f"{words.label[:1].upper()}{words.label[1:]}, against {AXES[against]}"
    name = f"compare-{metric}-{against}"
    return Chart(name, title, caption, AXES[against], words.label, tuple(series), levels, look=look)


def _cells(
    outcome: Outcome, metrics: Sequence[str], against: Against, grid: np.ndarray
) -> list[TableCell]:
    last = grid >= round(grid[-1] - (grid[-1] - grid[0]) / 10)
    curves = (
        statistics.on_grid(getattr(outcome, against), outcome.metrics[metric], grid)
        for metric in metrics
    )
    parts = ((curve, part) for curve in curves for part in (slice(None), last))
    return [
        interval(statistics.mean_over_grid(grid[part], curve[:, part])) for curve, part in parts
    ]


def interval(values: Float[np.ndarray, " seed"]) -> TableCell:
    """Return the interquartile mean over the seeds with its confidence interval.

    There is no interval for fewer than two seeds.
    """
    known = np.asarray(values, float)[~np.isnan(values)]
    if len(known) < 2:
        mean = statistics.interquartile_mean(known) if len(known) else np.nan
        return TableCell(number(mean), bounds=UNKNOWN)
    return _bounded(statistics.bootstrap(known))


def _bounded(estimate: Interval) -> TableCell:
    bounds = f"{number(estimate.lower)}, {number(estimate.upper)}"
    return TableCell(number(estimate.estimate), bounds=bounds)

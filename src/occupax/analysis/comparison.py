"""Training runs beside each other: curves on one grid, and what they come to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from occupax.analysis.charts import Chart, seeds_series
from occupax.analysis.curves import mean_over_grid, on_grid
from occupax.analysis.describe import settings
from occupax.analysis.metrics import Against, smoothing_window
from occupax.analysis.page import TableCell
from occupax.analysis.statistics import bootstrap, interquartile_mean, moving_average
from occupax.analysis.words import METRICS, UNKNOWN, number
from occupax.training.records import EXACT
from occupax.training.result import Result

Runs = Sequence[tuple[str, Result]]

AXES: dict[Against, str] = {"episodes": "sampled episodes", "steps": "environment steps"}
MOST_PLACES = 2000
"""The most points of a grid on which curves are compared."""
MATTERS = ("Environment", "Utility", "Features", "Discount", "Horizon", "Termination")
"""The settings in which two runs of one problem agree."""


def comparison(runs: Runs) -> dict[str, Any]:
    """What the template of the report shows of several runs.

    This is in which settings the problems differ, and for each axis charts and the rows of a table, if two of the runs
    have a range in common.
    """
    exact = all("exact_utility" in result.metrics for _, result in runs)
    shown = ("exact_utility" if exact else "utility", "return")
    described = [dict(settings(result)) for _, result in runs]
    different = [name.lower() for name in MATTERS if len({one[name] for one in described}) > 1]
    return {"differences": different, "parts": [_against(runs, shown, against) for against in AXES]}


def _against(runs: Runs, metrics: Sequence[str], against: Against) -> dict[str, Any]:
    compared, low, high = overlapping([(name, *_range(result, against)) for name, result in runs])
    if len(compared) < 2:
        return {"axis": AXES[against], "charts": []}
    chosen = [(name, result) for name, result in runs if name in compared]
    look = {name: i for i, (name, _) in enumerate(runs)}
    grid = _places(chosen, against, low, high)
    return {
        "axis": AXES[against],
        "low": f"{low:,.0f}",
        "high": f"{high:,.0f}",
        "left_out": [name for name, _ in runs if name not in compared],
        "charts": [_chart(chosen, metric, against, grid, look) for metric in metrics],
        "header": ["Run", "Seeds", *(f"{kind} {it.replace('_', ' ')}" for it in metrics for kind in ("Mean", "Final"))],
        "rows": [[name, str(len(result.seeds)), *_cells(result, metrics, against, grid)] for name, result in chosen],
    }


def overlapping(ranges: Sequence[tuple[str, float, float]]) -> tuple[list[str], float, float]:
    """The most runs whose ranges have some length in common, and that common range."""
    groups = [[one for one in ranges if one[1] <= start < one[2]] for _, start, _ in ranges]
    most = max(groups, key=len)
    if not most:
        return [], 0.0, 0.0
    return [name for name, _, _ in most], max(low for _, low, _ in most), min(high for _, _, high in most)


def _range(result: Result, against: Against) -> tuple[float, float]:
    x = np.atleast_2d(_x(result, against))
    return float(x[:, 0].max()), float(x[:, -1].min())


def _x(result: Result, against: Against) -> Num[np.ndarray, "*seed record"]:
    return result.episodes if against == "episodes" else result.steps


def _places(runs: Runs, against: Against, low: float, high: float) -> Float[np.ndarray, " point"]:
    """All places with a record of some run, or as many as there is use for."""
    found = np.unique(np.concatenate([_x(result, against).ravel() for _, result in runs])).astype(float)
    within = found[(found >= low) & (found <= high)]
    kept = within if len(within) <= MOST_PLACES else np.linspace(low, high, MOST_PLACES).round()
    return np.unique([low, *kept, round(high - (high - low) / 10), high])


def _chart(runs: Runs, metric: str, against: Against, grid: np.ndarray, look: dict[str, int]) -> Chart:
    words = METRICS[metric]
    windows = {name: 1 if metric in EXACT else smoothing_window(result) for name, result in runs}
    series = [
        seeds_series(
            name, grid, on_grid(_x(result, against), moving_average(result.metrics[metric], windows[name]), grid)
        )
        for name, result in runs
    ]
    averaged = " or ".join(str(window) for window in sorted(set(windows.values())) if window > 1)
    smoothed = f" Moving averages of {averaged} records." if averaged else ""
    caption = f"{words.meaning} Line: median of the seeds; band: between their quartiles.{smoothed}"
    title = f"{words.label[:1].upper()}{words.label[1:]}, against {AXES[against]}"
    name = f"compare-{metric}-{against}"
    return Chart(name, title, caption, AXES[against], words.label, tuple(series), look=look)


def _cells(result: Result, metrics: Sequence[str], against: Against, grid: np.ndarray) -> list[TableCell]:
    """The mean height of the curve of each metric, over the grid and over its last tenth."""
    last = grid >= round(grid[-1] - (grid[-1] - grid[0]) / 10)
    cells: list[TableCell] = []
    for metric in metrics:
        curves = on_grid(_x(result, against), result.metrics[metric], grid)
        cells += [interval(mean_over_grid(grid, curves)), interval(mean_over_grid(grid[last], curves[:, last]))]
    return cells


def interval(values: Float[np.ndarray, " seed"]) -> TableCell:
    """The interquartile mean over seeds and its confidence interval; with fewer than two seeds there is none."""
    known = np.asarray(values, float)[~np.isnan(values)]
    if len(known) < 2:
        return TableCell(number(interquartile_mean(known) if len(known) else np.nan), bounds=UNKNOWN)
    found = bootstrap(known)
    return TableCell(number(found.estimate), bounds=f"{number(found.lower)}, {number(found.upper)}")

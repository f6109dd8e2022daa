"""A page about training runs: what was trained, what came of it, what the numbers mean, and how the runs compare."""

import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occupax import serial
from occupax._errors import OccupaxWarning
from occupax.analysis import describe, page, statistics, verdict
from occupax.analysis.charts import Chart, Level, Maps, seeds_series
from occupax.analysis.describe import DIAGNOSTICS, HEADLINES, METRICS, UNKNOWN, UTILITIES, Against, number, settings
from occupax.analysis.page import TableCell
from occupax.analysis.page.figures import describe_chart, drawing
from occupax.analysis.visits import visits, visits_map
from occupax.envs.tabular import TabularMDP
from occupax.training.assessment import Assessment, probabilities
from occupax.training.records import EXACT
from occupax.training.result import Result

Runs = Sequence[tuple[str, Result]]

AXES: dict[Against, str] = {"episodes": "sampled episodes", "steps": "environment steps"}
REPORT = "report.html"
MOST_GRID_POINTS = 2000
OF_CONSTRAINTS = ("multiplier/", "violation/")
"""What the metrics of constraints begin with."""
MATTERS = ("Environment", "Utility", "Features", "Discount", "Horizon", "Termination")
"""The settings in which two runs of one problem agree."""


def write_report(runs: Runs, path: str | Path) -> None:
    """Write one HTML page about training runs, each with a name; what no file says of their policies is found out."""
    from matplotlib import style

    if not runs:
        raise ValueError("runs must hold at least one pair of a name and a result, got none.")
    names = [name for name, _ in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"runs must have different names, got {', '.join(names)}.")
    with style.context("default"):  # the page has its own colours, whatever the user's figures look like
        sections = [_section(f"run-{i}", name, result, _assessment(result)) for i, (name, result) in enumerate(runs)]
        compared = _comparison(runs) if len(runs) > 1 else None
        text = page.render("report.html", sections=sections, comparison=compared)
    serial.write_text(path, text)


def write_pages(result: Result, folder: Path) -> None:
    """Write `report.html` and `plot.png` into the folder of a run; a page that cannot be made is a warning."""
    try:
        drawn = io.BytesIO()
        result.plot().savefig(drawn, format="png")
        serial.write_bytes(folder / "plot.png", drawn.getvalue())
        write_report([(folder.resolve().name, result)], folder / REPORT)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - what was trained is saved, and must not be lost for the sake of a page
        warnings.warn(f"the report could not be written: {error}", OccupaxWarning, stacklevel=3)


def _assessment(result: Result) -> Assessment:
    if result.problem is None and result.saved_assessment is None:
        unknown = np.full(len(result.seeds), np.nan)
        return Assessment(unknown, "not known, because the problem cannot be restored from a file")
    return result.assessment


def _section(anchor: str, name: str, result: Result, assessment: Assessment) -> dict[str, Any]:
    columns = {
        "Utility": assessment.utilities,
        **({} if assessment.gaps is None else {"Left at most": assessment.gaps}),
        **_slacks(result, assessment),
        "Return": result.metrics["return"][:, -1],
        "Discounted return": result.metrics["discounted_return"][:, -1],
        "Steps per episode": result.metrics["episode_length"][:, -1],
        "Environment steps": result.steps[:, -1],
    }
    finished = sum(status == "finished" for status in result.status)
    full, recorded, others = describe.complete(result), result.metrics, result.references
    reached = np.nan if others is None else others.share(_median(assessment.utilities))
    return {
        "anchor": anchor,
        "title": name,
        "headline": result.headline,
        "findings": result.diagnosis,
        "settings": settings(result),
        "assessment": assessment,
        "overview": [
            TableCell(name, anchor),
            verdict.algorithm_name(result),
            assessment.source,
            f"{finished} of {len(result.seeds)}",
            f"{result.episodes[-1]:,}",
            number(_median(assessment.utilities)),
            verdict.share_text(reached) or UNKNOWN,
        ],
        "header": ["Seed", "Status", *columns],
        "rows": [
            [str(seed), status[:1].upper() + status[1:], *(number(column[i]) for column in columns.values())]
            for i, (seed, status) in enumerate(zip(result.seeds, result.status, strict=True))
        ],
        "foot": ["Median", f"{finished} finished", *(number(_median(column)) for column in columns.values())],
        "several": len(result.seeds) > 1,
        "headlines": [_titled(anchor, result, metric) for metric in HEADLINES],
        "maps": _visits(anchor, result, assessment),
        "diagnostics": [
            _diagnostic(anchor, result if it in EXACT else full, it)
            for it in [*(name for name in recorded if name.startswith(OF_CONSTRAINTS)), *DIAGNOSTICS]
            if it in recorded
        ],
    }


def _slacks(result: Result, assessment: Assessment) -> dict[str, Float[np.ndarray, " seed"]]:
    """The slack of each constraint in the trained policies, by a heading."""
    if result.problem is None or assessment.excesses is None:
        return {}
    pairs = enumerate(result.problem.constraints)
    return {f"Slack of {constraint}": -assessment.excesses[:, k] for k, constraint in pairs}


def _titled(anchor: str, result: Result, metric: str) -> Chart:
    chart = describe.metric_chart(f"{anchor}-{metric}".replace("/", "-"), result, metric)
    return replace(chart, title=chart.y_label.capitalize())


def _diagnostic(anchor: str, result: Result, metric: str) -> dict[str, Any]:
    chart = replace(_titled(anchor, result, metric), singles=())
    figure = describe.draw_metric(chart, metric, bare=True)
    figure.set_size_inches(3.3, 2.3)
    figure.axes[0].set_ylabel("")  # the caption begins with it
    return drawing(figure, chart, describe_chart(chart))


def _visits(anchor: str, result: Result, assessment: Assessment) -> Maps | None:
    if np.isnan(assessment.utilities).all():
        return None
    best = int(np.nanargmax(assessment.utilities))
    name, title = f"{anchor}-visits", f"best policy (seed {result.seeds[best]})"
    if result.problem is None:
        return None if assessment.visits is None else visits_map(name, title, assessment.visits[best])
    if not isinstance(result.problem.env, TabularMDP):
        return None
    return visits(name, result.problem, probabilities(result.problem, result.policies[best]), title)


def _median(column: np.ndarray) -> float:
    return float(statistics.quartiles(np.asarray(column, float)[:, None])[1][0])


def _comparison(runs: Runs) -> dict[str, Any]:
    exact = all("exact_utility" in result.metrics for _, result in runs)
    shown = ("exact_utility" if exact else "utility", "return")
    described = [dict(settings(result)) for _, result in runs]
    different = [name.lower() for name in MATTERS if len({one[name] for one in described}) > 1]
    levels = () if different else verdict.levels(runs[0][1].references)
    return {"differences": different, "parts": [_against(runs, shown, against, levels) for against in AXES]}


def _against(runs: Runs, metrics: Sequence[str], against: Against, levels: tuple[Level, ...]) -> dict[str, Any]:
    places = {name: np.atleast_2d(getattr(result, against)) for name, result in runs}
    ranges = [(name, float(x[:, 0].max()), float(x[:, -1].min())) for name, x in places.items()]
    compared, low, high = overlapping(ranges)
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
        "charts": [_chart(chosen, it, against, grid, look, levels if it in UTILITIES else ()) for it in metrics],
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


def _places(runs: Runs, against: Against, low: float, high: float) -> Float[np.ndarray, " point"]:
    found = np.unique(np.concatenate([getattr(result, against).ravel() for _, result in runs])).astype(float)
    within = found[(found >= low) & (found <= high)]
    kept = within if len(within) <= MOST_GRID_POINTS else np.linspace(low, high, MOST_GRID_POINTS).round()
    return np.unique([low, *kept, round(high - (high - low) / 10), high])


def _chart(
    runs: Runs, metric: str, against: Against, grid: np.ndarray, look: dict[str, int], levels: tuple[Level, ...]
) -> Chart:
    words = METRICS[metric]
    windows = {name: 1 if metric in EXACT else describe.smoothing_window(result) for name, result in runs}
    averages = {name: statistics.moving_average(result.metrics[metric], windows[name]) for name, result in runs}
    curves = (statistics.on_grid(getattr(result, against), averages[name], grid) for name, result in runs)
    series = [seeds_series(name, grid, curve) for name, curve in zip(averages, curves, strict=True)]
    averaged = " or ".join(str(window) for window in sorted(set(windows.values())) if window > 1)
    smoothed = f" Moving averages of {averaged} records." if averaged else ""
    caption = f"{words.meaning} Line: median of the seeds; band: between their quartiles.{smoothed}"
    title = f"{words.label[:1].upper()}{words.label[1:]}, against {AXES[against]}"
    name = f"compare-{metric}-{against}"
    return Chart(name, title, caption, AXES[against], words.label, tuple(series), levels, look=look)


def _cells(result: Result, metrics: Sequence[str], against: Against, grid: np.ndarray) -> list[TableCell]:
    last = grid >= round(grid[-1] - (grid[-1] - grid[0]) / 10)
    curves = (statistics.on_grid(getattr(result, against), result.metrics[metric], grid) for metric in metrics)
    parts = ((curve, part) for curve in curves for part in (slice(None), last))
    return [interval(statistics.mean_over_grid(grid[part], curve[:, part])) for curve, part in parts]


def interval(values: Float[np.ndarray, " seed"]) -> TableCell:
    """The interquartile mean over seeds and its confidence interval; with fewer than two seeds there is none."""
    known = np.asarray(values, float)[~np.isnan(values)]
    if len(known) < 2:
        return TableCell(number(statistics.interquartile_mean(known) if len(known) else np.nan), bounds=UNKNOWN)
    found = statistics.bootstrap(known)
    return TableCell(number(found.estimate), bounds=f"{number(found.lower)}, {number(found.upper)}")

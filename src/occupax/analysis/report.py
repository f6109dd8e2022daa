"""A page about training runs: what was trained, what came of it, and what the numbers mean."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax.analysis import metrics, page
from occupax.analysis.charts import Chart, Maps
from occupax.analysis.comparison import comparison
from occupax.analysis.describe import settings
from occupax.analysis.page.figures import describe_chart, drawing
from occupax.analysis.statistics import quartiles
from occupax.analysis.visits import visits, visits_map
from occupax.analysis.words import DIAGNOSTICS, HEADLINES, METRICS, UNKNOWN, number
from occupax.envs.tabular import TabularMDP
from occupax.training.assessment import Assessment, probabilities
from occupax.training.records import EXACT
from occupax.training.result import Result


def write_report(runs: Sequence[tuple[str, Result]], path: str | Path) -> None:
    """Write one HTML page about training runs, which needs no other file and no network.

    Args:
        runs: a name and a result for each. What their policies are worth is found out, if it was not saved.
        path: the file.
    """
    from matplotlib import style

    if not runs:
        raise ValueError("runs must hold at least one pair of a name and a result, got none.")
    names = [name for name, _ in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"runs must have different names, got {', '.join(names)}.")
    with style.context("default"):  # the page has its own colours, whatever the user's figures look like
        sections = [_section(f"run-{i}", name, result, _assessment(result)) for i, (name, result) in enumerate(runs)]
        compared = comparison(runs) if len(runs) > 1 else None
        text = page.render("report.html", sections=sections, comparison=compared)
    serial.write_text(path, text)


def _assessment(result: Result) -> Assessment:
    if result.problem is None and result.saved_assessment is None:
        unknown = np.full(len(result.seeds), np.nan)
        return Assessment(unknown, "not known, because the problem cannot be restored from a file")
    return result.assessment


def _section(anchor: str, name: str, result: Result, assessment: Assessment) -> dict[str, Any]:
    columns = {
        "Utility": assessment.utilities,
        **({} if assessment.gaps is None else {"Certified gap": assessment.gaps}),
        "Return": result.metrics["return"][:, -1],
        "Discounted return": result.metrics["discounted_return"][:, -1],
        "Steps per episode": result.metrics["episode_length"][:, -1],
        "Environment steps": result.steps[:, -1],
    }
    finished = sum(status == "finished" for status in result.status)
    full = metrics.complete(result)
    return {
        "anchor": anchor,
        "title": name,
        "settings": settings(result),
        "assessment": assessment,
        "overview": [
            page.TableCell(name, anchor),
            metrics.algorithm_name(result),
            assessment.source,
            f"{finished} of {len(result.seeds)}",
            f"{result.episodes[-1]:,}",
            _median(assessment.utilities),
            UNKNOWN if assessment.gaps is None else _median(assessment.gaps),
        ],
        "header": ["Seed", "Status", *columns],
        "rows": [
            [str(seed), status[:1].upper() + status[1:], *(number(column[i]) for column in columns.values())]
            for i, (seed, status) in enumerate(zip(result.seeds, result.status, strict=True))
        ],
        "foot": ["Median", f"{finished} finished", *map(_median, columns.values())],
        "several": len(result.seeds) > 1,
        "headlines": [_titled(anchor, result, metric) for metric in HEADLINES],
        "maps": _visits(anchor, result, assessment),
        "diagnostics": [
            _diagnostic(anchor, result if metric in EXACT else full, metric)
            for metric in DIAGNOSTICS
            if metric in result.metrics
        ],
    }


def _titled(anchor: str, result: Result, metric: str) -> Chart:
    return replace(metrics.metric_chart(f"{anchor}-{metric}", result, metric), title=METRICS[metric].label.capitalize())


def _diagnostic(anchor: str, result: Result, metric: str) -> dict[str, Any]:
    chart = replace(_titled(anchor, result, metric), singles=())
    figure = metrics.draw_metric(chart, metric, bare=True)
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


def _median(column: np.ndarray) -> str:
    return number(quartiles(np.asarray(column, float)[:, None])[1][0])

"""A page about training runs: what was trained, what came of it, what the numbers mean, and how the runs compare."""

import base64
import io
import warnings
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occupax.analysis import describe, page, statistics, verdict
from occupax.analysis.charts import Chart, Maps, figure_name
from occupax.analysis.comparison import Runs, compare, differing, telling_names
from occupax.analysis.describe import (
    DIAGNOSTICS,
    HEADLINES,
    UNKNOWN,
    describe_metric,
    number,
    settings,
)
from occupax.analysis.page import TableCell
from occupax.analysis.page.figures import describe_chart, drawing
from occupax.analysis.visits import grid_map, saved_layout, visits, visits_map
from occupax.envs.tabular import TabularMDP
from occupax.errors import OccupaxWarning
from occupax.exact.probabilities import probabilities
from occupax.io import codec
from occupax.training.assessment import Assessment, counted_grid
from occupax.training.recording import small_picture
from occupax.training.records import EXACT
from occupax.training.result import Result

REPORT = "report.html"
OF_CONSTRAINTS = ("multiplier/", "violation/")
"""What the metrics of constraints begin with."""


def write_report(runs: Runs, path: str | Path) -> None:
    """Write one HTML page about training runs, each with a name; what no file says of their policies is found out."""
    from matplotlib import style

    if not runs:
        raise ValueError("runs must hold at least one pair of a name and a result, got none.")
    names = [name for name, _ in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"runs must have different names, got {', '.join(names)}.")
    printable = [(_printable(name), result) for name, result in runs]
    with style.context(
        "default"
    ):  # the page has its own colours, whatever the user's figures look like
        told = list(zip(telling_names(printable), [result for _, result in runs], strict=True))
        worth = [_assessment(result) for _, result in told]
        marked = set(differing(told))
        sections = [
            _section(f"run-{i}", name, result, found, marked)
            for i, ((name, result), found) in enumerate(zip(told, worth, strict=True))
        ]
        compared = compare(told, [found.utilities for found in worth]) if len(runs) > 1 else None
        text = page.render("report.html", sections=sections, comparison=compared)
    codec.write_text(path, text)


def write_pages(result: Result, folder: Path) -> None:
    """Write `report.html` and `plot.png` into the folder of a run; a page that cannot be written is a warning."""
    try:
        (folder / REPORT).unlink(missing_ok=True)  # it was about fewer episodes
        drawn = io.BytesIO()
        result.plot().savefig(drawn, format="png")
        codec.write_bytes(folder / "plot.png", drawn.getvalue())
        write_report([(folder.resolve().name, result)], folder / REPORT)
    except Exception as error:  # noqa: BLE001 - what was trained is saved, and must not be lost for the sake of a page
        warnings.warn(f"the report could not be written: {error}", OccupaxWarning, stacklevel=3)


def _printable(name: str) -> str:
    r"""Return a name with `\xe9` for each byte of a path that is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _assessment(result: Result) -> Assessment:
    if result.problem is None and result.saved_assessment is None:
        unknown = np.full(len(result.seeds), np.nan)
        return Assessment(unknown, "not known, because the problem cannot be restored from a file")
    return result.assessment


def _section(
    anchor: str, name: str, result: Result, assessment: Assessment, marked: Set[str]
) -> dict[str, Any]:
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
    told = [*(name for name in recorded if name.startswith(OF_CONSTRAINTS)), *DIAGNOSTICS]
    constant = [it for it in told if it in recorded and np.ptp(recorded[it]) == 0]
    same = np.array_equal(
        recorded.get("running_utility", ()), recorded["utility"], equal_nan=True
    )  # as of REINFORCE
    left_out = {*constant, *(["running_utility"] if same else [])}
    drawn = [it for it in told if it in recorded and it not in left_out and _known(recorded[it])]
    reached = np.nan if others is None else others.share(_median(assessment.utilities))
    return {
        "anchor": anchor,
        "title": name,
        "headline": result.headline,
        "findings": result.diagnosis,
        "settings": settings(result),
        "marked": [
            name for name, _ in settings(result) if {name, *_fields_of(name, result)} & marked
        ],
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
            [
                str(seed),
                status[:1].upper() + status[1:],
                *(number(column[i]) for column in columns.values()),
            ]
            for i, (seed, status) in enumerate(zip(result.seeds, result.status, strict=True))
        ],
        "foot": [
            "Median",
            f"{finished} finished",
            *(number(_median(column)) for column in columns.values()),
        ],
        "several": len(result.seeds) > 1,
        "headlines": [
            _titled(anchor, result, metric) for metric in HEADLINES if _known(recorded[metric])
        ],
        "maps": _visits(anchor, result, assessment),
        "picture": _picture(result, assessment),
        "diagnostics": [_diagnostic(anchor, result if it in EXACT else full, it) for it in drawn],
        "constant": [
            f"{describe_metric(it).label} {number(recorded[it].flat[0])}" for it in constant
        ],
    }


def _fields_of(name: str, result: Result) -> Sequence[str]:
    """The settings that a line of the page is about, besides its name."""
    return (
        list(result.config["setup"]["algorithm"].get("fields") or {}) if name == "Algorithm" else []
    )


def _known(values: np.ndarray) -> bool:
    """Whether there is anything to draw."""
    return bool(np.isfinite(values).any())


def _picture(result: Result, assessment: Assessment) -> dict[str, str] | None:
    """An episode of the best policy as an image for the page, where the environment can be drawn."""
    if result.problem is None or np.isnan(assessment.utilities).all():
        return None
    best = int(np.nanargmax(assessment.utilities))
    drawn = small_picture(result.policies[best], result.problem.env)
    if drawn is None:
        return None
    return {"seed": str(result.seeds[best]), "data": base64.b64encode(drawn).decode()}


def _slacks(result: Result, assessment: Assessment) -> dict[str, Float[np.ndarray, " seed"]]:
    """The slack of each constraint in the trained policies, by a heading."""
    if result.problem is None or assessment.excesses is None:
        return {}
    pairs = enumerate(result.problem.constraints)
    return {f"Slack of {constraint}": -assessment.excesses[:, k] for k, constraint in pairs}


def _titled(anchor: str, result: Result, metric: str) -> Chart:
    chart = describe.metric_chart(f"{anchor}-{figure_name(metric)}", result, metric)
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
        layout = saved_layout(result.config["setup"])
        if layout is None or assessment.visits is None:
            return None
        return visits_map(name, title, assessment.visits[best], layout)
    grid = counted_grid(result.problem)
    if grid is not None and assessment.visits is not None:
        return grid_map(name, title, grid, assessment.visits[best])
    if not isinstance(result.problem.env, TabularMDP):
        return None
    return visits(name, result.problem, probabilities(result.problem, result.policies[best]), title)


def _median(column: np.ndarray) -> float:
    return float(statistics.quartiles(np.asarray(column, float)[:, None])[1][0])

"""Report of training runs: an HTML page with settings, results, metrics and a comparison."""

import base64
import io
import warnings
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occupax.analysis import describe, page, statistics, verdict
from occupax.analysis.charts import Chart, Level, Maps, Series, figure_name, seeds_series, thin
from occupax.analysis.comparison import Runs, compare, differing, short_names
from occupax.analysis.densities import density_maps, has_density
from occupax.analysis.describe import (
    DIAGNOSTICS,
    UNKNOWN,
    describe_metric,
    number,
    settings,
)
from occupax.analysis.diagnosis import diagnose
from occupax.analysis.page import TableCell
from occupax.analysis.page.figures import describe_chart, drawing
from occupax.analysis.verdict import headline
from occupax.analysis.visits import grid_map, saved_layout, visits, visits_map
from occupax.envs.tabular import TabularMDP
from occupax.errors import OccupaxWarning
from occupax.exact.probabilities import probabilities
from occupax.io.files import write_bytes, write_text
from occupax.io.records import EXACT
from occupax.outcome import Assessment, Finding, Outcome, References
from occupax.samplers import EpisodeError
from occupax.training.assessment import assess_with_references, counted_grid
from occupax.training.recording import record_preview

REPORT = "report.html"
POINTS_OF_SMALL_CHART = 80
OF_CONSTRAINTS = ("multiplier/",)
"""Prefix of the metrics of constraints that are drawn small."""


def write_report(runs: Runs, path: str | Path) -> None:
    """Write one HTML page about training runs.

    Policies without a saved evaluation are evaluated.

    Args:
        runs: Pairs of a name and a result.
        path: The file to write.

    Raises:
        ValueError: if there is no run, or two runs have the same name.
    """
    from matplotlib import style

    if not runs:
        raise ValueError("runs must hold at least one pair of a name and a result, got none.")
    names = [name for name, _ in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"runs must have different names, got {', '.join(names)}.")
    printable = [(_printable(name), outcome) for name, outcome in runs]
    # the page has its own colours, independent of the user's style
    with style.context("default"):
        labels = short_names(printable)
        labelled = list(zip(labels, [outcome for _, outcome in runs], strict=True))
        assessments = [_assessment(outcome) for _, outcome in runs]
        marked = set(differing(labelled))
        sections: list[dict[str, Any]] = []
        for i, (label, outcome) in enumerate(labelled):
            sections.append(_section(f"run-{i}", label, outcome, assessments[i], marked))
        compared = compare(labelled, assessments) if len(runs) > 1 else None
        text = page.render("report.html", sections=sections, comparison=compared)
    write_text(path, text)


def write_pages(outcome: Outcome, folder: Path) -> None:
    """Write `report.html` and `plot.png` into the folder of a run.

    An error is reported as a warning.
    """
    try:
        (folder / REPORT).unlink(missing_ok=True)  # an old report has fewer episodes
        references = _assessment(outcome).references
        image = io.BytesIO()
        describe.plot_metric(outcome, references=references).savefig(image, format="png")
        write_bytes(folder / "plot.png", image.getvalue())
        write_report([(folder.resolve().name, outcome)], folder / REPORT)
    except Exception as error:  # noqa: BLE001 - an error must not end a finished training run
        warnings.warn(f"the report could not be written: {error}", OccupaxWarning, stacklevel=3)


def _printable(name: str) -> str:
    r"""Return a name with `\xe9` for each byte of a path that is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _assessment(outcome: Outcome) -> Assessment:
    assessment = assess_with_references(outcome)
    if assessment is None:
        unknown = np.full(len(outcome.seeds), np.nan)
        return Assessment(unknown, "not known, because the problem cannot be restored from a file")
    return assessment


def _findings(outcome: Outcome, assessment: Assessment) -> tuple[Finding, ...]:
    if outcome.saved_diagnosis is not None:
        return outcome.saved_diagnosis
    return () if _is_unknown(outcome) else diagnose(outcome, assessment)


def _is_unknown(outcome: Outcome) -> bool:
    """Return whether the policies can be evaluated neither from a file nor in the problem."""
    return outcome.problem is None and outcome.saved_assessment is None


def _section(
    anchor: str, name: str, outcome: Outcome, assessment: Assessment, marked: Set[str]
) -> dict[str, Any]:
    columns = {
        "Utility": assessment.utilities,
        **({} if assessment.gaps is None else {"Certified gap": assessment.gaps}),
        **_slacks(outcome, assessment),
        **_returns(outcome),
        "Steps per episode": verdict.last_entries(outcome, "episode_length"),
        "Environment steps": outcome.steps[:, -1],
    }
    finished = sum(status == "finished" for status in outcome.status)
    full, recorded, others = describe.complete(outcome), outcome.metrics, assessment.references
    names = [*(name for name in recorded if name.startswith(OF_CONSTRAINTS)), *DIAGNOSTICS]
    candidates = [metric for metric in names if metric in recorded]
    constant = [metric for metric in candidates if np.ptp(recorded[metric]) == 0]
    omitted = set(constant)
    running = recorded.get("running_utility", ())
    if np.array_equal(running, recorded["utility"], equal_nan=True):  # as of REINFORCE
        omitted.add("running_utility")
    diagnostics: list[dict[str, Any]] = []
    for metric in candidates:
        if metric not in omitted and _known(recorded[metric]):
            source = outcome if metric in EXACT else full
            diagnostics.append(_diagnostic(anchor, source, metric))
    constant_texts: list[str] = []
    for metric in constant:
        value = number(recorded[metric].flat[0])
        constant_texts.append(f"{describe_metric(metric).label} {value}")
    rows: list[list[str]] = []
    for i, (seed, status) in enumerate(zip(outcome.seeds, outcome.status, strict=True)):
        numbers = [number(column[i]) for column in columns.values()]
        rows.append([str(seed), status[:1].upper() + status[1:], *numbers])
    score = np.nan if others is None else others.share(_median(assessment.utilities))
    return {
        "anchor": anchor,
        "title": name,
        "headline": headline(outcome, None if _is_unknown(outcome) else assessment),
        "findings": _findings(outcome, assessment),
        "settings": settings(outcome),
        "marked": [
            name for name, _ in settings(outcome) if {name, *_fields_of(name, outcome)} & marked
        ],
        "assessment": assessment,
        "overview": [
            TableCell(name, anchor),
            verdict.algorithm_name(outcome),
            assessment.source,
            f"{finished} of {len(outcome.seeds)}",
            f"{outcome.episodes[-1]:,}",
            number(_median(assessment.utilities)),
            verdict.share_text(score) or UNKNOWN,
        ],
        "header": ["Seed", "Status", *columns],
        "rows": rows,
        "foot": [
            "Median",
            f"{finished} finished",
            *(number(_median(column)) for column in columns.values()),
        ],
        "several": len(outcome.seeds) > 1,
        "problem": verdict.problem_name(outcome),
        "goals": "Utility and constraints" if _has_constraints(outcome) else "Utility",
        "headlines": _headlines(anchor, outcome, assessment),
        "maps": _visits(anchor, outcome, assessment),
        "picture": _picture(outcome, assessment),
        "diagnostics": diagnostics,
        "constant": constant_texts,
    }


def _fields_of(name: str, outcome: Outcome) -> Sequence[str]:
    """Return the hyperparameters that a line of the settings contains."""
    if name != "Algorithm":
        return []
    return list(outcome.config["setup"]["algorithm"].get("fields") or {})


def _known(values: np.ndarray) -> bool:
    """Return whether any value is finite."""
    return bool(np.isfinite(values).any())


def _picture(outcome: Outcome, assessment: Assessment) -> dict[str, str] | None:
    """Return an episode of the best policy as an image, None if it cannot be rendered."""
    if outcome.problem is None or np.isnan(assessment.utilities).all():
        return None
    best = int(np.nanargmax(assessment.utilities))
    image = record_preview(outcome.policies[best], outcome.problem.env)
    if image is None:
        return None
    return {"seed": str(outcome.seeds[best]), "data": base64.b64encode(image).decode()}


def _slacks(outcome: Outcome, assessment: Assessment) -> dict[str, Float[np.ndarray, " seed"]]:
    """Return the slack of each constraint for the trained policies, by the heading of a column."""
    if outcome.problem is None or assessment.excesses is None:
        return {}
    pairs = enumerate(outcome.problem.constraints)
    return {f"Slack of {constraint}": -assessment.excesses[:, k] for k, constraint in pairs}


def _has_constraints(outcome: Outcome) -> bool:
    return outcome.problem is not None and bool(outcome.problem.constraints)


def _counts_reward(outcome: Outcome) -> bool:
    """Return whether the utility has the reward. True if the problem is unknown."""
    return outcome.problem is None or verdict.has_reward(outcome.problem.objective)


def _returns(outcome: Outcome) -> dict[str, Float[np.ndarray, " seed"]]:
    """Return the last returns of each seed by a heading, if the utility has the reward."""
    if not _counts_reward(outcome):
        return {}
    return {
        "Return": verdict.last_entries(outcome, "return"),
        "Discounted return": verdict.last_entries(outcome, "discounted_return"),
    }


def _headlines(anchor: str, outcome: Outcome, assessment: Assessment) -> list[Chart]:
    """Return the large charts: the utility, each constraint, and a return that is maximised."""
    utility = _titled(anchor, outcome, "utility", assessment.references)
    charts = [_with_assessed(utility, outcome, assessment.utilities, assessment.source)]
    if outcome.problem is not None:
        for index, constraint in enumerate(outcome.problem.constraints):
            if f"violation/{constraint.name}" in outcome.metrics:
                charts.append(_constraint_chart(anchor, outcome, assessment, index))
    if _counts_reward(outcome):
        charts.append(_titled(anchor, outcome, "return"))
    return [chart for chart in charts if any(_known(series.y) for series in chart.series)]


def _with_assessed(
    chart: Chart, outcome: Outcome, values: Float[np.ndarray, " seed"], source: str
) -> Chart:
    """Return a chart with the median and the quartiles of the trained policies at its end."""
    if not _known(values):
        return chart
    end = outcome.episodes[-1:].astype(float)
    kind = "exact" if source == "exact" else "new episodes"
    known = values[np.isfinite(values)]
    point = seeds_series(f"trained policies ({kind})", end, known[:, None])
    caption = f"{chart.caption} The marker at the end: the trained policies ({source})."
    points = replace(point, style="points")
    return replace(chart, series=(*chart.series, points), caption=caption)


def _constraint_chart(anchor: str, outcome: Outcome, assessment: Assessment, index: int) -> Chart:
    """Return the course of the quantity of a constraint, with its threshold."""
    assert outcome.problem is not None  # noqa: S101
    constraint = outcome.problem.constraints[index]
    chart = _titled(anchor, outcome, f"violation/{constraint.name}")

    def value(violation: Any) -> Any:
        return constraint.limit + constraint.sign * violation

    series = tuple(_mapped(one, value) for one in chart.series)
    singles = tuple(_mapped(one, value) for one in chart.singles)
    words = "at most" if constraint.upper else "at least"
    level = Level(f"{words} {constraint.limit:g}", constraint.limit)
    far = constraint.sign * np.inf
    forbidden = (min(constraint.limit, far), max(constraint.limit, far))
    chart = replace(
        chart,
        title=str(constraint),
        caption="Mean over about the last ten iterations. The coloured side is infeasible.",
        y_label=constraint.name,
        series=series,
        singles=singles,
        levels=(level,),
        forbidden=forbidden,
    )
    if assessment.excesses is None:
        return chart
    values = value(assessment.excesses[:, index])
    return _with_assessed(chart, outcome, values, assessment.source)


def _mapped(series: Series, function: Callable[[Any], Any]) -> Series:
    """Return a series with a function of its values. A decreasing function swaps the bounds."""
    if series.lower is None or series.upper is None:
        return replace(series, y=function(series.y))
    bounds = np.sort([function(series.lower), function(series.upper)], axis=0)
    return replace(series, y=function(series.y), lower=bounds[0], upper=bounds[1])


def _titled(
    anchor: str, outcome: Outcome, metric: str, references: References | None = None
) -> Chart:
    name = f"{anchor}-{figure_name(metric)}"
    against: describe.Against = "episodes"
    if outcome.config.get("steps") is not None:
        against = "steps"
    chart = describe.metric_chart(name, outcome, metric, against, references)
    return replace(chart, title=chart.y_label.capitalize())


def _diagnostic(anchor: str, outcome: Outcome, metric: str) -> dict[str, Any]:
    chart = _titled(anchor, outcome, metric)
    series = tuple(thin(one, POINTS_OF_SMALL_CHART) for one in chart.series)
    chart = replace(chart, series=series, singles=())
    figure = describe.draw_metric(chart, metric, bare=True)
    figure.set_size_inches(3.3, 2.3)
    figure.axes[0].set_ylabel("")  # the caption begins with it
    return drawing(figure, chart, describe_chart(chart))


def _visits(anchor: str, outcome: Outcome, assessment: Assessment) -> Maps | None:
    if np.isnan(assessment.utilities).all():
        return None
    best = int(np.nanargmax(assessment.utilities))
    name, title = f"{anchor}-visits", f"best policy (seed {outcome.seeds[best]})"
    if outcome.problem is None:
        layout = saved_layout(outcome.config["setup"])
        if layout is None or assessment.visits is None:
            return None
        return visits_map(name, title, assessment.visits[best], layout)
    grid = counted_grid(outcome.problem)
    if grid is not None and assessment.visits is not None:
        return grid_map(name, title, grid, assessment.visits[best])
    if has_density(outcome.problem):
        return _density(name, title, outcome, best)
    if not isinstance(outcome.problem.env, TabularMDP):
        return None
    return visits(
        name, outcome.problem, probabilities(outcome.problem, outcome.policies[best]), title
    )


def _density(name: str, title: str, outcome: Outcome, best: int) -> Maps | None:
    """Return the visits of the initial and the best policy over two entries of the observation."""
    assert outcome.problem is not None  # noqa: S101
    policies = [(title, outcome.policies[best])]
    if outcome.initial_policy is not None:
        policies.insert(0, ("initial policy", outcome.initial_policy))
    try:
        return density_maps(name, outcome.problem, policies)
    except EpisodeError:  # the headline says so
        return None


def _median(column: np.ndarray) -> float:
    return float(statistics.quartiles(np.asarray(column, float)[:, None])[1][0])

"""A page about training runs: what was trained, what came of it, and what the numbers mean."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax import serial
from occupax.analysis import metrics, page
from occupax.analysis.comparison import comparison
from occupax.analysis.describe import settings
from occupax.analysis.interactive import describe_chart
from occupax.analysis.statistics import quartiles
from occupax.analysis.visits import visits
from occupax.analysis.words import DIAGNOSTICS, HEADLINES, METRICS, UNKNOWN, number
from occupax.envs.tabular import TabularMDP
from occupax.training.records import EXACT, Budget
from occupax.training.result import TRIALS, Result, probabilities


class Outcome(NamedTuple):
    """What the policies of a run are worth."""

    utilities: Float[np.ndarray, " seed"]
    source: str
    """Where `utilities` come from."""
    gaps: Float[np.ndarray, " seed"] | None
    """The certified gaps, for a concave utility on a table."""
    reason: str
    """Why there is no gap, where one was tried."""


def write_report(runs: Sequence[tuple[str, Result]], path: str | Path) -> None:
    """Write one HTML page about training runs, which needs no other file and no network.

    Args:
        runs: a name and a result for each. What their policies are worth is worked out anew, which takes a moment.
        path: the file.
    """
    from matplotlib import style

    if not runs:
        raise ValueError("runs must hold at least one pair of a name and a result, got none.")
    outcomes = [_outcome(result) for _, result in runs]
    names = [name for name, _ in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"runs must have different names, got {', '.join(names)}.")
    parts = [_contents(names), _overview(runs, outcomes), comparison(runs)] if len(runs) > 1 else []
    with style.context("default"):  # the page has its own colours, whatever the user's figures look like
        parts += [
            _section(f"run-{i}", *run, outcome) for i, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))
        ]
    serial.write_text(path, page.page(f"Training report: {', '.join(names)}", "Training report", "\n".join(parts)))


def _outcome(result: Result) -> Outcome:
    problem = result.problem
    if problem is None:
        return Outcome(result.metrics["utility"][:, -1].astype(float), "estimate of the last record", None, "")
    if not isinstance(problem.env, TabularMDP):
        return Outcome(result.utilities, f"estimate from {TRIALS:,} new episodes", None, "")
    if not problem.utility.concave:
        return Outcome(result.utilities, "exact", None, "")
    try:
        gaps = np.array([result.certificate(seed).gap for seed in result.seeds])
    except ValueError as error:  # a utility that is infinitely steep where a policy never goes
        return Outcome(result.utilities, "exact", None, f"There is no certificate: {error}")
    return Outcome(result.utilities, "exact", gaps, "")


def _contents(names: Sequence[str]) -> str:
    return page.contents([("comparison", "Comparison"), *((f"run-{i}", name) for i, name in enumerate(names))])


def _overview(runs: Sequence[tuple[str, Result]], outcomes: Sequence[Outcome]) -> str:
    """A line for each run."""
    rows = [
        [
            f'<a href="#run-{i}">{escape(name)}</a>',
            escape(metrics.algorithm_name(result)),
            outcome.source,
            f"{sum(status == 'finished' for status in result.status)} of {len(result.seeds)}",
            f"{result.episodes[-1]:,}",
            _median(outcome.utilities),
            UNKNOWN if outcome.gaps is None else _median(outcome.gaps),
        ]
        for i, ((name, result), outcome) in enumerate(zip(runs, outcomes, strict=True))
    ]
    header = ["Run", "Algorithm", "Utility is", "Seeds finished", "Episodes", "Median utility", "Median certified gap"]
    return page.table("All runs.", header, rows, words=3)


def _section(anchor: str, name: str, result: Result, outcome: Outcome) -> str:
    shown = [metric for metric in DIAGNOSTICS if metric in result.metrics]
    complete = _complete(result)
    small = "\n".join(_diagnostic(anchor, result if metric in EXACT else complete, metric) for metric in shown)
    large = "\n".join(_headline(anchor, result, metric) for metric in HEADLINES)
    many = "Line: median of the seeds; band: between their quartiles."
    line = many if len(result.seeds) > 1 else "The line is the only seed."
    return "\n".join(
        [
            f'<section id="{anchor}">\n<h2>{escape(name)}</h2>',
            page.definitions(settings(result)),
            f"<h3>Seeds</h3>\n{_seeds(result, outcome)}",
            f'<h3>Utility and return</h3>\n<div class="figures">\n{large}\n</div>',
            _visits(anchor, result, outcome),
            f'<h3>Diagnostics</h3>\n<p class="quiet">{line}</p>\n<div class="small figures">\n{small}\n</div>',
            "</section>",
        ]
    )


def _seeds(result: Result, outcome: Outcome) -> str:
    """A line for each seed, the medians, and what the columns mean."""
    columns = {"Utility": outcome.utilities}
    if outcome.gaps is not None:
        columns["Certified gap"] = outcome.gaps
    for metric, header in (("return", "Return"), ("discounted_return", "Discounted return")):
        columns[header] = result.metrics[metric][:, -1]
    columns["Steps per episode"] = result.metrics["episode_length"][:, -1]
    columns["Environment steps"] = result.steps[:, -1]
    rows = [
        [str(seed), escape(status[:1].upper() + status[1:]), *(number(column[i]) for column in columns.values())]
        for i, (seed, status) in enumerate(zip(result.seeds, result.status, strict=True))
    ]
    finished = sum(status == "finished" for status in result.status)
    foot = ["Median", f"{finished} finished", *(_median(column) for column in columns.values())]
    gap = " Certified gap: no policy is better by more than this." if outcome.gaps is not None else ""
    note = (
        f"Utility: {outcome.source}.{gap} Returns and steps per episode: means over the episodes of the last record; a "
        f"seed that was stopped has none. {outcome.reason}"
    )
    table = page.table("What each seed came to.", ["Seed", "Status", *columns], rows, foot, words=2)
    return f'{table}\n<p class="quiet">{escape(note)}</p>'


def _headline(anchor: str, result: Result, metric: str) -> str:
    chart = metrics.metric_chart(f"{anchor}-{metric}", result, metric)
    return page.interactive(replace(chart, title=METRICS[metric].label.capitalize()))


def _diagnostic(anchor: str, result: Result, metric: str) -> str:
    name, meaning = METRICS[metric]
    chart = replace(metrics.metric_chart(f"{anchor}-{metric}", result, metric), singles=())
    figure = metrics.draw_metric(chart, metric, bare=True)
    figure.set_size_inches(3.3, 2.3)
    figure.axes[0].set_ylabel("")  # the caption begins with it
    return page.figure(page.inline_svg(figure, chart.name, describe_chart(chart)), name.capitalize(), meaning)


def _complete(result: Result) -> Result:
    """The result without a last record of fewer iterations than the others, whose diagnostics do not compare."""
    if result.algorithm is None or len(result.episodes) < 2:
        return result
    iterations = Budget(result.algorithm.cycle).iterations(int(result.episodes[-1]))
    if iterations % result.config["setup"]["record_every"] == 0:
        return result
    metrics = {name: values[:, :-1] for name, values in result.metrics.items()}
    return replace(result, episodes=result.episodes[:-1], steps=result.steps[:, :-1], metrics=metrics)


def _visits(anchor: str, result: Result, outcome: Outcome) -> str:
    """Maps of where the best policy goes, if there is a map."""
    known = ~np.isnan(outcome.utilities)
    if result.problem is None or not isinstance(result.problem.env, TabularMDP) or not known.any():
        return ""
    best = int(np.nanargmax(outcome.utilities))
    table = probabilities(result.problem, result.policies[best])
    maps = visits(f"{anchor}-visits", result.problem, table, f"best policy (seed {result.seeds[best]})")
    return "" if maps is None else f"<h3>Where the policy goes</h3>\n{page.interactive(maps)}"


def _median(column: Any) -> str:
    return number(quartiles(np.asarray(column, float)[:, None])[1][0])

"""A page about training runs: what was trained, what came of it, and what the numbers mean."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax import exact, serial
from occupax.analysis import page, plots
from occupax.analysis.describe import settings
from occupax.analysis.statistics import quartiles
from occupax.analysis.words import DIAGNOSTICS, HEADLINES, METRICS
from occupax.envs.tabular import TabularMDP
from occupax.training.records import EXACT, Budget
from occupax.training.result import TRIALS, Result, probabilities

UNKNOWN = "&ndash;"


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
    parts = [_overview(runs, outcomes)] if len(runs) > 1 else []
    with style.context("default"):  # the page has its own colours, whatever the user's figures look like
        parts += [
            _section(f"run-{i}", *run, outcome) for i, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))
        ]
    names = ", ".join(name for name, _ in runs)
    serial.write_text(path, page.page(f"Training report: {names}", "Training report", "\n".join(parts)))


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


def _overview(runs: Sequence[tuple[str, Result]], outcomes: Sequence[Outcome]) -> str:
    """A line for each run."""
    rows = [
        [
            f'<a href="#run-{i}">{escape(name)}</a>',
            escape(plots.algorithm_name(result)),
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
    small = "\n".join(_curve(anchor, result if metric in EXACT else complete, metric, small=True) for metric in shown)
    large = "\n".join(_curve(anchor, result, metric, small=False) for metric in HEADLINES)
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
        [str(seed), escape(status[:1].upper() + status[1:]), *(_number(column[i]) for column in columns.values())]
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


def _curve(anchor: str, result: Result, metric: str, small: bool) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3, 2.3) if small else (4.8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    plots.draw_metric(axes, result, metric, singles=not small)
    if small:
        axes.set_ylabel("")  # the caption begins with it
    else:
        plots.add_legend(axes, columns=2)
    name, meaning = METRICS[metric]
    medians = quartiles(result.metrics[metric])[1]
    known = medians[~np.isnan(medians)]
    course = f"from {_number(known[0])} to {_number(known[-1])}" if known.size else "not known"
    whose = f"median of {len(result.seeds)} seeds" if len(result.seeds) > 1 else "one seed"
    description = f"{name} against sampled episodes, {whose}: {course}."
    return page.figure(page.inline_svg(figure, f"{anchor}-{metric}", description), name.capitalize(), meaning)


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
    """Maps of the best policy's and the uniform policy's visits, if the states can be the cells of a square."""
    problem = result.problem
    known = ~np.isnan(outcome.utilities)
    if problem is None or not isinstance(problem.env, TabularMDP) or not known.any():
        return ""
    states, actions = problem.env.num_states, problem.env.num_actions
    side = isqrt(states)
    if side < 2 or side * side != states:
        return ""
    best = int(np.nanargmax(outcome.utilities))
    tables = [probabilities(problem, result.policies[best]), np.full((states, actions), 1 / actions)]
    titles = [f"best policy (seed {result.seeds[best]})", "uniform policy"]
    grids = [exact.occupancy(problem, table).sum(1).reshape(side, side) for table in tables]
    svg = page.inline_svg(
        plots.plot_visits(list(zip(titles, grids, strict=True))),
        f"{anchor}-visits",
        f"Maps of the states visited: {_spread(grids[0])} by the best policy, {_spread(grids[1])} by the uniform one.",
    )
    meaning = (
        f"How often each state is visited in an episode, discounted and exact. State s is in row s // {side} and "
        f"column s % {side}, a map if the states are the cells of a grid. Brighter is more often; hatched is never."
    )
    return f'<h3>Where the policy goes</h3>\n<div class="maps">\n{page.figure(svg, "Visits", meaning)}\n</div>'


def _spread(grid: Float[np.ndarray, "n n"]) -> str:
    return f"{np.count_nonzero(grid > plots.VISITS_SHOWN * grid.max())} of {grid.size}"


def _median(column: Any) -> str:
    return _number(quartiles(np.asarray(column, float)[:, None])[1][0])


def _number(number: Any) -> str:
    if np.isnan(number):
        return UNKNOWN
    if number == 0 or isinstance(number, np.integer) or 1000 <= abs(number) < 1e9:
        return f"{number:,.0f}"
    return f"{number:#.4g}".removesuffix(".")

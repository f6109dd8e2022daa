"""Section 6.2: how fast the gap to the optimum closes as snapshots grow."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from occupax import exact
from occupax.algorithms import TSIVRPG
from occupax.analysis.charts import Chart, Series
from occupax.analysis.statistics import Line, log_log_line
from occupax.experiments.cells import Cell, Done, Scale
from occupax.experiments.methods import RATE_SNAPSHOT, Settings, epoch_episodes
from occupax.experiments.sections import Claim, Section, TextTable, claim, text
from occupax.experiments.tasks import COVERAGE, LAKE, Task, tasks
from occupax.problem import Problem

TASKS = {LAKE: "lake", COVERAGE: "coverage"}
OURS, THEORY, PAPER = "TSIVR-PG", -0.5, -0.496
PRINTED_OPTIMUM = 0.4146
LARGEST = 7
"""How many of the largest N a second line is fitted to: the smallest hardly learn in so few steps."""
NEAR = 0.1
"""How far a slope may be from the theory's and still be close to it."""

Key = tuple[str, int]
"""The name of a task, and the square root of N."""


def cells(scale: Scale, tuned: Settings) -> dict[Key, Cell]:
    """Every cell of this section at a scale."""
    found: dict[Key, Cell] = {}
    for task, root in product(TASKS, scale.roots):
        given = cast("TSIVRPG", tuned[task, OURS])
        algorithm = replace(given, snapshot_batch=root * root, batch=root, epoch_length=root)
        episodes = scale.epochs * epoch_episodes(algorithm)
        name = f"rate-{TASKS[task]}-{root * root}"
        found[task, root] = Cell(name, tasks()[task], algorithm, episodes, min(scale.most_seeds, 10))
    return found


class Gaps(NamedTuple):
    """A way to measure the distance of policies from the optimum."""

    label: str
    optimum: float
    evaluator: exact.Evaluator

    def of(self, tables: np.ndarray) -> Float[np.ndarray, " seed"]:
        """The gap of each table."""
        return self.optimum - self.evaluator.utilities(self.evaluator.occupancies(tables))


def ways(task: Task) -> list[Gaps]:
    """Against the optimum of the infinite horizon, against that of H steps, and as the paper mixes them."""
    finite = task.problem
    endless = Problem(finite.env, finite.utility, finite.discount, None, finite.termination)
    best, steps = exact.solve(endless).value, cast("float", task.optimum)
    within, ever = (exact.Evaluator(problem) for problem in (finite, endless))
    return [
        Gaps("infinite horizon", best, ever),
        Gaps(f"horizon of {finite.horizon}", steps, within),
        Gaps(f"{finite.horizon} steps, infinite optimum", best, within),
    ]


class Fit(NamedTuple):
    """Mean gaps at numbers of episodes, and the line through their logarithms."""

    way: Gaps
    episodes: Float[np.ndarray, " point"]
    gaps: list[Float[np.ndarray, " seed"]]
    means: Float[np.ndarray, " point"]
    line: Line
    fitted: Float[np.ndarray, " point"]
    """The values of the line at these numbers of episodes."""
    large: Line
    """The line through the gaps of the largest N only."""


def fit(done: Mapping[Key, Done], task: str, way: Gaps) -> Fit:
    """The gaps of all snapshots of a task."""
    parts = [it for (name, _), it in done.items() if name == task]
    episodes = np.array([it.cell.episodes for it in parts], float)
    gaps = [way.of(np.asarray(it.tables)) for it in parts]
    means = np.array([gap.mean() for gap in gaps])
    line, large = log_log_line(episodes, means), log_log_line(episodes[-LARGEST:], means[-LARGEST:])
    return Fit(way, episodes, gaps, means, line, np.exp(line.intercept) * episodes**line.slope, large)


def sections(done: Mapping[Key, Done]) -> list[Section]:
    """What the report says of section 6.2."""
    found = {task: [fit(done, task, way) for way in ways(tasks()[task])] for task in TASKS}
    first = next(iter(done.values())).cell
    epochs = first.episodes // epoch_episodes(first.algorithm)
    values = {"epochs": epochs, "seeds": first.seeds, "algorithm": first.algorithm, "snapshot": RATE_SNAPSHOT}
    rows = [
        [task, it.way.label, _slope(it.line), _slope(it.large), f"{it.means[0]:.4g}", f"{it.means[-1]:.4g}"]
        for task in TASKS
        for it in found[task]
    ]
    table = TextTable(**text("tables", "rate-slopes", largest=LARGEST), rows=rows)
    claims, figures = _claims(found[LAKE], first.algorithm), [_chart(task, found[task]) for task in TASKS]
    return [Section(**text("sections", "rate", **values), claims=claims, figures=figures, tables=[table])]


def _chart(task: str, fits: list[Fit]) -> Chart:
    series: list[Series] = []
    for it in fits:
        spread = np.array([np.log(np.maximum(gap, 1e-12)).std(ddof=1) for gap in it.gaps])
        low, high = it.means * np.exp(-spread), it.means * np.exp(spread)
        series.append(Series(it.way.label, it.episodes, it.means, low, high, "points"))
    first = fits[0]
    theory = first.fitted[-1] * (first.episodes / first.episodes[-1]) ** THEORY
    series += [
        Series(f"fit, slope {first.line.slope:.3f}", first.episodes, first.fitted, style="dashed"),
        Series("slope -1/2", first.episodes, theory, style="dashed"),
    ]
    name, caption = f"rate-{TASKS[task]}", text("captions", "rate")
    return Chart(name, task, caption, "sampled episodes", "gap to the optimum", tuple(series), log=True)


def _slope(line: Line) -> str:
    return f"{line.slope:.3f} [{line.lower:.3f}, {line.upper:.3f}]"


def _claims(lake: list[Fit], algorithm: Any) -> list[Claim]:
    best, means, line = lake[0].way.optimum, lake[0].means, lake[0].line
    decreases = [line.upper < 0, bool(means[-1] < means[0])]
    drawn, expected = epoch_episodes(algorithm), algorithm.snapshot_batch + algorithm.batch * algorithm.epoch_length
    return [
        claim("optimum", [abs(best - PRINTED_OPTIMUM) < 5e-5], printed=PRINTED_OPTIMUM, optimum=best),
        *map(_slope_claim, (lake[0], lake[2])),
        claim("decrease", decreases, first=means[0], last=means[-1], upper=line.upper),
        claim("episodes", [drawn == expected], drawn=drawn, expected=expected, algorithm=algorithm),
    ]


def _slope_claim(it: Fit) -> Claim:
    lines = it.line, it.large
    near = [abs(line.slope - THEORY) <= NEAR for line in lines]
    within = [line.lower <= THEORY <= line.upper for line in lines]
    off = float(np.exp(np.abs(np.log(it.means / it.fitted)).max()))
    values = {"way": it.way.label, "slope": _slope(it.line), "large": _slope(it.large), "largest": LARGEST, "off": off}
    return claim("slope", near + within, paper=PAPER, theory=THEORY, **values)

"""Section 6.2: how fast the gap to the optimum closes as snapshots grow."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from occupax import exact
from occupax.algorithms import TSIVRPG
from occupax.analysis.charts import Chart, Series
from occupax.analysis.curves import Line, log_log_line
from occupax.experiments.cells import Cell, Done, Scale
from occupax.experiments.methods import RATE_SNAPSHOT, Trial, epoch_episodes
from occupax.experiments.sections import Claim, Section, TextTable, verdict
from occupax.experiments.tasks import COVERAGE, LAKE, Task, tasks
from occupax.problem import Problem

TASKS = (LAKE, COVERAGE)
OURS, THEORY, PAPER = "TSIVR-PG", -0.5, -0.496
PRINTED_OPTIMUM = 0.4146
LARGEST = 7
"""How many of the largest N a second line is fitted to: the smallest hardly learn in so few steps."""
NEAR = 0.1
"""How far a slope may be from the theory's and still be close to it."""

Key = tuple[str, int]
"""The name of a task, and the square root of N."""


def cells(scale: Scale, trials: Mapping[tuple[str, str], Trial]) -> dict[Key, Cell]:
    """All that is to be trained; `trials` has the settings for each task and method."""
    return {
        (task, root): _cell(scale, tasks()[task], root, trials[task, OURS].settings)
        for task in TASKS
        for root in scale.roots
    }


def _cell(scale: Scale, task: Task, root: int, settings: Mapping[str, Any]) -> Cell:
    algorithm = TSIVRPG(root * root, root, root, **settings)
    name = f"rate-{'lake' if task.name == LAKE else 'coverage'}-{root * root}"
    return Cell(name, task, algorithm, scale.epochs * epoch_episodes(algorithm), min(scale.most_seeds, 10))


class Gaps(NamedTuple):
    """A way to measure the distance of policies from the optimum."""

    label: str
    optimum: float
    evaluator: exact.Evaluator
    """Says what policies are worth."""

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
    line: Line
    large: Line
    """The line through the gaps of the largest N only."""

    @property
    def means(self) -> Float[np.ndarray, " point"]:
        """The mean gap over the seeds, for each number of episodes."""
        return np.array([gap.mean() for gap in self.gaps])

    @property
    def fitted(self) -> Float[np.ndarray, " point"]:
        """The values of the line at these numbers of episodes."""
        return np.exp(self.line.intercept) * self.episodes**self.line.slope

    @property
    def off(self) -> float:
        """The largest factor between a mean and the line."""
        return float(np.exp(np.abs(np.log(self.means / self.fitted)).max()))


def fit(done: Mapping[Key, Done], task: str, way: Gaps) -> Fit:
    """The gaps of all snapshots of a task."""
    parts = [it for (name, _), it in done.items() if name == task]
    episodes = np.array([it.cell.episodes for it in parts], float)
    gaps = [way.of(np.asarray(it.tables)) for it in parts]
    means = np.array([gap.mean() for gap in gaps])
    large = slice(-LARGEST, None)
    return Fit(way, episodes, gaps, log_log_line(episodes, means), log_log_line(episodes[large], means[large]))


def sections(done: Mapping[Key, Done]) -> list[Section]:
    """What the report says of section 6.2."""
    found = {task: [fit(done, task, way) for way in ways(tasks()[task])] for task in TASKS}
    first = next(iter(done.values())).cell
    algorithm: Any = first.algorithm
    epochs = first.episodes // epoch_episodes(algorithm)
    text = (
        f"TSIVR-PG for E = {epochs} epochs with B = m = sqrt(N), {first.seeds} runs for each N; on the lake with step "
        f"size {algorithm.step_size:g} and radius {algorithm.radius:g}, the best in the end of a search at N = "
        f"{RATE_SNAPSHOT:,}. The gap of the last policy is exact, not sampled. The theorem behind the slope -1/2 does "
        "not cover a linear utility with a tabular softmax, whose optimum is at infinity; log coverage has its optimum "
        "inside, and its settings are those of a search of its own. An optimum for so many steps is that of policies "
        "that may depend on time, an upper bound for those that are trained."
    )
    figures = [_chart(task, found[task]) for task in TASKS]
    table = TextTable(
        "rate-slopes",
        "Slope of log gap against log episodes, with its 95% interval (Student), and the gap at the ends.",
        [
            "Task",
            "Gap measured",
            "Slope",
            f"Slope, {LARGEST} largest N",
            "Gap with the smallest N",
            "Gap with the largest N",
        ],
        [_row(task, it) for task in TASKS for it in found[task]],
        2,
    )
    return [Section("rate", "6.2 The rate of convergence", text, _claims(found, algorithm), figures, (table,))]


def _chart(task: str, fits: list[Fit]) -> Chart:
    slug = "lake" if task == LAKE else "coverage"
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
    caption = (
        "Mean over the runs of the exact gap of the last policy, against all episodes that were sampled; bars: one "
        "standard deviation of the logarithm, as in the paper. The line is fitted to the gaps of the infinite horizon."
    )
    return Chart(f"rate-{slug}", task, caption, "sampled episodes", "gap to the optimum", tuple(series), log=True)


def _row(task: str, it: Fit) -> list[str]:
    return [task, it.way.label, _slope(it.line), _slope(it.large), f"{it.means[0]:.4g}", f"{it.means[-1]:.4g}"]


def _slope(line: Line) -> str:
    return f"{line.slope:.3f} [{line.lower:.3f}, {line.upper:.3f}]"


def _claims(found: Mapping[str, list[Fit]], algorithm: Any) -> list[Claim]:
    lake, mixed = found[LAKE][0], found[LAKE][2]
    optimum = lake.way.optimum
    slopes = [
        Claim(
            "6.2",
            f"The fitted slope is {PAPER}, which nearly matches the theory's {THEORY}.",
            f"tuned, {it.way.label}",
            f"Slope {_slope(it.line)} over all N, {_slope(it.large)} over the {LARGEST} largest; gaps are off the line "
            f"by a factor of up to {it.off:.1f}.",
            verdict(
                test
                for line in (it.line, it.large)
                for test in (line.lower <= THEORY <= line.upper, abs(line.slope - THEORY) <= NEAR)
            ),
        )
        for it in (lake, mixed)
    ]
    snapshot, batch, length = algorithm.snapshot_batch, algorithm.batch, algorithm.epoch_length
    return [
        Claim(
            "6.2",
            f"The optimal value of FrozenLake8x8 is {PRINTED_OPTIMUM} for a discount of 0.99.",
            "exact",
            f"Value iteration gives {optimum:.6f}.",
            verdict([abs(optimum - PRINTED_OPTIMUM) < 5e-5]),
        ),
        *slopes,
        Claim(
            "6.2",
            "The gap decreases as the number of samples increases.",
            "tuned",
            f"From {lake.means[0]:.4g} to {lake.means[-1]:.4g} on average; the slope is below {lake.line.upper:.3f}.",
            verdict([lake.line.upper < 0, bool(lake.means[-1] < lake.means[0])]),
        ),
        Claim(
            "6.2",
            "E epochs take E (N + B m) = 2 E N episodes.",
            "counted",
            f"Algorithm 1 draws N + (m - 1) B an epoch: {epoch_episodes(algorithm)} for N = {snapshot}, "
            f"B = m = {batch}, instead of {snapshot + batch * length}; the difference is B an epoch.",
            verdict([epoch_episodes(algorithm) == snapshot + batch * length]),
        ),
    ]

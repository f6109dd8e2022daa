"""Learning curves and tables of differences that several experiments share."""

from collections.abc import Mapping, Sequence

import numpy as np

from occupax.analysis.charts import Chart, Level, seeds_series
from occupax.analysis.statistics import on_grid
from occupax.experiments.cells import ExperimentResult
from occupax.experiments.inference import Seeds, difference, is_above
from occupax.experiments.sections import answer_word, shown, text
from occupax.experiments.tasks import Task

MAX_POINTS = 120
"""Number of points of a curve."""


def learning_curves(
    name: str,
    title: str,
    task: Task,
    results: Mapping[str, ExperimentResult],
    look: Mapping[str, int],
    limits: tuple[float, float] | None = None,
) -> Chart:
    """Return medians and quartiles over the seeds, against sampled episodes."""
    series = []
    for label, result in results.items():
        values = result.values
        if label.endswith("(mixture)"):
            values = result.mixture
        points = min(MAX_POINTS, len(result.episodes))
        grid = np.linspace(0, result.episodes[-1], points)
        series.append(seeds_series(label, grid, on_grid(result.episodes, values, grid)))
    level = "nine tenths of the way"
    if task.fixed_threshold is not None:
        level = "solved"
    return Chart(
        name,
        title,
        text("captions", "curves", unit=task.unit),
        "sampled episodes",
        task.unit,
        tuple(series),
        (Level(level, task.threshold),),
        look=look,
        limits=limits,
    )


def difference_rows(pairs: Sequence[tuple[Sequence[str], Seeds, Seeds]]) -> list[list[str]]:
    """Return for each pair of a family its words, the difference, and whether it is positive."""
    rows: list[list[str]] = []
    for labels, first, second in pairs:
        gain = difference(first, second, len(pairs))
        rows.append([*labels, shown(gain), answer_word(is_above(gain))])
    return rows

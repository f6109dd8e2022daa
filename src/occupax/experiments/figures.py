"""Learning curves, and tables of differences, that several experiments share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from occupax.analysis.charts import Chart, Level, seeds_series
from occupax.analysis.statistics import on_grid
from occupax.experiments.cells import Outcome
from occupax.experiments.inference import Seeds, above, difference
from occupax.experiments.sections import TextTable, answer, shown, text
from occupax.experiments.tasks import Task

POINTS = 120
"""How many points of a curve are drawn."""


def curves(
    name: str,
    title: str,
    task: Task,
    outcomes: Mapping[str, Outcome],
    look: Mapping[str, int],
    limits: tuple[float, float] | None = None,
) -> Chart:
    """Medians and quartiles over the seeds, against sampled episodes."""
    series = []
    for label, it in outcomes.items():
        values = it.mixture if label.endswith("(mixture)") else it.values
        grid = np.linspace(0, it.episodes[-1], min(POINTS, len(it.episodes)))
        series.append(seeds_series(label, grid, on_grid(it.episodes, values, grid)))
    levels = [
        Level(
            "solved" if task.given_threshold is not None else "nine tenths of the way",
            task.threshold,
        )
    ]
    caption = text("captions", "curves", unit=task.unit)
    return Chart(
        name,
        title,
        caption,
        "sampled episodes",
        task.unit,
        tuple(series),
        tuple(levels),
        look=look,
        limits=limits,
    )


def difference_rows(pairs: Sequence[tuple[Sequence[str], Seeds, Seeds]]) -> list[list[str]]:
    """Some words, a difference of means with its interval, and whether it is above zero, for each pair of a family."""
    found = [(labels, difference(first, second, len(pairs))) for labels, first, second in pairs]
    return [[*labels, shown(by), answer(above(by))] for labels, by in found]


def table(name: str, rows: Sequence[Sequence[str]], **values: Any) -> TextTable:
    """A table of the texts."""
    return TextTable(**text("tables", name, **values), rows=rows)

"""Figures and tables that several experiments share."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from occupax.analysis.charts import Chart, Level, seeds_series
from occupax.experiments.cells import SPAN, Outcome
from occupax.experiments.sections import Table, centre, median, shown
from occupax.experiments.tasks import Task


def both_curves(
    name: str, title: str, task: Task, parts: Sequence[tuple[str, Outcome]], look: Mapping[str, int]
) -> tuple[Chart, Chart]:
    """Medians and quartiles over the seeds, against sampled episodes and against environment steps."""
    average = "" if task.measure in ("exact", "utility") else f" (mean of the last {SPAN} episodes)"
    levels = (Level("solved", task.threshold),) if isfinite(task.threshold) else ()
    if task.optimum is not None:
        levels = (*levels, Level("optimum", task.optimum))
    caption = f"Median over the seeds of the {task.unit}{average}; band: quartiles."
    by_episodes = tuple(seeds_series(label, it.grid, it.curve) for label, it in parts)
    by_steps = tuple(seeds_series(label, it.step_grid, it.step_curve) for label, it in parts)
    return (
        Chart(name, title, caption, "sampled episodes", task.unit, by_episodes, levels, look=look),
        Chart(f"{name}-steps", title, caption, "environment steps", task.unit, by_steps, levels, look=look),
    )


def summary_table(name: str, task: Task, parts: Iterable[tuple[str, str, Outcome, int]]) -> Table:
    """Area under the curve, episodes to the threshold and outcome, with intervals, for settings and algorithms."""
    rows = [
        [
            setting,
            label,
            shown(centre(it.heights)),
            shown(median(it.reached)),
            shown(centre(it.final)),
            str(stopped),
        ]
        for setting, label, it, stopped in parts
    ]
    caption = (
        f"{task.name}: mean {task.unit} over the whole training (area under the curve) and in the end, interquartile "
        f"means over the seeds; median number of episodes until {task.threshold:.4g}; with 95% bootstrap intervals."
    )
    header = ["Settings", "Algorithm", "Area under curve", "Episodes to threshold", "In the end", "Seeds stopped"]
    return Table(name, caption, header, rows, 2)

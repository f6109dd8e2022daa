"""Figures and tables that several experiments share."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from occupax.analysis.charts import Chart, Level, Maps, seeds_series
from occupax.analysis.statistics import Interval
from occupax.analysis.visits import visits
from occupax.experiments.cells import SPAN, Done, Measurement
from occupax.experiments.sections import TextTable, above, answer, centre, difference, median, shown
from occupax.experiments.tasks import Task


def both_curves(
    name: str, title: str, task: Task, parts: Sequence[tuple[str, Measurement]], look: Mapping[str, int]
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


def gain(first: Measurement, second: Measurement) -> Interval:
    """By how much the area under the first curve is larger, and its 95% bootstrap interval."""
    return difference(first.heights, second.heights)


def gains_table(
    name: str, caption: str, header: Sequence[str], pairs: Iterable[tuple[Sequence[str], Measurement, Measurement]]
) -> TextTable:
    """The gain of one measurement over another, and whether it is above zero, after some words, for each row."""
    found = [(labels, gain(first, second)) for labels, first, second in pairs]
    rows = [[*labels, shown(it), answer(above(it))] for labels, it in found]
    return TextTable(name, caption, header, rows, len(header) - 2)


def best_visits(name: str, candidates: Iterable[Done], title: str) -> list[Maps]:
    """Maps of where the best policy of some cells goes, if there is a map of its environment."""
    best = max(candidates, key=lambda it: it.last.final.max())
    if best.tables is None:
        return []
    maps = visits(name, best.cell.task.problem, best.tables[int(best.last.final.argmax())], title)
    return [] if maps is None else [maps]


def summary_table(name: str, task: Task, parts: Iterable[tuple[str, str, Measurement, int]]) -> TextTable:
    """Area under the curve, episodes to the threshold and outcome, with intervals, for settings and algorithms."""
    rows = [
        [setting, label, *map(shown, (centre(it.heights), median(it.reached), centre(it.final))), str(stopped)]
        for setting, label, it, stopped in parts
    ]
    caption = (
        f"{task.name}: mean {task.unit} over the whole training (area under the curve) and in the end, interquartile "
        f"means over the seeds; median number of episodes until {task.threshold:.4g}; with 95% bootstrap intervals."
    )
    header = ["Settings", "Algorithm", "Area under curve", "Episodes to threshold", "In the end", "Seeds stopped"]
    return TextTable(name, caption, header, rows, 2)

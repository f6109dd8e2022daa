"""Figures, tables and sections that several experiments share."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import isfinite
from typing import Any, NamedTuple

from occupax.analysis.charts import Chart, Level, Maps, seeds_series
from occupax.analysis.statistics import Interval, bootstrap_difference
from occupax.analysis.visits import visits
from occupax.experiments.cells import SPAN, Cell, Done, Measurement, Scale
from occupax.experiments.methods import Settings
from occupax.experiments.sections import Section, TextTable, above, answer, centre, median, shown, text
from occupax.experiments.tasks import Task, tasks

Key = tuple[str, str, str]
"""The names of a setting, a task and a method."""


def gain(first: Measurement, second: Measurement) -> Interval:
    """By how much the area under the first curve is larger, and its 95% bootstrap interval."""
    return bootstrap_difference(first.heights, second.heights)


def gains_table(name: str, pairs: Iterable[tuple[Sequence[str], Measurement, Measurement]], **values: Any) -> TextTable:
    """The gain of one measurement over another, and whether it is above zero, after some words, for each row."""
    found = [(labels, gain(first, second)) for labels, first, second in pairs]
    return TextTable(**text("tables", name, **values), rows=[[*it, shown(by), answer(above(by))] for it, by in found])


def both_curves(
    name: str, title: str, task: Task, parts: Mapping[str, Measurement], look: Mapping[str, int]
) -> tuple[Chart, Chart]:
    """Medians and quartiles over the seeds, against sampled episodes and against environment steps."""
    average = "" if task.measure in ("exact", "utility") else f" (mean of the last {SPAN} episodes)"
    known = {"solved": task.threshold, "optimum": task.optimum}
    levels = tuple(Level(label, level) for label, level in known.items() if level is not None and isfinite(level))
    caption = text("captions", "curves", task=task, average=average)
    by_episodes = tuple(seeds_series(label, it.grid, it.curve) for label, it in parts.items())
    by_steps = tuple(seeds_series(label, it.step_grid, it.step_curve) for label, it in parts.items())
    return (
        Chart(name, title, caption, "sampled episodes", task.unit, by_episodes, levels, look=look),
        Chart(f"{name}-steps", title, caption, "environment steps", task.unit, by_steps, levels, look=look),
    )


class Comparison(NamedTuple):
    """Methods that are compared on some tasks, with the printed and with the tuned settings."""

    name: str
    """What the names of its texts, figures and tables begin with."""
    tasks: Mapping[str, str]
    """What each task is called in these names."""
    methods: Mapping[str, Sequence[str]]
    """The methods that are run with each of the settings."""
    ours: Sequence[str]
    """The methods that all others are compared with."""
    mapped: Sequence[str]
    """The methods of which the visits of the best policy are shown."""
    look: Mapping[str, int]

    def cells(self, scale: Scale, **settings: Settings) -> dict[Key, Cell]:
        """Every cell at a scale, with the settings of each kind."""
        return {
            (setting, task, method): scale.cell(setting, tasks()[task], method, settings[setting][task, method])
            for setting, methods in self.methods.items()
            for task in self.tasks
            if task in scale.tasks
            for method in methods
        }

    def curves(self, done: Mapping[Key, Done], setting: str, task: str) -> dict[str, tuple[Measurement, Done]]:
        """Everything that has a curve, and what it belongs to; the mixture of policies has one of its own."""
        found: dict[str, tuple[Measurement, Done]] = {}
        for method in self.methods[setting]:
            it = done[setting, task, method]
            if it.mixture is None:
                found[method] = it.last, it
            else:
                found |= {f"{method} (mixture)": (it.mixture, it), f"{method} (last)": (it.last, it)}
        return found

    def sections(self, done: Mapping[Key, Done]) -> list[Section]:
        """Curves, maps and tables of each task."""
        return [self._section(done, task) for task in dict.fromkeys(task for _, task, _ in done)]

    def _section(self, done: Mapping[Key, Done], name: str) -> Section:
        first, slug = done["tuned", name, self.ours[0]].cell, f"{self.name}-{self.tasks[name]}"
        values = {"task": first.task, "kind": self.tasks[name], "slug": slug}
        words = text("sections", f"{self.name}-task", seeds=first.seeds, **values)
        figures: list[Chart | Maps] = []
        rows: list[list[str]] = []
        pairs: list[tuple[Sequence[str], Measurement, Measurement]] = []
        for setting in self.methods:
            found = self.curves(done, setting, name)
            curves = {label: curve for label, (curve, _) in found.items()}
            title = f"{words['title']}, {setting} settings"
            figures += both_curves(f"{slug}-{setting}", title, first.task, curves, self.look)
            for label, (it, of) in found.items():
                numbers = centre(it.heights), median(it.reached), centre(it.final)
                rows.append([setting, label, *map(shown, numbers), str(of.stopped)])
            for method, (label, it) in product(self.ours, curves.items()):
                labels = (setting, method, label) if len(self.ours) > 1 else (setting, label)
                pairs += [(labels, curves[method], it)] if label not in self.ours else []
        best = max((done["tuned", name, method] for method in self.mapped), key=lambda it: it.last.final.max())
        if best.tables is not None:
            table, title = best.tables[int(best.last.final.argmax())], text("captions", f"{self.name}-visits")
            maps = visits(f"{slug}-visits", first.task.problem, table, title)
            figures += [] if maps is None else [maps]
        gains = gains_table(f"{self.name}-differences", pairs, **values)
        summary = TextTable(**text("tables", "summary", **values), rows=rows)
        return Section(**words, figures=figures, tables=[summary, gains])

"""Section 6.3: log coverage, a utility that is not linear."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from occupax.algorithms import Algorithm
from occupax.analysis.charts import Chart, Maps
from occupax.experiments.cells import Cell, Done, Measurement, Scale
from occupax.experiments.methods import METHODS, REWARD, Settings
from occupax.experiments.reward import Key
from occupax.experiments.sections import Claim, Section, above, centre, claim, difference, shown
from occupax.experiments.tasks import COVERAGE, COVERAGE_ABSORBING, SIGMA, tasks
from occupax.experiments.texts import text
from occupax.experiments.views import best_visits, both_curves, gain, gains_table, summary_table

TASKS = {COVERAGE: "episodic", COVERAGE_ABSORBING: "absorbing"}
OURS = ("TSIVR-PG", "TSIVR-PG (B = 4 m)")
"""B = m = sqrt(N), which is the rule of section 6.1, and what section 6.3 prints."""
MAXENT = "MaxEnt"
BENCHMARKS = tuple(method for method in REWARD if method not in OURS)
METHODS_OF = {"printed": (*OURS, MAXENT), "tuned": (*OURS, MAXENT, *BENCHMARKS)}
VIEWS = (f"{MAXENT} (mixture)", f"{MAXENT} (last)")
LOOK = {label: i for i, label in enumerate((*OURS, *VIEWS, *BENCHMARKS))} | {BENCHMARKS[-1]: 10}
"""One more than there are colours: the last has that of MaxEnt, with other dashes."""


def printed_settings(printed: Settings) -> dict[str, Algorithm[Any]]:
    """What section 6.3 prints, and the same with B = m = sqrt(N)."""
    given: Any = printed[COVERAGE, OURS[0]]
    batch, length = METHODS[OURS[0]].sizes(given.snapshot_batch)
    by_rule = replace(given, batch=batch, epoch_length=length)
    return {OURS[0]: by_rule, OURS[1]: given, MAXENT: printed[COVERAGE, MAXENT]}


def cells(scale: Scale, printed: Settings, tuned: Settings) -> dict[Key, Cell]:
    """Every cell of this section at a scale."""
    as_printed = printed_settings(printed)
    return {
        (setting, task, method): scale.cell(setting, tasks()[task], method, algorithm)
        for setting, methods in METHODS_OF.items()
        for task in TASKS
        if task in scale.tasks
        for method in methods
        for algorithm in [as_printed[method] if setting == "printed" else tuned[task, method]]
    }


def sections(done: Mapping[Key, Done], printed: Settings) -> list[Section]:
    """What the report says of section 6.3."""
    names = [task for task in TASKS if ("printed", task, MAXENT) in done]
    claims = [_outperforms(done, setting, task) for setting in METHODS_OF for task in names]
    head = Section(**text("sections", "utility", sigma=SIGMA), claims=[*claims, _benchmarks(done), _sizes(printed)])
    return [head, *(_section(done, task) for task in names)]


def _parts(done: Mapping[Key, Done], setting: str, task: str) -> list[tuple[str, Measurement, int]]:
    """Everything that has a curve, and how many of its seeds were stopped."""
    found: list[tuple[str, Measurement, int]] = []
    for method in METHODS_OF[setting]:
        it = done[setting, task, method]
        if it.mixture is not None:
            found += [(VIEWS[0], it.mixture, it.stopped), (VIEWS[1], it.last, it.stopped)]
        else:
            found.append((method, it.last, it.stopped))
    return found


def _section(done: Mapping[Key, Done], name: str) -> Section:
    task, convention = tasks()[name], TASKS[name]
    figures: list[Chart | Maps] = []
    rows: list[tuple[str, str, Measurement, int]] = []
    for setting in METHODS_OF:
        parts = _parts(done, setting, name)
        title = f"Log coverage, {convention}, {setting} settings"
        curves = [(label, outcome) for label, outcome, _ in parts]
        figures += both_curves(f"utility-{convention}-{setting}", title, task, curves, LOOK)
        rows += [(setting, *part) for part in parts]
    ours = [done["tuned", name, method] for method in OURS]
    figures += best_visits(f"utility-{convention}-visits", ours, "best policy of TSIVR-PG")
    pairs = [
        ((setting, method, label), done[setting, name, method].last, outcome)
        for setting in METHODS_OF
        for method in OURS
        for label, outcome, _ in _parts(done, setting, name)
        if label not in OURS
    ]
    differences = gains_table("utility-differences", pairs, convention=convention)
    tables = [summary_table(f"utility-{convention}", task, rows), differences]
    words = text("sections", "utility-task", task=task, convention=convention, seeds=ours[0].cell.seeds)
    return Section(**words, figures=figures, tables=tables)


def _outperforms(done: Mapping[Key, Done], setting: str, task: str) -> Claim:
    gains = sorted(
        gain(done[setting, task, ours].last, outcome)
        for ours in OURS
        for label, outcome, _ in _parts(done, setting, task)
        if label in VIEWS
    )
    values = {"setting": setting, "convention": TASKS[task], "low": shown(gains[0]), "high": shown(gains[-1])}
    return claim("maxent", map(above, gains), **values)


def _benchmarks(done: Mapping[Key, Done]) -> Claim:
    """The claim is about abilities: it fails for a benchmark of which nothing says that it ends lower."""
    task, finals = tasks()[COVERAGE], {name: done["tuned", COVERAGE, name].last.final for name in (*OURS, *BENCHMARKS)}
    best = max(OURS, key=lambda name: float(centre(finals[name]).estimate))
    tests = {name: above(difference(finals[best], finals[name])) is True for name in BENCHMARKS}
    way = cast("float", task.optimum) - task.uniform
    found = ", ".join(f"{name} {(centre(it).estimate - task.uniform) / way:.0%}" for name, it in finals.items())
    unable = ", ".join(name for name, test in tests.items() if test) or "none"
    return claim("benchmarks", tests.values(), found=found, best=best, unable=unable)


def _sizes(printed: Settings) -> Claim:
    given: Any = printed[COVERAGE, OURS[0]]
    expected = METHODS[OURS[0]].sizes(given.snapshot_batch)
    same = (given.batch, given.epoch_length) == expected
    return claim("utility-sizes", [same], printed=given, expected=expected[0])

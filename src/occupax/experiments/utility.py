"""Section 6.3: log coverage, a utility that is not linear."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from occupax.algorithms import Algorithm
from occupax.analysis.statistics import bootstrap_difference
from occupax.experiments.cells import Done
from occupax.experiments.methods import METHODS, REWARD, Settings
from occupax.experiments.sections import Claim, Section, above, centre, claim, shown, text
from occupax.experiments.tasks import COVERAGE, COVERAGE_ABSORBING, SIGMA
from occupax.experiments.views import Comparison, Key, gain

TASKS = {COVERAGE: "episodic", COVERAGE_ABSORBING: "absorbing"}
OURS = ("TSIVR-PG", "TSIVR-PG (B = 4 m)")
"""B = m = sqrt(N), which is the rule of section 6.1, and what section 6.3 prints."""
MAXENT = "MaxEnt"
BENCHMARKS = tuple(method for method in REWARD if method not in OURS)
METHODS_OF = {"printed": (*OURS, MAXENT), "tuned": (*OURS, MAXENT, *BENCHMARKS)}
VIEWS = (f"{MAXENT} (mixture)", f"{MAXENT} (last)")
LOOK = {label: i for i, label in enumerate((*OURS, *VIEWS, *BENCHMARKS))} | {BENCHMARKS[-1]: 10}
"""One more than there are colours: the last has that of MaxEnt, with other dashes."""
COMPARISON = Comparison("utility", TASKS, METHODS_OF, OURS, OURS, LOOK)


def printed_settings(printed: Settings) -> dict[tuple[str, str], Algorithm[Any]]:
    """What section 6.3 prints, and the same with B = m = sqrt(N), for both tasks."""
    given: Any = printed[COVERAGE, OURS[0]]
    batch, length = METHODS[OURS[0]].sizes(given.snapshot_batch)
    by_rule = replace(given, batch=batch, epoch_length=length)
    made = {OURS[0]: by_rule, OURS[1]: given, MAXENT: printed[COVERAGE, MAXENT]}
    return {(task, method): algorithm for task in TASKS for method, algorithm in made.items()}


def sections(done: Mapping[Key, Done], printed: Settings) -> list[Section]:
    """What the report says of section 6.3."""
    claims = [_outperforms(done, *key) for key in dict.fromkeys((setting, task) for setting, task, _ in done)]
    head = Section(**text("sections", "utility", sigma=SIGMA), claims=[*claims, _benchmarks(done), _sizes(printed)])
    return [head, *COMPARISON.sections(done)]


def _outperforms(done: Mapping[Key, Done], setting: str, task: str) -> Claim:
    gains = sorted(
        gain(done[setting, task, ours].last, outcome)
        for ours in OURS
        for label, (outcome, _) in COMPARISON.curves(done, setting, task).items()
        if label in VIEWS
    )
    values = {"setting": setting, "convention": TASKS[task], "low": shown(gains[0]), "high": shown(gains[-1])}
    return claim("maxent", map(above, gains), **values)


def _benchmarks(done: Mapping[Key, Done]) -> Claim:
    """The claim is about abilities: it fails for a benchmark of which nothing says that it ends lower."""
    mine = {name: done["tuned", COVERAGE, name] for name in (*OURS, *BENCHMARKS)}
    task, finals = mine[OURS[0]].cell.task, {name: it.last.final for name, it in mine.items()}
    best = max(OURS, key=lambda name: float(centre(finals[name]).estimate))
    tests = {name: above(bootstrap_difference(finals[best], finals[name])) is True for name in BENCHMARKS}
    way = cast("float", task.optimum) - task.uniform
    found = ", ".join(f"{name} {(centre(it).estimate - task.uniform) / way:.0%}" for name, it in finals.items())
    unable = ", ".join(name for name, test in tests.items() if test) or "none"
    return claim("benchmarks", tests.values(), found=found, best=best, unable=unable)


def _sizes(printed: Settings) -> Claim:
    by_rule, given = (cast("Any", printed_settings(printed)[COVERAGE, method]) for method in OURS)
    same = (given.batch, given.epoch_length) == (by_rule.batch, by_rule.epoch_length)
    return claim("utility-sizes", [same], printed=given, expected=by_rule.batch)

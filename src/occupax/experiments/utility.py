"""Section 6.3: log coverage, a utility that is not linear."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from occupax.algorithms import Algorithm
from occupax.analysis.charts import Chart, Maps
from occupax.experiments.cells import Cell, Done, Measurement, Scale
from occupax.experiments.methods import REWARD, Settings, recursive_sizes
from occupax.experiments.sections import Claim, Section, above, centre, difference, shown, tally, verdict
from occupax.experiments.tasks import COVERAGE, COVERAGE_ABSORBING, SIGMA, tasks
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

Key = tuple[str, str, str]
"""The names of a setting, a task and a method."""


def printed_settings(printed: Settings) -> dict[str, Algorithm[Any]]:
    """What section 6.3 prints, and the same with B = m = sqrt(N)."""
    given: Any = printed[COVERAGE, OURS[0]]
    batch, length = recursive_sizes(given.snapshot_batch)
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
    text = (
        f"Maximise sum_s log(lambda_s + {SIGMA:g}) over all 64 states of FrozenLake8x8. All utilities are exact, of "
        "the policies as they are and, for MaxEnt, of the mixture of all policies so far. The optimum comes from a "
        "conic solver; it is over policies that may depend on time, and so an upper bound. When an episode ends in a "
        "hole, either nothing more counts (episodic) or the hole goes on being visited (absorbing); the paper does "
        "not say which."
    )
    names = [task for task in TASKS if ("printed", task, MAXENT) in done]
    claims = [_outperforms(done, setting, task) for setting in METHODS_OF for task in names]
    head = Section("utility", "6.3 A utility that is not linear", text, [*claims, _benchmarks(done), _sizes(printed)])
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
        shown_parts = [(label, outcome) for label, outcome, _ in parts]
        figures += both_curves(f"utility-{convention}-{setting}", title, task, shown_parts, LOOK)
        rows += [(setting, *part) for part in parts]
    ours = [done["tuned", name, method] for method in OURS]
    figures += best_visits(f"utility-{convention}-visits", ours, "best policy of TSIVR-PG")
    differences = gains_table(
        f"utility-{convention}-differences",
        "TSIVR-PG minus the others: mean exact utility over the whole training, with 95% interval.",
        ["Settings", "Ours", "Other", "Difference", "Ours better"],
        [
            ((setting, method, label), done[setting, name, method].last, outcome)
            for setting in METHODS_OF
            for method in OURS
            for label, outcome, _ in _parts(done, setting, name)
            if label not in OURS
        ],
    )
    tables = (summary_table(f"utility-{convention}", task, rows), differences)
    text = (
        f"{ours[0].cell.seeds} seeds. The uniform policy has {task.uniform:.4f}, the optimum for "
        f"{task.problem.horizon} steps is {task.optimum:.4f}, and nearly optimal means {task.threshold:.4f}: nine "
        "tenths of the way."
    )
    return Section(f"utility-{convention}", f"Log coverage, {convention}", text, (), figures, tables)


def _outperforms(done: Mapping[Key, Done], setting: str, task: str) -> Claim:
    gains = sorted(
        gain(done[setting, task, ours].last, outcome)
        for ours in OURS
        for label, outcome, _ in _parts(done, setting, task)
        if label in VIEWS
    )
    tests = [above(it) for it in gains]
    return Claim(
        "6.3",
        "TSIVR-PG consistently outperforms MaxEnt.",
        f"{setting}, {TASKS[task]}",
        "Mean exact utility over the training, both choices of B and m against mixture and last iterate: "
        f"{tally(tests)}. Differences from {shown(gains[0])} to {shown(gains[-1])}.",
        verdict(tests),
    )


def _benchmarks(done: Mapping[Key, Done]) -> Claim:
    """The claim is about abilities: it fails for a benchmark of which nothing says that it ends lower."""
    task, finals = tasks()[COVERAGE], {name: done["tuned", COVERAGE, name].last.final for name in (*OURS, *BENCHMARKS)}
    best = max(OURS, key=lambda name: float(centre(finals[name]).estimate))
    tests = [above(difference(finals[best], finals[name])) is True for name in BENCHMARKS]
    way = cast("float", task.optimum) - task.uniform
    found = [f"{name} {(centre(final).estimate - task.uniform) / way:.0%}" for name, final in finals.items()]
    unable = ", ".join(name for name, test in zip(BENCHMARKS, tests, strict=True) if test) or "none"
    return Claim(
        "6.3",
        "None of the benchmark algorithms of section 6.1 can solve a problem with such a utility.",
        "tuned, episodic, with quasi-rewards grad F",
        f"In the end, of the way from the uniform policy to the optimum: {', '.join(found)}. Below {best} in the end, "
        f"by an interval above zero: {unable}.",
        verdict(tests),
    )


def _sizes(printed: Settings) -> Claim:
    given: Any = printed[COVERAGE, OURS[0]]
    expected = recursive_sizes(given.snapshot_batch)
    return Claim(
        "6.3",
        "N, B and m are set in the same way as in section 6.1.",
        "as printed",
        f"The appendix prints B = {given.batch}, m = {given.epoch_length} for N = {given.snapshot_batch}; the rule of "
        f"section 6.1 gives B = m = {expected[0]}. Both were run.",
        verdict([(given.batch, given.epoch_length) == expected]),
    )

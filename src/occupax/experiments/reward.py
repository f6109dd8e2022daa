"""Section 6.1: all algorithms maximise the cumulative reward."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from occupax.analysis.charts import Chart, Maps
from occupax.experiments.cells import Cell, Done, Measurement, Scale
from occupax.experiments.methods import METHODS, REWARD, Settings
from occupax.experiments.sections import Claim, Section, above, centre, claim, difference, upper_median
from occupax.experiments.tasks import ACROBOT, CARTPOLE, LAKE, tasks
from occupax.experiments.texts import text
from occupax.experiments.views import best_visits, both_curves, gain, gains_table, summary_table

TASKS = (LAKE, CARTPOLE, ACROBOT)
OURS, PLAIN = "TSIVR-PG", "REINFORCE"
LOOK = {method: i for i, method in enumerate(REWARD)}
SETTINGS = ("printed", "tuned")
ROUNDING = 0.1
"""By how much a printed size may differ from the theory's."""

Key = tuple[str, str, str]
"""The names of a setting, a task and a method."""
Tests = Mapping[tuple[str, str], bool | None]
"""Whether a claim holds, for a task and a method; None if that cannot be told."""


def cells(scale: Scale, printed: Settings, tuned: Settings) -> dict[Key, Cell]:
    """Every cell of this section at a scale."""
    return {
        (setting, task, method): scale.cell(setting, tasks()[task], method, settings[task, method])
        for setting, settings in zip(SETTINGS, (printed, tuned), strict=True)
        for task in TASKS
        if task in scale.tasks
        for method in REWARD
    }


def sections(done: Mapping[Key, Done], printed: Settings) -> list[Section]:
    """What the report says of section 6.1."""
    names = [task for task in TASKS if (SETTINGS[0], task, OURS) in done]
    claims = [claim for setting in SETTINGS for claim in _claims(done, setting, names)]
    head = Section(**text("sections", "reward"), claims=[*claims, _sizes(printed)])
    return [head, *(_section(done, task) for task in names)]


def _section(done: Mapping[Key, Done], name: str) -> Section:
    task, slug = tasks()[name], name.split("-", maxsplit=1)[0].lower()
    figures: list[Chart | Maps] = []
    for setting in SETTINGS:
        parts = [(method, done[setting, name, method].last) for method in REWARD]
        figures += both_curves(f"reward-{slug}-{setting}", f"{name}, {setting} settings", task, parts, LOOK)
    if task.tabular:
        candidates = [done["tuned", name, method] for method in REWARD]
        figures += best_visits(f"reward-{slug}-visits", candidates, "best of all trained policies")
    every = [(setting, method, done[setting, name, method]) for setting in SETTINGS for method in REWARD]
    pairs = [((setting, it), done[setting, name, OURS].last, of.last) for setting, it, of in every if it != OURS]
    tables = [
        summary_table(f"reward-{slug}", task, [(setting, it, of.last, of.stopped) for setting, it, of in every]),
        gains_table("reward-differences", pairs, task=task, slug=slug),
    ]
    seeds = done["tuned", name, OURS].cell.seeds
    words = text("sections", "reward-task", task=task, slug=slug, seeds=seeds)
    return Section(**words, figures=figures, tables=tables)


def _claims(done: Mapping[Key, Done], setting: str, names: Sequence[str]) -> list[Claim]:
    last = {(task, method): done[setting, task, method].last for task in names for method in REWARD}

    def against(method: str, test: Callable[[Measurement, Measurement], bool | None]) -> Tests:
        """Put every other method to a test against this one."""
        return {key: test(it, last[key[0], method]) for key, it in last.items() if key[1] != method}

    every = {
        "solved": {(task, method): _solved(it, tasks()[task].threshold) for (task, method), it in last.items()},
        "slowest": against(PLAIN, lambda it, plain: above(difference(plain.reached, it.reached, upper_median))),
        "faster": against(PLAIN, lambda it, plain: above(gain(it, plain))),
        "outperforms": against(OURS, lambda it, ours: above(gain(ours, it))),
    }
    return [claim(name, tests.values(), setting=setting, refuted=_refuted(tests)) for name, tests in every.items()]


def _refuted(tests: Tests) -> str:
    failed: dict[str, list[str]] = {}
    for (task, method), passed in tests.items():
        if passed is False:
            failed.setdefault(task, []).append(method)
    listed = "; ".join(f"{', '.join(methods)} on {task}" for task, methods in failed.items())
    return f" Refuted: {listed}." if listed else ""


def _solved(outcome: Measurement, threshold: float) -> bool | None:
    """Whether the end is above a threshold; below it, a curve that rises in its last quarter cannot tell."""
    test, quarter = above(centre(outcome.final), threshold), outcome.curve.shape[1] // 4
    if test is not False:
        return test
    late, before = outcome.curve[:, -quarter:].mean(1), outcome.curve[:, -2 * quarter : -quarter].mean(1)
    return None if above(centre(late - before)) else False


def _sizes(printed: Settings) -> Claim:
    """Whether the printed B and m are powers of N as the theory has them, but for rounding."""
    errors: list[float] = []
    for task, method in product(TASKS, (method for method in REWARD if method != PLAIN)):
        it: Any = printed[task, method]
        pairs = zip((it.batch, it.epoch_length), METHODS[method].powers or (), strict=True)
        errors.append(max(abs(size / it.snapshot_batch**power - 1) for size, power in pairs))
    return claim("sizes", (error < ROUNDING for error in errors), error=max(errors))

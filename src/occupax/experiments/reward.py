"""Section 6.1: all algorithms maximise the cumulative reward."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

from occupax.analysis.charts import Chart
from occupax.analysis.statistics import Interval
from occupax.experiments import methods, tuning
from occupax.experiments.cells import Cell, Outcome, run_name, slug
from occupax.experiments.figures import curves, table
from occupax.experiments.inference import Seeds, above, difference, later, mean, median
from occupax.experiments.methods import METHODS, OURS, PLAIN, REWARD
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, claim, parts, shown, text
from occupax.experiments.tasks import ACROBOT, CARTPOLE, LAKE, Task, tasks
from occupax.experiments.tuning import Score, Search, Trial

TASKS, TUNED = (LAKE, CARTPOLE, ACROBOT), (LAKE, CARTPOLE)
"""All tasks, and those of which settings are searched for: on Acrobot that would take the time of
all the rest."""
SAME_STEP = "SRVR-PG (TSIVR-PG's step size)"
BUDGETS: dict[str, dict[str, int]] = {
    LAKE: dict.fromkeys(REWARD, 2_000_000) | {"SVRPG": 3_000_000, PLAIN: 10_000_000},
    CARTPOLE: dict.fromkeys(REWARD, 4_000),
    ACROBOT: dict.fromkeys(REWARD, 2_000),
}
"""How many episodes the printed settings get."""
LOOK = {method: i for i, method in enumerate((*REWARD, SAME_STEP))}
LIMITS = {LAKE: (0.0, 0.43), CARTPOLE: (0.0, 205.0), ACROBOT: (-510.0, -60.0)}
"""The y axis of the figures of a task, which are compared."""
ROUNDING = 0.1
"""By how much a printed size may differ from the theory's."""

Key = tuple[str, str, str]
"""A setting, "printed", "area" or "end", by which it was searched; a task; and a method."""
Tests = dict[str, bool | None]


def chosen_tasks(scale: Scale) -> list[str]:
    """The tasks that are run at a scale."""
    return [name for name in TASKS if tasks()[name].tabular or scale.networks]


def searches(scale: Scale) -> dict[tuple[str, str], Search]:
    """The searches for tuned settings."""
    return {
        (name, method): Search.at(scale, tasks()[name], method, methods.printed()[name, method])
        for name, method in product(chosen_tasks(scale), REWARD)
        if name in TUNED
    }


def cells(scale: Scale, found: Mapping[tuple[str, str], Sequence[Trial]]) -> dict[Key, Cell]:
    """Every run of this section, with the tuned settings of the searches."""
    made: dict[Key, Cell] = {}

    def add(setting: str, task: Task, method: str, algorithm: Any, episodes: int) -> None:
        name = run_name(task, setting, method, algorithm)
        made[setting, task.name, method] = Cell(
            name, task, algorithm, scale.episodes(episodes), scale.seeds(task.seeds)
        )

    looked, printed = searches(scale), methods.printed()
    for name in chosen_tasks(scale):
        task = tasks()[name]
        for method in REWARD:
            add("printed", task, method, printed[name, method], BUDGETS[name][method])
            for by in ("area", "end") if name in TUNED else ():
                best = looked[name, method].algorithm(tuning.winner(found[name, method], by).point)
                add(by, task, method, best, task.episodes)
        if name == LAKE:
            same = replace(printed[name, "SRVR-PG"], step_size=printed[name, OURS].step_size)
            add("printed", task, SAME_STEP, same, BUDGETS[name][OURS])
    return made


def sections(done: Mapping[Key, Outcome]) -> list[Section]:
    """What the report says of section 6.1."""
    names = list(dict.fromkeys(task for _, task, _ in done))
    claims = [it for name in names for it in _claims(done, "printed", name)]
    claims += [it for name in names if name in TUNED for it in _claims(done, "tuned", name)]
    head = Section(**text("sections", "reward"), claims=[*claims, *_same_step(done), _sizes()])
    return [head, *(_section(done, tasks()[name]) for name in names)]


def of_setting(
    done: Mapping[Key, Outcome], setting: str, task: str, by: Score = "area"
) -> dict[str, Outcome]:
    """The outcomes of the five methods on a task: printed, or tuned for a score."""
    kind = by if setting == "tuned" else setting
    return {method: done[kind, task, method] for method in REWARD}


def common(outcomes: Mapping[str, Outcome]) -> int:
    """The episodes that all methods had: areas are compared up to there."""
    return min(int(it.episodes[-1]) for it in outcomes.values())


def family(done: Mapping[Key, Outcome]) -> int:
    """How many comparisons a claim makes: of a method with all others, on all tasks."""
    return (len(REWARD) - 1) * len({task for _, task, _ in done})


def tests_of(
    task: Task, by_area: Mapping[str, Outcome], by_end: Mapping[str, Outcome], count: int
) -> dict[str, tuple[Tests, str]]:
    """The four claims on the outcomes of the five methods: what each test says, and what was measured."""
    areas = {method: it.area(common(by_area)) for method, it in by_area.items()}
    times = {method: it.reached(task.threshold, task.tabular) for method, it in by_end.items()}
    ends = {method: mean(it.final, count) for method, it in by_end.items()}
    others, plainer = ([it for it in REWARD if it != method] for method in (OURS, PLAIN))
    over = {other: difference(areas[other], areas[PLAIN], count) for other in plainer}
    ahead = {other: difference(areas[OURS], areas[other], count) for other in others}

    def listed(intervals: Mapping[str, Interval]) -> str:
        return ", ".join(f"{method} {shown(it)}" for method, it in intervals.items())

    reached = ", ".join(
        f"{method} {shown(median(it))} ({_count(it)})" for method, it in times.items()
    )
    found: dict[str, tuple[Tests, str]] = {
        "solved": (
            {method: _solved(it, task.threshold, count) for method, it in by_end.items()},
            f"In the end ({task.threshold:.4g} is solved): {listed(ends)}.",
        ),
        "slowest": (
            {other: later(times[PLAIN], times[other], count) for other in plainer},
            f"Median episodes until solved (and seeds that solve it): {reached}.",
        ),
        "faster": (
            {other: above(it) for other, it in over.items()},
            f"Area minus that of REINFORCE: {listed(over)}.",
        ),
        "outperforms": (
            {other: above(it) for other, it in ahead.items()},
            f"Area of TSIVR-PG minus: {listed(ahead)}.",
        ),
    }
    return found


def _claims(done: Mapping[Key, Outcome], setting: str, name: str) -> list[Claim]:
    """The four claims on a task; intervals hold for all tasks of a claim together."""
    by_area, by_end = (of_setting(done, setting, name, by) for by in ("area", "end"))
    found = tests_of(tasks()[name], by_area, by_end, family(done))
    return [
        claim(of, tests, f"{said}{parts(tests)}", f"{name}, {setting}")
        for of, (tests, said) in found.items()
    ]


def _count(times: Seeds) -> str:
    return f"{(times < inf).sum()} of {len(times)}"


def _solved(it: Outcome, threshold: float, family: int) -> bool | None:
    """Whether the end is above a threshold; below it, values that still rise cannot tell at this budget."""
    test = above(mean(it.final, family), threshold)
    if test is not False:
        return test
    return None if above(mean(it.late_rise(), family)) else False


def _same_step(done: Mapping[Key, Outcome]) -> list[Claim]:
    """Whether TSIVR-PG is ahead of SRVR-PG because of its step size."""
    if ("printed", LAKE, SAME_STEP) not in done:
        return []
    ours, same = done["printed", LAKE, OURS], done["printed", LAKE, SAME_STEP]
    gain = difference(ours.area(), same.area())
    times = [median(it.reached(tasks()[LAKE].threshold, exact=True)) for it in (ours, same)]
    measured = f"""Area of TSIVR-PG minus that of SRVR-PG with its step size: {shown(gain)}. Median episodes until
    solved: TSIVR-PG {shown(times[0])}, SRVR-PG {shown(times[1])}."""
    return [
        claim(
            "same-step", {"": above(gain)}, " ".join(measured.split()), f"{LAKE}, equal step sizes"
        )
    ]


def _sizes() -> Claim:
    """Whether the printed B and m are powers of N as the theory has them, but for rounding."""
    errors: list[float] = []
    for task, method in product(TASKS, (method for method in REWARD if method != PLAIN)):
        it: Any = methods.printed()[task, method]
        pairs = zip((it.batch, it.epoch_length), METHODS[method].powers or (), strict=True)
        errors.append(max(abs(size / it.snapshot_batch**power - 1) for size, power in pairs))
    measured = f"The sizes of the appendix differ from these by at most {max(errors):.0%}, which rounding explains."
    return claim("sizes", {"": max(errors) < ROUNDING}, measured, "as printed")


def _gains(done: Mapping[Key, Outcome], task: Task) -> str:
    """By how much tuned settings beat the printed ones of the same method within the episodes of both."""
    told = []
    for method in REWARD:
        tuned, printed = done["area", task.name, method], done["printed", task.name, method]
        until = common({"tuned": tuned, "printed": printed})
        told.append(
            f"{method} {shown(difference(tuned.area(until), printed.area(until), len(REWARD)))}"
        )
    return f"Area with tuned minus that with printed settings, over the episodes that both have: {', '.join(told)}."


def _title(kind: str, outcomes: Mapping[str, Outcome]) -> str:
    """Who leads by the area, alone or within chance, and who comes last."""
    until = common(outcomes)
    areas = {method: it.area(until) for method, it in outcomes.items()}
    first, second, *_, last = sorted(areas, key=lambda method: -float(areas[method].mean()))
    alone = above(difference(areas[first], areas[second], len(areas))) is True
    names = {"first": first, "second": second, "last": last}
    return text(
        "titles", "reward-alone" if alone else "reward-shared", kind=kind.capitalize(), **names
    )


def _section(done: Mapping[Key, Outcome], task: Task) -> Section:
    printed = of_setting(done, "printed", task.name)
    if task.name == LAKE:
        printed |= {SAME_STEP: done["printed", LAKE, SAME_STEP]}
    kinds = {"printed": printed}
    if task.name in TUNED:
        kinds["tuned"] = of_setting(done, "tuned", task.name)
    anchor = slug("reward", task.name)
    pair: list[Chart] = [
        curves(f"{anchor}-{kind}", _title(kind, outcomes), task, outcomes, LOOK, LIMITS[task.name])
        for kind, outcomes in kinds.items()
    ]
    gains = _gains(done, task) if task.name in TUNED else ""
    rows: list[list[str]] = []
    for setting, areas in kinds.items():
        until = common(of_setting(done, setting, task.name))
        for method, area in areas.items():
            it = area if setting == "printed" else done["end", task.name, method]
            times = it.reached(task.threshold, task.tabular)
            numbers = [
                shown(mean(area.area(until))),
                shown(median(times)),
                _count(times),
                shown(mean(it.final)),
            ]
            rows.append([setting, method, *numbers])
    values = {"task": task, "slug": anchor, "seeds": len(printed[OURS].values), "gains": gains}
    return Section(
        **text("sections", "reward-task", **values),
        figures=pair,
        tables=[table("reward", rows, **values)],
    )

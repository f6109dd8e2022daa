"""Section 6.1: all algorithms maximise the cumulative reward."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from occupax.analysis.charts import Chart
from occupax.analysis.statistics import Interval
from occupax.experiments import methods, tuning
from occupax.experiments.cells import ExperimentCell, ExperimentResult, make_cell, run_name
from occupax.experiments.figures import learning_curves
from occupax.experiments.inference import (
    Answer,
    Seeds,
    difference,
    is_above,
    is_later,
    mean,
    median,
)
from occupax.experiments.methods import METHODS, OURS, PLAIN, REWARD
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, claim, parts, shown, table, text
from occupax.experiments.tasks import ACROBOT, CARTPOLE, LAKE, Task, tasks
from occupax.experiments.tuning import SCORES, HyperparameterSearch, Score, Trial, make_search
from occupax.jobs import file_name

TASKS = (LAKE, CARTPOLE, ACROBOT)
TUNED = (LAKE, CARTPOLE)
"""Tasks with tuned hyperparameters. A search on Acrobot would take the time of all the rest."""
SAME_STEP = "SRVR-PG (TSIVR-PG's step size)"
BUDGETS: dict[str, dict[str, int]] = {
    LAKE: dict.fromkeys(REWARD, 2_000_000) | {"SVRPG": 3_000_000, PLAIN: 10_000_000},
    CARTPOLE: dict.fromkeys(REWARD, 4_000),
    ACROBOT: dict.fromkeys(REWARD, 2_000),
}
"""Episodes of the printed hyperparameters."""
LOOK = {method: i for i, method in enumerate((*REWARD, SAME_STEP))}
LIMITS = {LAKE: (0.0, 0.43), CARTPOLE: (0.0, 205.0), ACROBOT: (-510.0, -60.0)}
"""Range of the y axis, the same for all figures of a task."""
ROUNDING = 0.1
"""Largest relative difference of a printed size from the theory."""

Key = tuple[str, str, str]
"""Setting ("printed", or "area" or "end" for the score of the search), task and method."""
Results = Mapping[Key, ExperimentResult]
ByMethod = Mapping[str, ExperimentResult]


def selected_tasks(scale: Scale) -> list[str]:
    """Return the tasks of a scale."""
    return [name for name in TASKS if tasks()[name].tabular or scale.networks]


def searches(scale: Scale) -> dict[tuple[str, str], HyperparameterSearch]:
    """Return the searches for tuned hyperparameters by task and method."""
    by_key: dict[tuple[str, str], HyperparameterSearch] = {}
    for name in selected_tasks(scale):
        if name in TUNED:
            for method in REWARD:
                printed = methods.printed()[name, method]
                by_key[name, method] = make_search(scale, tasks()[name], method, printed)
    return by_key


def make_cells(
    scale: Scale, trials: Mapping[tuple[str, str], Sequence[Trial]]
) -> dict[Key, ExperimentCell]:
    """Return every run of this section, with the tuned hyperparameters of the searches."""
    cells: dict[Key, ExperimentCell] = {}

    def add(setting: str, task: Task, method: str, algorithm: Any, episodes: int) -> None:
        name = run_name(task, setting, method, algorithm)
        cells[setting, task.name, method] = make_cell(name, task, algorithm, scale, episodes)

    printed = methods.printed()
    tuned = searches(scale)
    for name in selected_tasks(scale):
        task = tasks()[name]
        for method in REWARD:
            add("printed", task, method, printed[name, method], BUDGETS[name][method])
            if name not in TUNED:
                continue
            for score in SCORES:
                point = tuning.winner(trials[name, method], score).point
                add(score, task, method, tuned[name, method].algorithm(point), task.episodes)
        if name == LAKE:
            step_size = printed[name, OURS].step_size
            same = replace(printed[name, "SRVR-PG"], step_size=step_size)
            add("printed", task, SAME_STEP, same, BUDGETS[name][OURS])
    return cells


def sections(results: Results) -> list[Section]:
    """Return the sections of the report about section 6.1."""
    names = list(dict.fromkeys(task for _, task, _ in results))
    claims: list[Claim] = []
    for name in names:
        claims += _claims(results, "printed", name)
    for name in names:
        if name in TUNED:
            claims += _claims(results, "tuned", name)
    claims += _same_step(results)
    claims.append(_sizes())
    head = Section(**text("sections", "reward"), claims=claims)
    return [head, *(_section(results, tasks()[name]) for name in names)]


def of_setting(
    results: Results, setting: str, task: str, by: Score = "area"
) -> dict[str, ExperimentResult]:
    """Return the results of the five methods on a task, printed or tuned for a score."""
    if setting == "tuned":
        setting = by
    return {method: results[setting, task, method] for method in REWARD}


def common_episodes(results: ByMethod) -> int:
    """Return the episodes that all methods had, up to which areas are compared."""
    return min(int(result.episodes[-1]) for result in results.values())


def family_size(results: Results) -> int:
    """Return the number of comparisons of a claim: one method with all others on all tasks."""
    return (len(REWARD) - 1) * len({task for _, task, _ in results})


def tests_of(
    task: Task, by_area: ByMethod, by_end: ByMethod, family: int
) -> dict[str, tuple[dict[str, Answer], str]]:
    """Return the tests and the measurement of the four claims about the five methods."""
    until = common_episodes(by_area)
    areas = {method: result.area(until) for method, result in by_area.items()}
    over_plain: dict[str, Interval] = {}
    ours_over: dict[str, Interval] = {}
    for method, area in areas.items():
        if method != PLAIN:
            over_plain[method] = difference(area, areas[PLAIN], family)
        if method != OURS:
            ours_over[method] = difference(areas[OURS], area, family)
    times: dict[str, Seeds] = {}
    ends: dict[str, Interval] = {}
    solved: dict[str, Answer] = {}
    reached: list[str] = []
    for method, result in by_end.items():
        times[method] = result.episodes_to(task.threshold, task.tabular)
        ends[method] = mean(result.final, family)
        solved[method] = is_solved(result, task.threshold, family)
        reached.append(f"{method} {shown(median(times[method]))} ({_count(times[method])})")
    slower = {
        method: is_later(times[PLAIN], times[method], family)
        for method in by_end
        if method != PLAIN
    }
    end = f"In the end ({task.threshold:.4g} is solved): {_listed(ends)}."
    return {
        "solved": (solved, end),
        "slowest": (
            slower,
            f"Median episodes until solved (and seeds that solve it): {', '.join(reached)}.",
        ),
        "faster": (
            _are_above(over_plain),
            f"Area minus that of REINFORCE: {_listed(over_plain)}.",
        ),
        "outperforms": (
            _are_above(ours_over),
            f"Area of TSIVR-PG minus: {_listed(ours_over)}.",
        ),
    }


def _are_above(intervals: Mapping[str, Interval]) -> dict[str, Answer]:
    return {method: is_above(interval) for method, interval in intervals.items()}


def _listed(intervals: Mapping[str, Interval]) -> str:
    return ", ".join(f"{method} {shown(interval)}" for method, interval in intervals.items())


def _claims(results: Results, setting: str, name: str) -> list[Claim]:
    """Return the four claims on a task. Intervals hold for all tasks of a claim together."""
    by_area = of_setting(results, setting, name, "area")
    by_end = of_setting(results, setting, name, "end")
    by_claim = tests_of(tasks()[name], by_area, by_end, family_size(results))
    claims: list[Claim] = []
    for kind, (tests, measured) in by_claim.items():
        claims.append(claim(kind, tests, measured + parts(tests), f"{name}, {setting}"))
    return claims


def _count(times: Seeds) -> str:
    return f"{np.isfinite(times).sum()} of {len(times)}"


def is_solved(result: ExperimentResult, threshold: float, family: int) -> Answer:
    """Return whether the end is above a threshold, or None if lower values still rise."""
    answer = is_above(mean(result.final, family), threshold)
    if answer is False and is_above(mean(result.late_rise(), family)):
        return None
    return answer


def _same_step(results: Results) -> list[Claim]:
    """Return the claim that TSIVR-PG is ahead of SRVR-PG because of its step size."""
    if ("printed", LAKE, SAME_STEP) not in results:
        return []
    ours = results["printed", LAKE, OURS]
    same = results["printed", LAKE, SAME_STEP]
    gain = difference(ours.area(), same.area())
    threshold = tasks()[LAKE].threshold
    our_time = shown(median(ours.episodes_to(threshold, exact=True)))
    same_time = shown(median(same.episodes_to(threshold, exact=True)))
    measured = (
        f"Area of TSIVR-PG minus that of SRVR-PG with its step size: {shown(gain)}. "
        f"Median episodes until solved: TSIVR-PG {our_time}, SRVR-PG {same_time}."
    )
    return [claim("same-step", {"": is_above(gain)}, measured, f"{LAKE}, equal step sizes")]


def _sizes() -> Claim:
    """Return the claim that the printed B and m are powers of N, except for rounding."""
    errors: list[float] = []
    for task, method in product(TASKS, REWARD):
        powers = METHODS[method].powers
        if powers is None:
            continue
        algorithm: Any = methods.printed()[task, method]
        sizes = (algorithm.batch, algorithm.epoch_length)
        for size, power in zip(sizes, powers, strict=True):
            errors.append(abs(size / algorithm.snapshot_batch**power - 1))
    measured = (
        f"The sizes of the appendix differ from these by at most {max(errors):.0%}, "
        "which rounding explains."
    )
    return claim("sizes", {"": max(errors) < ROUNDING}, measured, "as printed")


def _gains(results: Results, task: Task) -> str:
    """Return the gain of tuned over printed hyperparameters within the episodes of both."""
    gains: list[str] = []
    for method in REWARD:
        tuned = results["area", task.name, method]
        printed = results["printed", task.name, method]
        until = common_episodes({"tuned": tuned, "printed": printed})
        gain = difference(tuned.area(until), printed.area(until), len(REWARD))
        gains.append(f"{method} {shown(gain)}")
    return (
        "Area with tuned minus that with printed settings, over the episodes that both have: "
        f"{', '.join(gains)}."
    )


def _title(kind: str, results: ByMethod) -> str:
    """Return which method leads by the area, alone or within chance, and which comes last."""
    until = common_episodes(results)
    areas = {method: result.area(until) for method, result in results.items()}
    first, second, *_, last = sorted(areas, key=lambda method: -float(areas[method].mean()))
    title = "reward-shared"
    if is_above(difference(areas[first], areas[second], len(areas))):
        title = "reward-alone"
    kind = kind.capitalize()
    return text("titles", title, kind=kind, first=first, second=second, last=last)


def _section(results: Results, task: Task) -> Section:
    kinds = {"printed": of_setting(results, "printed", task.name)}
    if task.name == LAKE:
        kinds["printed"][SAME_STEP] = results["printed", LAKE, SAME_STEP]
    gains = ""
    if task.name in TUNED:
        kinds["tuned"] = of_setting(results, "tuned", task.name)
        gains = _gains(results, task)
    anchor = file_name("reward", task.name)
    figures: list[Chart] = []
    rows: list[list[str]] = []
    for kind, by_method in kinds.items():
        name = f"{anchor}-{kind}"
        title = _title(kind, by_method)
        limits = LIMITS[task.name]
        figures.append(learning_curves(name, title, task, by_method, LOOK, limits))
        until = common_episodes(of_setting(results, kind, task.name))
        for method, result in by_method.items():
            area = shown(mean(result.area(until)))
            by_end = result
            if kind == "tuned":
                by_end = results["end", task.name, method]
            times = by_end.episodes_to(task.threshold, task.tabular)
            final = shown(mean(by_end.final))
            rows.append([kind, method, area, shown(median(times)), _count(times), final])
    seeds = len(kinds["printed"][OURS].values)
    values = {"task": task, "slug": anchor, "seeds": seeds, "gains": gains}
    words = text("sections", "reward-task", **values)
    return Section(**words, figures=figures, tables=[table("reward", rows, **values)])

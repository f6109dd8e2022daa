"""Readings of what the paper leaves open about section 6.1, and their effect on each claim."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np

from occupax.envs import TabularMDP, make
from occupax.experiments import methods
from occupax.experiments.cells import ExperimentCell, ExperimentResult, make_cell, run_name
from occupax.experiments.figures import difference_rows
from occupax.experiments.inference import Answer, mean
from occupax.experiments.methods import OURS, PLAIN, REWARD, snapshot_size
from occupax.experiments.reward import BUDGETS, common_episodes, tests_of
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, names_with, shown, table, text, verdict
from occupax.experiments.tasks import CARTPOLE, LAKE, Task, tasks
from occupax.jobs import file_name
from occupax.problem import Problem

SEEDS = 10
EPISODES = {LAKE: 300_000, CARTPOLE: BUDGETS[CARTPOLE][OURS]}
"""Episodes of each reading. The whole budget of the printed settings is a reading of its own."""
RECORDS = 50
"""Number of records of tables."""
PRINTED = "as printed"
FULL = "as printed, the whole budget"
STATIC = "not slippery"
SUMS = "gradients summed over the batch"
UNDISCOUNTED = "not discounted"
EQUAL = "TSIVR-PG's step size for all"
MEAN_BASELINE = "mean baseline"
ADAM = "Adam"
FIELDS: dict[str, Any] = {MEAN_BASELINE: {"baseline": "mean"}, ADAM: {"rule": "adam"}}
"""Changed hyperparameters by reading."""
READINGS = {
    LAKE: (PRINTED, MEAN_BASELINE, ADAM, SUMS, UNDISCOUNTED, EQUAL, STATIC),
    CARTPOLE: (PRINTED, MEAN_BASELINE, ADAM, EQUAL),
}
NO_DISCOUNT = 0.99999
"""Discount of an undiscounted reading."""
CUT = "REINFORCE, radius"
SMALL = "REINFORCE, radius and batches of B"
UNCUT = "TSIVR-PG, no radius"
CONTROLS = (OURS, PLAIN, CUT, SMALL, UNCUT)
"""Truncation and batch size one at a time, at the printed settings of CartPole."""
CONTROL = "control"
LAKE_SIDE = 8

Key = tuple[str, str, str]
"""Task, reading or "control", and method or control."""
Results = Mapping[Key, ExperimentResult]


@cache
def task_of(name: str, reading: str) -> Task:
    """Return the task of a reading."""
    task = tasks()[name]
    printed = task.problem
    if reading == UNDISCOUNTED:
        problem = Problem(printed.env, printed.utility, NO_DISCOUNT, printed.horizon)
    elif reading == STATIC:
        problem = Problem(_static_lake(), printed.utility, printed.discount, printed.horizon)
    else:
        return task
    return replace(task, name=f"{name}, {reading}", problem=problem)


def _static_lake() -> TabularMDP:
    """Return the lake without slipping."""
    env: Any = make("FrozenLake8x8-v1")
    cells = np.where(np.asarray(env.terminal), "H", ".").reshape(LAKE_SIDE, LAKE_SIDE)
    cells[0, 0] = "S"
    cells[-1, -1] = "G"
    return TabularMDP.gridworld("\n".join(map("".join, cells)), 0.0)


def make_cells(scale: Scale) -> dict[Key, ExperimentCell]:
    """Return every run. Runs of section 6.1 have the same names as there."""
    cells: dict[Key, ExperimentCell] = {}
    for reading in scale.some(READINGS[LAKE], 2):
        for method in REWARD:
            cells[LAKE, reading, method] = _reading_cell(scale, LAKE, reading, method)
    if not scale.networks:
        return cells
    for reading in scale.some(READINGS[CARTPOLE], 2):
        for method in REWARD:
            cells[CARTPOLE, reading, method] = _reading_cell(scale, CARTPOLE, reading, method)
    task = tasks()[CARTPOLE]
    for control in CONTROLS:
        algorithm = _control_algorithm(control)
        name = run_name(task, "printed", control, algorithm)
        cell = make_cell(name, task, algorithm, scale, BUDGETS[CARTPOLE][OURS])
        cells[CARTPOLE, CONTROL, control] = cell
    return cells


def _reading_cell(scale: Scale, name: str, reading: str, method: str) -> ExperimentCell:
    task = task_of(name, reading)
    algorithm = _reading_algorithm(name, reading, method)
    is_printed = task is tasks()[name] and algorithm == methods.printed()[name, method]
    if is_printed:
        reading = PRINTED
    file = file_name("reading", task.name, reading, method)
    if is_printed and EPISODES[name] == BUDGETS[name][method]:
        file = run_name(task, "printed", method, algorithm)
    records = None
    if task.tabular:
        records = RECORDS
    episodes = scale.episodes(EPISODES[name])
    return ExperimentCell(file, task, algorithm, episodes, scale.seeds(SEEDS), records)


def _reading_algorithm(name: str, reading: str, method: str) -> Any:
    printed = methods.printed()
    algorithm = printed[name, method]
    if reading == SUMS:
        step_size = algorithm.step_size * snapshot_size(algorithm)
        return replace(algorithm, step_size=step_size)
    if reading == EQUAL:
        return replace(algorithm, step_size=printed[name, OURS].step_size)
    return replace(algorithm, **FIELDS.get(reading, {}))


def _control_algorithm(control: str) -> Any:
    ours = methods.printed()[CARTPOLE, OURS]
    plain = methods.printed()[CARTPOLE, PLAIN]
    algorithms: dict[str, Any] = {
        OURS: ours,
        PLAIN: plain,
        CUT: replace(plain, radius=ours.radius),
        SMALL: replace(plain, radius=ours.radius, batch=ours.batch),
        UNCUT: replace(ours, radius=inf),
    }
    return algorithms[control]


def sections(results: Results, printed: Results) -> list[Section]:
    """Return the sections about readings and controls. The printed runs are those of 6.1."""
    sections = [_readings_section(results, printed)]
    controls = {
        control: results[CARTPOLE, CONTROL, control]
        for control in CONTROLS
        if (CARTPOLE, CONTROL, control) in results
    }
    if controls:
        sections.append(_controls_section(controls))
    return sections


def _readings_section(results: Results, printed: Results) -> Section:
    by_reading: dict[tuple[str, str], dict[str, ExperimentResult]] = {}
    for (name, reading, method), result in results.items():
        if reading != CONTROL:
            by_reading.setdefault((name, reading), {})[method] = result
    by_reading[LAKE, FULL] = {method: printed["printed", LAKE, method] for method in REWARD}
    names = [name for name, _ in by_reading]
    verdicts: list[list[str]] = []
    areas: list[list[str]] = []
    # a stable sort, with the lake before CartPole
    for name, reading in sorted(by_reading, key=lambda pair: pair[0], reverse=True):
        by_method = by_reading[name, reading]
        family = (len(REWARD) - 1) * names.count(name)
        by_claim = tests_of(task_of(name, reading), by_method, by_method, family)
        verdicts.append([name, reading, *(_counted(tests) for tests, _ in by_claim.values())])
        until = common_episodes(by_method)
        means = [shown(mean(by_method[method].area(until))) for method in REWARD]
        areas.append([name, reading, *means])
    words = text(
        "sections",
        "readings",
        lake=EPISODES[LAKE],
        pole=EPISODES[CARTPOLE],
        seeds=len(next(iter(results.values())).values),
    )
    return Section(**words, tables=[table("readings", verdicts), table("reading-areas", areas)])


def _controls_section(controls: Mapping[str, ExperimentResult]) -> Section:
    areas = {control: result.area() for control, result in controls.items()}
    means = {control: shown(mean(area)) for control, area in areas.items()}
    words = text(
        "sections",
        "controls",
        ours=means[OURS],
        plain=means[PLAIN],
        cut=means[CUT],
        small=means[SMALL],
        uncut=means[UNCUT],
    )
    rows: list[list[str]] = []
    pairs: list[Any] = []
    for control, result in controls.items():
        rows.append([control, means[control], shown(mean(result.final))])
        if control != OURS:
            pairs.append(((f"{control} minus TSIVR-PG",), areas[control], areas[OURS]))
    tables = [table("controls", rows), table("control-differences", difference_rows(pairs))]
    return Section(**words, tables=tables)


def _counted(tests: Mapping[str, Answer]) -> str:
    """Return the verdict on a claim, with the numbers of tests that hold and fail."""
    yes = len(names_with(tests, True))
    no = len(names_with(tests, False))
    return f"{verdict(tests.values())} ({yes} yes, {no} no of {len(tests)})"

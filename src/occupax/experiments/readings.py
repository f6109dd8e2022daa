"""What the paper leaves open about section 6.1, and what each reading of it does to each of its claims."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

from occupax import algorithms
from occupax.envs import TabularMDP, make
from occupax.experiments import methods
from occupax.experiments.cells import Cell, Outcome, run_name, slug
from occupax.experiments.figures import difference_rows, table
from occupax.experiments.inference import mean
from occupax.experiments.methods import OURS, PLAIN, REWARD
from occupax.experiments.reward import BUDGETS, common, tests_of
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, shown, text, verdict
from occupax.experiments.tasks import CARTPOLE, LAKE, Task, tasks
from occupax.problem import Problem

SEEDS = 10
EPISODES = {LAKE: 300_000, CARTPOLE: BUDGETS[CARTPOLE][OURS]}
"""How many episodes each reading gets; the long budget of the printed settings of the lake is a
reading of its own."""
RECORDS = 50
"""How often tables are judged during a run."""
PRINTED, FULL = "as printed", "as printed, the whole budget"
STATIC, FIELDS = "not slippery", {"mean baseline": {"baseline": "mean"}, "Adam": {"rule": "adam"}}
SUMS, UNDISCOUNTED, EQUAL = (
    "gradients summed over the batch",
    "not discounted",
    "TSIVR-PG's step size for all",
)
READINGS = {
    LAKE: (PRINTED, *FIELDS, SUMS, UNDISCOUNTED, EQUAL, STATIC),
    CARTPOLE: (PRINTED, *FIELDS, EQUAL),
}
NO_DISCOUNT = 0.99999
"""As near to no discount as a problem can have it."""
CUT, SMALL, UNCUT = "REINFORCE, radius", "REINFORCE, radius and batches of B", "TSIVR-PG, no radius"
CONTROLS = (OURS, PLAIN, CUT, SMALL, UNCUT)
"""Truncation and batch size one at a time, at the printed settings of CartPole."""

Key = tuple[str, str, str]
"""A task, a reading or "control", and a method or a control."""


@cache
def read_task(name: str, reading: str) -> Task:
    """A task as a reading has it."""
    task, given = tasks()[name], tasks()[name].problem
    if reading == UNDISCOUNTED:
        problem = Problem(given.env, given.utility, NO_DISCOUNT, given.horizon)
    elif reading == STATIC:
        problem = Problem(_dry(), given.utility, given.discount, given.horizon)
    else:
        return task
    return replace(task, name=f"{name}, {reading}", problem=problem)


def _dry() -> TabularMDP:
    """The lake without slipping."""
    side = 8
    env: Any = make("FrozenLake8x8-v1")
    ends = env.terminal
    goal = side * side - 1
    cells = [
        "S" if s == 0 else "G" if s == goal else "H" if ends[s] else "." for s in range(side * side)
    ]
    rows = ["".join(cells[at : at + side]) for at in range(0, side * side, side)]
    return TabularMDP.gridworld("\n".join(rows), 0.0)


def cells(scale: Scale) -> dict[Key, Cell]:
    """Every run of the readings and controls; those that are runs of section 6.1 have the names of these."""
    made: dict[Key, Cell] = {}
    for name in (LAKE, CARTPOLE):
        for reading in scale.some(READINGS[name], 2) if name == LAKE or scale.networks else ():
            for method in REWARD:
                made[name, reading, method] = _cell(scale, name, reading, method)
    for control in CONTROLS if scale.networks else ():
        task = tasks()[CARTPOLE]
        seeds, episodes = scale.seeds(task.seeds), scale.episodes(BUDGETS[CARTPOLE][OURS])
        name = run_name(task, "printed", control, None)
        made[CARTPOLE, "control", control] = Cell(name, task, _control(control), episodes, seeds)
    return made


def _cell(scale: Scale, name: str, reading: str, method: str) -> Cell:
    task, algorithm = read_task(name, reading), _algorithm(name, reading, method)
    episodes, seeds = scale.episodes(EPISODES[name]), scale.seeds(SEEDS)
    as_printed = task is tasks()[name] and algorithm == methods.printed()[name, method]
    file = slug("reading", task.name, PRINTED if as_printed else reading, method)
    if as_printed and EPISODES[name] == BUDGETS[name][method]:
        file = run_name(task, "printed", method, None)
    return Cell(file, task, algorithm, episodes, seeds, RECORDS if task.tabular else None)


def _algorithm(name: str, reading: str, method: str) -> Any:
    printed = methods.printed()
    given = printed[name, method]
    if reading == SUMS:
        return replace(
            given, step_size=given.step_size * getattr(given, "snapshot_batch", given.batch)
        )
    if reading == EQUAL:
        return replace(given, step_size=printed[name, OURS].step_size)
    return replace(given, **FIELDS.get(reading, {}))


def _control(name: str) -> Any:
    ours, plain = (methods.printed()[CARTPOLE, method] for method in (OURS, PLAIN))
    cut: algorithms.REINFORCE = replace(plain, radius=ours.radius)
    made = {
        OURS: ours,
        PLAIN: plain,
        CUT: cut,
        SMALL: replace(cut, batch=ours.batch),
        UNCUT: replace(ours, radius=inf),
    }
    return made[name]


def sections(done: Mapping[Key, Outcome], printed: Mapping[Key, Outcome]) -> list[Section]:
    """What the report says of readings and controls; the printed runs are those of section 6.1."""
    read: dict[tuple[str, str], dict[str, Outcome]] = {}
    for (task, reading, method), it in done.items():
        if reading != "control":
            read.setdefault((task, reading), {})[method] = it
    read[LAKE, FULL] = {method: printed["printed", LAKE, method] for method in REWARD}
    family = {
        name: (len(REWARD) - 1) * sum(task == name for task, _ in read) for name in (LAKE, CARTPOLE)
    }
    verdicts, areas = [], []
    for (name, reading), outcomes in sorted(read.items(), key=lambda it: it[0][0], reverse=True):
        found = tests_of(read_task(name, reading), outcomes, outcomes, family[name])
        verdicts.append([name, reading, *(_counted(tests) for tests, _ in found.values())])
        until = common(outcomes)
        means = [shown(mean(outcomes[method].area(until))) for method in REWARD]
        areas.append([name, reading, *means])
    values = {
        "lake": EPISODES[LAKE],
        "pole": EPISODES[CARTPOLE],
        "seeds": len(next(iter(done.values())).values),
    }
    tables = [table("readings", verdicts), table("reading-areas", areas)]
    made = [Section(**text("sections", "readings", **values), tables=tables)]
    controls = {
        name: done[CARTPOLE, "control", name].area()
        for name in CONTROLS
        if (CARTPOLE, "control", name) in done
    }
    if controls:
        pairs = [
            ((f"{name} minus TSIVR-PG",), controls[name], controls[OURS])
            for name in CONTROLS
            if name != OURS
        ]
        values = {name: shown(mean(area)) for name, area in controls.items()}
        words = text(
            "sections", "controls", ours=values[OURS], plain=values[PLAIN], cut=values[CUT], small=values[SMALL],
            uncut=values[UNCUT],
        )  # fmt: skip
        means = [
            [name, shown(mean(area)), shown(mean(done[CARTPOLE, "control", name].final))]
            for name, area in controls.items()
        ]
        tables = [table("controls", means), table("control-differences", difference_rows(pairs))]
        made.append(Section(**words, tables=tables))
    return made


def _counted(tests: Mapping[str, bool | None]) -> str:
    """The verdict on a claim, and how many of its tests hold and are refuted."""
    counts = [sum(test is of for test in tests.values()) for of in (True, False)]
    return f"{verdict(tests.values())} ({counts[0]} yes, {counts[1]} no of {len(tests)})"

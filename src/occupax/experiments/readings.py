"""What the paper leaves open about section 6.1, and what each reading of it does to its claims."""

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
from occupax.experiments.inference import above, difference, mean
from occupax.experiments.methods import OURS, PLAIN
from occupax.experiments.reward import BUDGETS
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, answer, shown, text
from occupax.experiments.tasks import CARTPOLE, LAKE, Task, tasks
from occupax.problem import Problem

COMPARED = (OURS, PLAIN)
"""The first and the last of the paper's order."""
SEEDS = 5
EPISODES = {LAKE: 400_000, CARTPOLE: 3_000}
"""How many episodes each reading gets; the long budget of the printed settings is a reading of its own."""
PRINTED = "as printed"
STATIC, FIELDS = "not slippery", {"mean baseline": {"baseline": "mean"}, "Adam": {"rule": "adam"}}
SUMS, UNDISCOUNTED, EQUAL = "gradients summed over the batch", "not discounted", "TSIVR-PG's step size for all"
READINGS = {LAKE: (PRINTED, *FIELDS, SUMS, UNDISCOUNTED, EQUAL, STATIC), CARTPOLE: (PRINTED, *FIELDS)}
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
    cells = ["S" if s == 0 else "G" if s == goal else "H" if ends[s] else "." for s in range(side * side)]
    rows = ["".join(cells[at : at + side]) for at in range(0, side * side, side)]
    return TabularMDP.gridworld("\n".join(rows), 0.0)


def cells(scale: Scale) -> dict[Key, Cell]:
    """Every run of the readings and controls."""
    made: dict[Key, Cell] = {}
    for name in (LAKE, CARTPOLE):
        for reading in scale.some(READINGS[name], 2) if name == LAKE or scale.networks else ():
            for method in COMPARED:
                algorithm = _algorithm(name, reading, method)
                task, episodes = read_task(name, reading), scale.episodes(EPISODES[name])
                cell = Cell(slug("reading", task.name, reading, method), task, algorithm, episodes, scale.seeds(SEEDS))
                made[name, reading, method] = cell
    for control in CONTROLS if scale.networks else ():
        task = tasks()[CARTPOLE]
        seeds, episodes = scale.seeds(task.seeds), scale.episodes(BUDGETS[CARTPOLE][OURS])
        name = run_name(task, "printed", control, None)  # two of them are runs of section 6.1
        made[CARTPOLE, "control", control] = Cell(name, task, _control(control), episodes, seeds)
    return made


def _algorithm(name: str, reading: str, method: str) -> Any:
    printed = methods.printed()
    given = printed[name, method]
    if reading == SUMS:
        return replace(given, step_size=given.step_size * getattr(given, "snapshot_batch", given.batch))
    if reading == EQUAL:
        return replace(given, step_size=printed[name, OURS].step_size)
    return replace(given, **FIELDS.get(reading, {}))


def _control(name: str) -> Any:
    ours, plain = (methods.printed()[CARTPOLE, method] for method in (OURS, PLAIN))
    cut: algorithms.REINFORCE = replace(plain, radius=ours.radius)
    made = {OURS: ours, PLAIN: plain, CUT: cut, SMALL: replace(cut, batch=ours.batch), UNCUT: replace(ours, radius=inf)}
    return made[name]


def sections(done: Mapping[Key, Outcome]) -> list[Section]:
    """What the report says of readings and controls."""
    found = dict.fromkeys((task, reading) for task, reading, _ in done if reading != "control")
    rows = [
        _row(task, reading, {method: done[task, reading, method] for method in COMPARED}) for task, reading in found
    ]
    made = [Section(**text("sections", "readings"), tables=[table("readings", rows)])]
    controls = {
        name: done[CARTPOLE, "control", name].area() for name in CONTROLS if (CARTPOLE, "control", name) in done
    }
    if controls:
        pairs = [((f"{name} minus TSIVR-PG",), controls[name], controls[OURS]) for name in CONTROLS if name != OURS]
        values = {name: shown(mean(area)) for name, area in controls.items()}
        words = text(
            "sections", "controls", ours=values[OURS], plain=values[PLAIN], cut=values[CUT], small=values[SMALL]
        )
        means = [
            [name, shown(mean(area)), shown(mean(done[CARTPOLE, "control", name].final))]
            for name, area in controls.items()
        ]
        tables = [table("controls", means), table("control-differences", difference_rows(pairs))]
        made.append(Section(**words, tables=tables))
    return made


def _row(task: str, reading: str, outcomes: Mapping[str, Outcome]) -> list[str]:
    """The areas under the curves, their difference, and whether TSIVR-PG is ahead."""
    ours, plain = (outcomes[method].area() for method in COMPARED)
    gain = difference(ours, plain)
    return [task, reading, *(shown(it) for it in (mean(ours), mean(plain), gain)), answer(above(gain))]

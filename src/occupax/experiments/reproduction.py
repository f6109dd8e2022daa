"""Run the paper's experiments, and write the report."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from occupax._errors import unknown
from occupax.experiments import ablations, cells, rate, report, reward, tuning, utility
from occupax.experiments.cells import SCALES, Cell, Done, Scale
from occupax.experiments.methods import RATE_SNAPSHOT, SEARCH, SNAPSHOTS, best_trials, printed, read_search, tuned
from occupax.experiments.progress import Job, run_jobs
from occupax.experiments.sections import Section
from occupax.experiments.tasks import CARTPOLE, COVERAGE, COVERAGE_CARTPOLE, LAKE, Task, tasks
from occupax.training.loggers import Logger

Part = Literal["reward", "rate", "utility", "all"]
PARTS = ("reward", "rate", "utility")
SEARCHED = {
    "reward": [
        *((task, method, SNAPSHOTS) for task in reward.TASKS for method in reward.REWARD),
        *((task, ablations.CUT, SNAPSHOTS) for task in (LAKE, CARTPOLE)),
        *((task, ablations.OURS, SNAPSHOTS) for task in (COVERAGE, COVERAGE_CARTPOLE)),
    ],
    "rate": [(task, rate.OURS, (RATE_SNAPSHOT,)) for task in rate.TASKS],
    "utility": [(task, method, SNAPSHOTS) for task in utility.TASKS for method in utility.METHODS_OF["tuned"]],
}
"""The tasks, methods and snapshots N of which each part needs tuned settings."""


class Experiment(NamedTuple):
    """What is to be trained, and what is made of it."""

    cells: Mapping[Any, Cell]
    sections: Callable[[Mapping[Any, Done]], list[Section]]


def experiments(part: Part, scale: Scale, search: Any = SEARCH) -> list[Experiment]:
    """Those of a part of section 6, with the tuned settings of a search; the ablations belong to the reward."""
    as_printed, as_tuned = printed(), tuned(search)
    at_one_size = best_trials(trial for trial in read_search(search) if trial.snapshot == RATE_SNAPSHOT)
    made = {
        "reward": lambda: [
            Experiment(reward.cells(scale, as_printed, as_tuned), partial(reward.sections, printed=as_printed)),
            Experiment(ablations.cells(scale, as_tuned), ablations.sections),
        ],
        "rate": lambda: [Experiment(rate.cells(scale, at_one_size), rate.sections)],
        "utility": lambda: [
            Experiment(utility.cells(scale, as_printed, as_tuned), partial(utility.sections, printed=as_printed))
        ],
    }
    return [experiment for name in _names(part) for experiment in made[name]()]


def _names(part: Part) -> tuple[str, ...]:
    if part not in (*PARTS, "all"):
        raise unknown("part", part, (*PARTS, "all"))
    return PARTS if part == "all" else (part,)


def _wanted(names: Sequence[str], scale: Scale) -> list[tuple[Task, str, int]]:
    """What is to be searched for, each once."""
    every = dict.fromkeys(
        (task, method, snapshot)
        for name in names
        for task, method, snapshots in SEARCHED[name]
        for snapshot in snapshots
        if task in scale.tasks
    )
    return [(tasks()[task], method, snapshot) for task, method, snapshot in every]


def reproduce(part: Part, scale: str, out: str | Path, tune: bool = False, progress: bool = True) -> Path:
    """Run experiments of the paper's section 6; what the folder has already is not run again.

    Args:
        part: "reward" (6.1 and the ablations), "rate" (6.2), "utility" (6.3) or "all".
        scale: "quick", a small version of everything, or "full".
        out: folder for the report, the figures, the numbers and the outcomes.
        tune: search for the tuned settings first, instead of taking those that are stored.
        progress: show how far it is.

    Returns:
        The path of the report.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    names, folder, search = _names(part), Path(out), SEARCH
    if tune:
        search = folder / "search.csv"
        tuning.search(_wanted(names, SCALES[scale]), search, SCALES[scale], progress)
    chosen = experiments(part, SCALES[scale], search)
    every = {cell.name: cell for experiment in chosen for cell in experiment.cells.values()}
    done = {name: found for name, cell in every.items() if (found := cells.load(folder, cell)) is not None}

    def train(cell: Cell, logger: Logger) -> None:
        done[cell.name] = cells.measure(cell, logger)
        cells.save(folder, done[cell.name])

    left = [cell for name, cell in every.items() if name not in done]
    run_jobs([Job(cell.name, cell.cost, partial(train, cell)) for cell in left], progress)
    sections = [
        section
        for experiment in chosen
        for section in experiment.sections({key: done[cell.name] for key, cell in experiment.cells.items()})
    ]
    command, notice = f"occupax reproduce {part} --scale {scale}", SCALES[scale].notice
    return report.write(folder, command, notice, sections, [done[name] for name in every], search)

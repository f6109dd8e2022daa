"""Run the paper's experiments, and write the report."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from occupax._errors import unknown
from occupax.experiments import ablations, cells, rate, report, reward, tuning, utility
from occupax.experiments.cells import SCALES, Cell, Done, Scale
from occupax.experiments.methods import RATE_SNAPSHOT, SEARCH, SNAPSHOTS, best_trials, printed, read_search, tuned
from occupax.experiments.progress import Job, run_jobs
from occupax.experiments.sections import Section
from occupax.experiments.tasks import CARTPOLE, COVERAGE, COVERAGE_CARTPOLE, LAKE, tasks
from occupax.training.loggers import Logger

Part = Literal["reward", "rate", "utility", "all"]
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


Experiment = tuple[Mapping[Any, Cell], Callable[[Mapping[Any, Done]], list[Section]]]
"""What is to be trained, and what is made of it."""


def experiments(part: Part, scale: Scale, search: Any = SEARCH) -> list[Experiment]:
    """Those of a part of section 6, with the tuned settings of a search; the ablations belong to the reward."""
    as_printed, as_tuned = printed(), tuned(search)
    at_one_size = best_trials(trial for trial in read_search(search) if trial.snapshot == RATE_SNAPSHOT)
    made: list[Experiment] = []
    if part in ("reward", "all"):
        trained = reward.COMPARISON.cells(scale, printed=as_printed, tuned=as_tuned)
        made.append((trained, partial(reward.sections, printed=as_printed)))
        made.append((ablations.cells(scale, as_tuned), ablations.sections))
    if part in ("rate", "all"):
        made.append((rate.cells(scale, at_one_size), rate.sections))
    if part in ("utility", "all"):
        given = utility.printed_settings(as_printed)
        trained = utility.COMPARISON.cells(scale, printed=given, tuned=as_tuned)
        made.append((trained, partial(utility.sections, printed=as_printed)))
    return made


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
    if part not in (*SEARCHED, "all"):
        raise unknown("part", part, (*SEARCHED, "all"))
    folder, search = Path(out), SEARCH
    if tune:
        search = folder / "search.csv"
        needed = [it for name in SEARCHED if part in (name, "all") for it in SEARCHED[name]]
        wanted = [
            (tasks()[task], method, snapshot)
            for task, method, snapshots in dict.fromkeys(needed)
            for snapshot in (snapshots if task in SCALES[scale].tasks else ())
        ]
        tuning.search(wanted, search, SCALES[scale], progress)
    chosen = experiments(part, SCALES[scale], search)
    every = {cell.name: cell for needed, _ in chosen for cell in needed.values()}
    done = {name: found for name, cell in every.items() if (found := cells.load(folder, cell)) is not None}

    def train(cell: Cell, logger: Logger) -> None:
        done[cell.name] = cells.measure(cell, logger)
        cells.save(folder, done[cell.name])

    left = [cell for name, cell in every.items() if name not in done]
    run_jobs([Job(cell.name, cell.cost, partial(train, cell)) for cell in left], progress)
    sections: list[Section] = []
    for needed, describe in chosen:
        sections += describe({key: done[cell.name] for key, cell in needed.items()})
    command = f"occupax reproduce {part} --scale {scale}"
    return report.write(folder, command, SCALES[scale].name, sections, [done[name] for name in every], search)

"""The search for tuned settings: the paper's grid, with the same number of trials and episodes for every method."""

import csv
from collections.abc import Iterable, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from occupax.experiments import runs
from occupax.experiments.cells import Cell, Scale
from occupax.experiments.methods import (
    METHODS,
    RATE_SNAPSHOT,
    SEARCHED,
    SNAPSHOTS,
    Trial,
    epoch_episodes,
    make,
    read_search,
)
from occupax.experiments.progress import Job, run_jobs
from occupax.experiments.tasks import Task
from occupax.training.loggers import Logger

SEED = 1
"""The seed of the search; runs that are shown have another, and so share no random number with it."""
SEEDS = 3
FINALISTS = 5
"""How many of the best settings of a task and a method are tried again."""
CONFIRMING = range(SEEDS, SEEDS + 10)
"""The seeds on which the best settings are tried again."""
SHARE = 0.5
"""The share of the episodes of the runs that are shown."""
RADII = (0.01, 0.05, 0.2, 0.8)
MIXINGS = (0.01, 0.03, 0.1, 0.3)


def candidates(task: Task, method: str) -> list[dict[str, Any]]:
    """The settings to try for each N: `task.trials` of them, whatever the method has to set."""
    second = METHODS[method].second
    values = {None: (), "radius": RADII, "mixing": MIXINGS}[second]
    count = task.trials // max(1, len(values))
    low, high = np.log10(task.step_sizes)
    sizes = [float(f"{size:.3g}") for size in np.logspace(low, high, count)]
    if second is None:
        return [{"step_size": size} for size in sizes]
    return [{"step_size": size, second: value} for size in sizes for value in values]


def search(wanted: Sequence[tuple[Task, str, int]], path: Path, scale: Scale, progress: bool = True) -> None:
    """Try all settings of each wanted task, method and N, and the best few of each task and method on more seeds.

    What the file has already is not tried again.
    """
    tried = {(trial.task, trial.method, trial.snapshot) for trial in _read(path)}

    def try_all(task: Task, method: str, snapshot: int, logger: Logger) -> None:
        _append(path, _try(task, method, snapshot, candidates(task, method), range(SEEDS), scale, logger))

    def cost(task: Task, method: str, snapshot: int) -> float:
        episodes = _episodes(task, method, snapshot, scale)
        return Cell("", task, make(method, snapshot), episodes, SEEDS * task.trials).cost

    left = [it for it in wanted if (it[0].name, *it[1:]) not in tried]
    names = [f"search for {method} on {task.name}, N = {snapshot}" for task, method, snapshot in left]
    run_jobs([Job(name, cost(*it), partial(try_all, *it)) for name, it in zip(names, left, strict=True)], progress)
    confirmed = {(trial.task, trial.method) for trial in _read(path) if trial.seeds == len(CONFIRMING)}

    def try_again(task: Task, method: str, logger: Logger) -> None:
        _append(path, _confirm(task, method, finalists(_read(path), task.name, method), scale, logger))

    pairs = {(task.name, method): task for task, method, snapshot in wanted if snapshot in SNAPSHOTS}
    jobs = [
        Job(f"the best for {method} on {name} again", 1.0, partial(try_again, task, method))
        for (name, method), task in pairs.items()
        if (name, method) not in confirmed
    ]
    run_jobs(jobs, progress)


def finalists(trials: Iterable[Trial], task: str, method: str) -> list[Trial]:
    """The best few trials of a task and a method."""
    known = [
        trial
        for trial in trials
        if (trial.task, trial.method) == (task, method) and trial.snapshot in SNAPSHOTS and not isnan(trial.score)
    ]
    return sorted(known, key=lambda trial: -trial.score)[:FINALISTS]


def _confirm(task: Task, method: str, best: Sequence[Trial], scale: Scale, logger: Logger) -> list[Trial]:
    """The same settings on more seeds, and other ones: the best of many trials on few seeds is often a lucky one."""
    points = {trial.snapshot: [other.settings for other in best if other.snapshot == trial.snapshot] for trial in best}
    return [
        trial
        for snapshot, settings in points.items()
        for trial in _try(task, method, snapshot, settings, CONFIRMING, scale, logger)
    ]


def _episodes(task: Task, method: str, snapshot: int, scale: Scale) -> int:
    """The episodes of each run of the search: at least two of the largest snapshots, and given epochs for the rate."""
    if snapshot == RATE_SNAPSHOT:
        return scale.epochs * epoch_episodes(make(method, snapshot))
    return max(int(SHARE * scale.share * task.episodes), 2 * max(SNAPSHOTS))


def _try(
    task: Task,
    method: str,
    snapshot: int,
    points: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    scale: Scale,
    logger: Logger,
) -> list[Trial]:
    """Trials, with the mean over the training as the score, or for the rate what there is in the end."""
    episodes = _episodes(task, method, snapshot, scale)
    variants = [make(method, snapshot, **point) for point in points]
    trials: list[Trial] = []
    for point, run in zip(points, runs.train(task, variants, episodes, seeds, SEED, logger, False), strict=True):
        if snapshot == RATE_SNAPSHOT:
            scores = run.result.utilities
        else:
            scores = runs.mean_heights(run.episodes, run.values, max(SNAPSHOTS), episodes)
        trials.append(Trial(task.name, method, snapshot, point, len(seeds), float(scores.mean())))
    return trials


def _read(path: Path) -> list[Trial]:
    return read_search(path) if path.exists() else []


def _append(path: Path, trials: list[Trial]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if new:
            writer.writerow(["task", "method", "N", "B", "m", *SEARCHED, "seeds", "score"])
        for trial in trials:
            sizes = METHODS[trial.method].sizes
            batch, length = ("", "") if sizes is None else sizes(trial.snapshot)
            settings: list[Any] = [trial.settings.get(name, "") for name in SEARCHED]
            row = [trial.task, trial.method, trial.snapshot, batch, length, *settings, trial.seeds]
            writer.writerow([*row, f"{trial.score:.6g}"])

"""The search for tuned settings: the paper's grid, with the same number of trials and episodes for every method."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax.analysis.charts import csv_lines
from occupax.experiments import cells, methods
from occupax.experiments.cells import Cell, Scale
from occupax.experiments.methods import METHODS, SEARCHED, Trial
from occupax.experiments.progress import Job, run_jobs
from occupax.experiments.tasks import Task
from occupax.training.loggers import Logger

SEED = 1
"""The seed of the search; runs that are shown have another, and so share no random number with it."""
SEEDS = 3
FINALISTS = 5
"""How many of the best settings of a task and a method are tried again: the best on few seeds is often a lucky one."""
CONFIRMING = range(SEEDS, SEEDS + 10)
"""The seeds on which the best settings are tried again."""
SHARE = 0.5
"""The share of the episodes of the runs that are shown."""
SECOND = {"radius": (0.01, 0.05, 0.2, 0.8), "mixing": (0.01, 0.03, 0.1, 0.3)}
"""The values of what is searched for besides the step size."""

Point = dict[str, Any]
Points = dict[int, list[Point]]
"""Values of settings by their names, and those to try for each N."""


def candidates(task: Task, method: str) -> list[Point]:
    """The settings to try for each N: `task.trials` of them, whatever the method has to set."""
    second = METHODS[method].second
    others: list[Point] = [{second: value} for value in SECOND[second]] if second else [{}]
    low, high = np.log10(task.step_sizes)
    sizes = np.logspace(low, high, task.trials // len(others))
    return [{"step_size": float(f"{size:.3g}")} | other for size in sizes for other in others]


def search(wanted: Sequence[tuple[Task, str, int]], path: Path, scale: Scale, progress: bool = True) -> None:
    """Try all settings of each wanted task, method and N that the file has not, and the best few on more seeds."""
    tried = {trial[:3] for trial in _read(path)}
    jobs = [
        Job(
            f"search for {method} on {task.name}, N = {snapshot}",
            Cell("", task, methods.make(method, snapshot), episodes, SEEDS * task.trials).cost,
            partial(_try, path, scale, task, method, {snapshot: candidates(task, method)}, range(SEEDS)),
        )
        for task, method, snapshot in wanted
        for episodes in [_episodes(task, method, snapshot, scale)]
        if (task.name, method, snapshot) not in tried
    ]
    run_jobs(jobs, progress)
    trials, jobs = _read(path), []
    confirmed = {(trial.task, trial.method) for trial in trials if trial.seeds == len(CONFIRMING)}
    pairs = {(task.name, method): task for task, method, snapshot in wanted if snapshot in methods.SNAPSHOTS}
    for (name, method), task in pairs.items():
        points: Points = {}
        for best in finalists(trials, name, method):
            points.setdefault(best.snapshot, []).append(best.settings)
        if (name, method) not in confirmed:
            again = partial(_try, path, scale, task, method, points, CONFIRMING)
            jobs.append(Job(f"the best for {method} on {name} again", 1.0, again))
    run_jobs(jobs, progress)


def finalists(trials: Iterable[Trial], task: str, method: str) -> list[Trial]:
    """The best few trials of a task and a method."""
    mine = [it for it in trials if (it.task, it.method) == (task, method) and it.snapshot in methods.SNAPSHOTS]
    return sorted((it for it in mine if not isnan(it.score)), key=lambda it: -it.score)[:FINALISTS]


def _episodes(task: Task, method: str, snapshot: int, scale: Scale) -> int:
    """The episodes of each run of the search: at least two of the largest snapshots, and given epochs for the rate."""
    if snapshot == methods.RATE_SNAPSHOT:
        return scale.epochs * methods.epoch_episodes(methods.make(method, snapshot))
    return max(int(SHARE * scale.share * task.episodes), 2 * max(methods.SNAPSHOTS))


def _try(
    path: Path, scale: Scale, task: Task, method: str, points: Points, seeds: Sequence[int], logger: Logger
) -> None:
    """Add trials with settings for each N: the score is the mean over the training, or for the rate the end."""
    rows: list[list[Any]] = [] if path.exists() else [["task", "method", "N", "B", "m", *SEARCHED, "seeds", "score"]]
    for snapshot, settings in points.items():
        episodes = _episodes(task, method, snapshot, scale)
        sizes = METHODS[method].sizes(snapshot) if METHODS[method].powers else ("", "")
        variants = [methods.make(method, snapshot, **point) for point in settings]
        for point, run in zip(settings, cells.train(task, variants, episodes, seeds, SEED, logger, False), strict=True):
            if snapshot == methods.RATE_SNAPSHOT:
                scores = run.result.utilities
            else:
                scores = cells.mean_heights(run.episodes, run.values, max(methods.SNAPSHOTS), episodes)
            values = [point.get(name, "") for name in SEARCHED]
            rows.append([task.name, method, snapshot, *sizes, *values, len(seeds), f"{float(scores.mean()):.6g}"])
    serial.write_text(path, (path.read_text() if path.exists() else "") + csv_lines(rows))


def _read(path: Path) -> list[Trial]:
    return methods.read_search(path) if path.exists() else []

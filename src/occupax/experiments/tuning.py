"""The search for tuned settings: the paper's grid, with the same number of trials and episodes for every method."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from occupax.experiments import runs
from occupax.experiments.cells import Cell
from occupax.experiments.methods import METHODS, RATE_SNAPSHOT, SEARCHED, SNAPSHOTS, Trial, make, read_search
from occupax.experiments.progress import Progress
from occupax.experiments.scales import Scale
from occupax.experiments.tasks import Task
from occupax.training.loggers import Logger

SEED = 1
"""Of the search; runs that are shown have another, and so share no random number with it."""
SEEDS = 3
SHARE = 0.5
"""Of the episodes of the runs that are shown."""
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
    """Try all settings of each wanted task, method and N; what the file has already is not tried again."""
    done = {(trial.task, trial.method, trial.snapshot) for trial in read_search(path)} if path.exists() else set()
    left = [one for one in wanted if (one[0].name, *one[1:]) not in done]
    cells = [
        Cell("", task, make(method, snapshot), _episodes(task, method, snapshot, scale), SEEDS * task.trials)
        for task, method, snapshot in left
    ]
    with Progress([cell.cost for cell in cells], progress) as bar:
        for (task, method, snapshot), cell in zip(left, cells, strict=True):
            logger = bar.begin(f"search for {method} on {task.name}, N = {snapshot}", cell.cost)
            _append(path, list(_tried(task, method, snapshot, cell.episodes, logger)))
            bar.end(worked=True)


def _episodes(task: Task, method: str, snapshot: int, scale: Scale) -> int:
    """Of each run of the search; at least two of the largest snapshots. For the rate the epochs are given."""
    if snapshot == RATE_SNAPSHOT:
        return scale.epochs * sum(make(method, snapshot).cycle)
    return max(int(SHARE * scale.share * task.episodes), 2 * max(SNAPSHOTS))


def _tried(task: Task, method: str, snapshot: int, episodes: int, logger: Logger) -> Iterator[Trial]:
    """Trials, with the mean over the training as the score, or for the rate what there is in the end."""
    points = candidates(task, method)
    variants = [make(method, snapshot, **point) for point in points]
    for point, run in zip(points, runs.train(task, variants, episodes, SEEDS, SEED, logger, False), strict=True):
        if snapshot == RATE_SNAPSHOT:
            scores = run.result.utilities
        else:
            scores = runs.mean_heights(run.episodes, run.values, max(SNAPSHOTS), episodes)
        yield Trial(task.name, method, snapshot, point, float(scores.mean()))


def _append(path: Path, trials: list[Trial]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if new:
            writer.writerow(["task", "method", "N", "B", "m", *SEARCHED, "score"])
        for trial in trials:
            sizes = METHODS[trial.method].sizes
            batch, length = ("", "") if sizes is None else sizes(trial.snapshot)
            settings: list[Any] = [trial.settings.get(name, "") for name in SEARCHED]
            writer.writerow([trial.task, trial.method, trial.snapshot, batch, length, *settings, f"{trial.score:.6g}"])

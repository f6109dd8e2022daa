"""Search for tuned hyperparameters, sequential and with an equal budget for every method.

The search begins with five settings for each N over a range of step sizes that all methods share,
the printed setting among them. Then the neighbours of the best setting are tried, by the mean over
the training and by the end in turn. Neighbours differ by a factor of sqrt(10) and may leave the
range. While the best setting of a score has no neighbour on one side, its neighbours are tried too,
up to a limit. All trials have the full number of episodes and two seeds. The best few settings of
each score with neighbours on all sides, and the printed one, are tried again on other seeds, which
select the winner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf, nan, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from occupax.algorithms import Algorithm
from occupax.analysis.saved_text import words
from occupax.experiments import cells, methods
from occupax.experiments.cells import ExperimentResult, describe_task
from occupax.experiments.methods import METHODS, snapshot_size
from occupax.experiments.scale import Scale
from occupax.experiments.tasks import Task
from occupax.io import codec
from occupax.jobs import Job, JobResult, file_name
from occupax.training.loggers import Logger

Score = Literal["area", "end"]
SCORES: tuple[Score, ...] = ("area", "end")
SEED = 1
"""Seed of the search, which shares no random number with the runs that are shown."""
GROUP = 5
"""Number of settings that are trained together."""
RECORDS = 25
"""Number of records of a trial."""
SEEDS = (0, 1)
CONFIRMING_SEEDS = (2, 3, 4, 5)
"""Seeds of a trial, and seeds on which the best settings are tried again."""
MAX_EXTENSIONS = 3
"""Number of additional rounds for a best setting at an edge."""
FINALISTS = 2
FACTOR = sqrt(10)
"""Ratio of a number and its neighbour, for every number of every method."""
SECOND_RANGES = {"radius": (1e-2, 1.0), "mixing": (1e-2, 1.0)}
"""Range of the hyperparameter that is tuned besides the step size."""


class SearchPoint(NamedTuple):
    """Setting of a method: N, the step size, and the second number if the method has one."""

    snapshot: int
    step_size: float
    second: float = 0.0


class Trial(NamedTuple):
    """Setting with its scores on the trial seeds, and on the confirming seeds if retried."""

    point: SearchPoint
    area: float
    end: float
    confirmed_area: float = nan
    confirmed_end: float = nan

    def score(self, by: Score, confirmed: bool = False) -> float:
        """Return a score, minus infinity if unknown."""
        scores = {"area": self.area, "end": self.end}
        if confirmed:
            scores = {"area": self.confirmed_area, "end": self.confirmed_end}
        if np.isnan(scores[by]):
            return -np.inf
        return scores[by]


@dataclass(frozen=True)
class HyperparameterSearch:
    """Search for the hyperparameters of a method on a task."""

    task: Task
    method: str
    episodes: int
    printed: Any = None
    """Printed algorithm, which is among the trials."""
    rounds: tuple[Score, ...] = SCORES
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the algorithm that differ from those of the method."""
    extensions: int = MAX_EXTENSIONS

    @property
    def job(self) -> Job:
        """Job that tries all settings."""
        description = {
            **describe_task(self.task),
            "method": self.method,
            "episodes": self.episodes,
            "rounds": list(self.rounds),
            "extensions": self.extensions,
            "changes": [f"{name} {value}" for name, value in self.changes.items()],
            "N": list(self.task.snapshots),
        }
        if self.printed is not None:
            description["printed"] = words(*codec.pack(self.printed))
        name = file_name("search", self.task.name, self.method, *self.enabled_changes())
        groups = len(self.task.snapshots) + len(self.rounds) + 1
        runs = groups * GROUP * len(SEEDS) + 5 * len(CONFIRMING_SEEDS)
        episodes_a_second = 5e3
        if self.task.tabular:
            episodes_a_second = 4e5
        seconds = 10.0 + runs * self.episodes / episodes_a_second
        return Job(name, description, seconds, partial(_search, self))

    def enabled_changes(self) -> list[str]:
        """Return the names of the changes that are not off."""
        return [name for name, value in self.changes.items() if value]

    def algorithm(self, point: SearchPoint) -> Algorithm[Any]:
        """Return the algorithm of a search point. For the printed N, B and m are as printed."""
        sizes = None
        if getattr(self.printed, "snapshot_batch", None) == point.snapshot:
            sizes = (self.printed.batch, self.printed.epoch_length)
        settings = {"step_size": point.step_size, **self.changes}
        if self._second is not None:
            settings[self._second] = point.second
        return methods.make(self.method, point.snapshot, sizes, **settings)

    @property
    def _second(self) -> str | None:
        """Hyperparameter that is tuned besides the step size, none for mixtures that fade."""
        second = METHODS[self.method].second
        if second == "mixing" and self.changes.get("fading"):
            return None
        return second

    @property
    def _max_second(self) -> float:
        if self._second == "mixing":
            return 1.0
        return inf

    def trials(self, logger: Logger | None = None) -> list[Trial]:
        """Return the trials of all settings, one after the other."""
        trials: list[Trial] = []
        for snapshot in self.task.snapshots:
            trials += self._try(self.first_points(snapshot), logger)
        for score in self.rounds:
            trials += self._try_neighbours(best(trials, score)[0], trials, logger)
        for _ in range(self.extensions):
            leaders = [best(trials, score)[0] for score in self.rounds]
            at_edges = [leader for leader in leaders if not self.is_enclosed(leader, trials)]
            if not at_edges:
                break
            trials += self._try_neighbours(at_edges[0], trials, logger)
        return self._confirm(trials, logger)

    def is_enclosed(self, trial: Trial, trials: Sequence[Trial]) -> bool:
        """Return whether smaller and larger numbers than those of a trial were tried with its N."""
        points = [other.point for other in trials if other.point.snapshot == trial.point.snapshot]
        step_sizes = [point.step_size for point in points]
        if not min(step_sizes) < trial.point.step_size < max(step_sizes):
            return False
        if self._second is None:
            return True
        seconds = [point.second for point in points]
        has_larger = trial.point.second < max(seconds) or trial.point.second >= self._max_second
        return min(seconds) < trial.point.second and has_larger

    def first_points(self, snapshot: int) -> list[SearchPoint]:
        """Return five settings for an N. All methods have the same step sizes."""
        random = np.random.default_rng(snapshot)
        low, high = np.log10(self.task.step_sizes)
        edges = np.linspace(low, high, GROUP + 1)
        step_sizes = 10 ** _half_steps(random.uniform(edges[:-1], edges[1:]))
        seconds = np.zeros(GROUP)
        if self._second is not None:
            low, high = np.log10(SECOND_RANGES[self._second])
            seconds = 10 ** _half_steps(random.permutation(np.linspace(low, high, GROUP)))
        pairs = zip(step_sizes, seconds, strict=True)
        points = [_rounded_point(snapshot, step_size, second) for step_size, second in pairs]
        printed = self._printed_point
        if printed is not None and printed.snapshot == snapshot:
            ratios = [abs(np.log(point.step_size / printed.step_size)) for point in points]
            points[int(np.argmin(ratios))] = printed
        return points

    @property
    def _printed_point(self) -> SearchPoint | None:
        if self.printed is None:
            return None
        second = 0.0
        if self._second is not None:
            second = getattr(self.printed, self._second)
        return _rounded_point(snapshot_size(self.printed), self.printed.step_size, second)

    def _try_neighbours(
        self, trial: Trial, trials: Sequence[Trial], logger: Logger | None
    ) -> list[Trial]:
        """Try the five nearest new settings of the same N, in one number first, then in both."""
        reach = range(-20, 21)
        second_reach = range(1)
        if self._second is not None:
            second_reach = reach
        known = {trial.point for trial in trials}
        points: list[SearchPoint] = []
        for i, j in sorted(product(reach, second_reach), key=_distance):
            point = _rounded_point(
                trial.point.snapshot,
                trial.point.step_size * FACTOR**i,
                trial.point.second * FACTOR**j,
            )
            if point not in known and point.second <= self._max_second:
                points.append(point)
            if len(points) == GROUP:
                break
        return self._try(points, logger)

    def _try(self, points: Sequence[SearchPoint], logger: Logger | None) -> list[Trial]:
        results = self._run(points, SEEDS, logger)
        return [
            Trial(point, _known_mean(result.area()), _known_mean(result.final))
            for point, result in zip(points, results, strict=True)
        ]

    def _confirm(self, trials: Sequence[Trial], logger: Logger | None) -> list[Trial]:
        enclosed = [trial for trial in trials if self.is_enclosed(trial, trials)]
        finalists: set[SearchPoint] = set()
        for score in SCORES:
            leaders = best(enclosed or trials, score)[:FINALISTS]
            finalists.update(leader.point for leader in leaders)
        printed = self._printed_point
        if printed is not None and printed in {trial.point for trial in trials}:
            finalists.add(printed)
        scores: dict[SearchPoint, tuple[float, float]] = {}
        for snapshot in sorted({point.snapshot for point in finalists}):
            group = sorted(point for point in finalists if point.snapshot == snapshot)
            results = self._run(group, CONFIRMING_SEEDS, logger)
            for point, result in zip(group, results, strict=True):
                scores[point] = (_known_mean(result.area()), _known_mean(result.final))
        return [Trial(*trial[:3], *scores.get(trial.point, (nan, nan))) for trial in trials]

    def _run(
        self, points: Sequence[SearchPoint], seeds: Sequence[int], logger: Logger | None
    ) -> list[ExperimentResult]:
        return cells.train_and_evaluate(
            self.task,
            [self.algorithm(point) for point in points],
            self.episodes,
            seeds,
            SEED,
            RECORDS,
            logger,
            mixtures=False,
        )


def make_search(
    scale: Scale, task: Task, method: str, printed: Any, changes: Mapping[str, Any] | None = None
) -> HyperparameterSearch:
    """Return the hyperparameter search of a method on a task.

    At a small scale, the search has one snapshot batch N and one score, and its range of step sizes
    is never extended.
    """
    snapshots = task.snapshots
    extensions = MAX_EXTENSIONS
    if not scale.whole:
        extensions = 0
        snapshots = snapshots[-1:]
        if printed is not None:
            snapshots = (snapshot_size(printed),)
    return HyperparameterSearch(
        replace(task, snapshots=tuple(reversed(snapshots))),
        method,
        scale.episodes(task.episodes),
        printed,
        tuple(scale.some(SCORES, 1)),
        changes or {},
        extensions,
    )


def best(trials: Sequence[Trial], by: Score, confirmed: bool = False) -> list[Trial]:
    """Return trials by descending score."""
    return sorted(trials, key=lambda trial: -trial.score(by, confirmed))


def winner(trials: Sequence[Trial], by: Score) -> Trial:
    """Return the best trial on the confirming seeds."""
    return best(trials, by, confirmed=True)[0]


def read_trials(result: JobResult) -> list[Trial]:
    """Return the trials of a finished search."""
    trials: list[Trial] = []
    for snapshot, step_size, second, *scores in result.arrays["trials"].tolist():
        trials.append(Trial(SearchPoint(int(snapshot), step_size, second), *scores))
    return trials


def _search(search: HyperparameterSearch, logger: Logger) -> JobResult:
    return pack_trials(search.trials(logger))


def pack_trials(trials: Sequence[Trial]) -> JobResult:
    """Return trials as the result of a job."""
    rows = [[*trial.point, *trial[1:]] for trial in trials]
    return JobResult({"trials": np.array(rows, float)})


def _half_steps(exponents: np.ndarray) -> np.ndarray:
    return np.round(2 * exponents) / 2


def _distance(move: tuple[int, int]) -> tuple[int, int, int, int]:
    i, j = move
    return abs(i) + abs(j), abs(i * j), -i, -j


def _rounded_point(snapshot: int, step_size: float, second: float) -> SearchPoint:
    return SearchPoint(snapshot, float(f"{step_size:.6g}"), float(f"{second:.6g}"))


def _known_mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return nan
    return float(known.mean())

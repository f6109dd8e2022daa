"""The search for tuned settings, sequential and with the same number of trials and episodes for every method.

It begins with five settings for each N, spread over a range of step sizes that all methods share,
the printed setting among them. Then the neighbours of the best are tried, by the mean over the
training and by the end in turn, a factor of sqrt(10) away in one number, whether or not that lies
in the first range. As long as the best by a score has no neighbour on one side, its neighbours are
tried, too, up to a limit. All trials have the full number of episodes and two seeds. The best few
by each score that have neighbours on all sides, and the printed setting, are tried again on other
seeds, and there the winner is found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf, nan, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from occupax.algorithms import Algorithm
from occupax.analysis.describe import words
from occupax.experiments import methods
from occupax.experiments.cells import Outcome, described, judged, slug
from occupax.experiments.methods import METHODS
from occupax.experiments.scale import Scale
from occupax.experiments.store import Arrays, Unit
from occupax.experiments.tasks import Task
from occupax.io import codec
from occupax.training.loggers import Logger

Score = Literal["area", "end"]
SCORES: tuple[Score, ...] = ("area", "end")
SEED = 1
"""The seed of the search; runs that are shown have another, and so share no random number with
it."""
AT_ONCE = 5
"""Settings that are trained together."""
RECORDS = 25
"""How often policies are judged during a trial."""
SEEDS, CONFIRMING = (0, 1), (2, 3, 4, 5)
"""The seeds of a trial, and those on which the best are tried again."""
ROUNDS = SCORES
MOST_EXTENSIONS = 3
"""So many rounds more are spent on a best setting at an edge."""
FINALISTS = 2
FACTOR = sqrt(10)
"""Between a number and its neighbour, for every number of every method."""
SECOND = {"radius": (1e-2, 1.0), "mixing": (1e-2, 1.0)}
"""The range of what is searched for besides the step size; the mixing weight cannot be above 1."""


class Point(NamedTuple):
    """A setting: N, the step size, and the second number if the method has one."""

    snapshot: int
    step_size: float
    second: float = 0.0


class Trial(NamedTuple):
    """A setting that was tried, and its scores: on the first seeds, and on the others if it was tried again."""

    point: Point
    area: float
    end: float
    confirmed_area: float = nan
    confirmed_end: float = nan

    def score(self, by: Score, confirmed: bool = False) -> float:
        """One of the scores, minus infinity if it is not known."""
        found = getattr(self, f"confirmed_{by}" if confirmed else by)
        return -np.inf if np.isnan(found) else found


class Search(NamedTuple):
    """A method on a task, with so many episodes for each run."""

    task: Task
    method: str
    episodes: int
    printed: Any = None
    """The printed setting, which is among those that are tried."""
    rounds: tuple[Score, ...] = ROUNDS
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields of the algorithm that are not those of the method."""
    extensions: int = MOST_EXTENSIONS

    @classmethod
    def at(
        cls,
        scale: Scale,
        task: Task,
        method: str,
        printed: Any,
        changes: tuple[tuple[str, Any], ...] = (),
    ) -> "Search":
        """A search at a scale: a small one has the printed N, or the largest, one round, and stays within edges."""
        given = getattr(printed, "snapshot_batch", getattr(printed, "batch", None))
        sizes = task.snapshots if scale.whole or given is None else (given,)
        searched = replace(task, snapshots=tuple(scale.some(sizes[::-1], 1)))
        rounds, extensions = tuple(scale.some(ROUNDS, 1)), MOST_EXTENSIONS if scale.whole else 0
        return cls(
            searched, method, scale.episodes(task.episodes), printed, rounds, changes, extensions
        )

    @property
    def unit(self) -> Unit:
        """The search as work to be done."""
        kinds = [f"{name} {value}" for name, value in self.changes]
        about = {
            "method": self.method,
            "episodes": self.episodes,
            "rounds": list(self.rounds),
            "extensions": self.extensions,
            "changes": kinds,
            "N": list(self.task.snapshots),
        }
        printed = {} if self.printed is None else {"printed": words(*codec.pack(self.printed))}
        name = slug(
            "search", self.task.name, self.method, *(name for name, value in self.changes if value)
        )
        trials = (len(self.task.snapshots) + len(self.rounds) + 1) * AT_ONCE * len(SEEDS) + 5 * len(
            CONFIRMING
        )
        seconds = 10.0 + trials * self.episodes / (4e5 if self.task.tabular else 5e3)
        return Unit(
            name,
            described(self.task) | about | printed,
            seconds,
            lambda logger: _packed(self.trials(logger)),
        )

    def algorithm(self, point: Point) -> Algorithm[Any]:
        """The algorithm with a setting; N as printed has the printed B and m."""
        at, second = point.snapshot, self._second
        given = getattr(self.printed, "snapshot_batch", None)
        sizes = (self.printed.batch, self.printed.epoch_length) if given == at else None
        settings = {"step_size": point.step_size} | ({second: point.second} if second else {})
        return methods.make(self.method, at, sizes, **settings, **dict(self.changes))

    @property
    def _second(self) -> str | None:
        """What is searched for besides the step size: no share of a mixture whose shares fade by themselves."""
        second = METHODS[self.method].second
        return None if second == "mixing" and dict(self.changes).get("fading") else second

    def trials(self, logger: Logger | None = None) -> list[Trial]:
        """Try all settings, one after the other."""
        tried = [
            trial for at in self.task.snapshots for trial in self._try(self._first(at), logger)
        ]
        for by in self.rounds:
            tried += self._around(best(tried, by)[0], tried, logger)
        for _ in range(self.extensions):
            at_edges = [
                it
                for by in self.rounds
                for it in best(tried, by)[:1]
                if not self.enclosed(tried, it)
            ]
            if not at_edges:
                break
            tried += self._around(at_edges[0], tried, logger)
        return [*self._confirm(tried, logger)]

    def enclosed(self, trials: Sequence[Trial], found: Trial) -> bool:
        """Whether smaller and larger numbers than those of a trial were tried with its N; no share is above 1."""
        mine = [it.point for it in trials if it.point.snapshot == found.point.snapshot]
        inside = _inside([it.step_size for it in mine], found.point.step_size)
        if self._second is None:
            return inside
        most = 1.0 if self._second == "mixing" else inf
        return inside and _inside([it.second for it in mine], found.point.second, most)

    def _first(self, snapshot: int) -> list[Point]:
        """Five settings for an N: the step sizes are those of every method, the second numbers are drawn."""
        low, high = np.log10(self.task.step_sizes)
        random, second = np.random.default_rng(snapshot), self._second
        edges = np.linspace(low, high, AT_ONCE + 1)
        exponents = np.round(2 * random.uniform(edges[:-1], edges[1:])) / 2
        points = [_point(snapshot, 10**it) for it in exponents]
        if second:
            low, high = np.log10(SECOND[second])
            seconds = 10 ** (np.round(2 * random.permutation(np.linspace(low, high, AT_ONCE))) / 2)
            points = [
                _point(it.snapshot, it.step_size, number)
                for it, number in zip(points, seconds, strict=True)
            ]
        given = self._printed_point
        if given is not None and given.snapshot == snapshot:
            nearest = min(points, key=lambda it: abs(np.log(it.step_size / given.step_size)))
            points[points.index(nearest)] = given
        return points

    @property
    def _printed_point(self) -> Point | None:
        if self.printed is None:
            return None
        second = getattr(self.printed, self._second) if self._second else 0.0
        return _point(
            getattr(self.printed, "snapshot_batch", self.printed.batch),
            self.printed.step_size,
            second,
        )

    def _around(self, found: Trial, tried: Sequence[Trial], logger: Logger | None) -> list[Trial]:
        return self._try(list(self._neighbours(found.point, {it.point for it in tried})), logger)

    def _neighbours(self, best: Point, tried: set[Point]) -> Iterator[Point]:
        """The five nearest settings of the same N that were not tried: in one number first, then in both."""
        second = self._second
        reach = range(-20, 21)
        moves = [(i, j) for i, j in product(reach, reach if second else (0,)) if (i, j) != (0, 0)]
        moves.sort(key=lambda it: (abs(it[0]) + abs(it[1]), abs(it[0] * it[1]), -it[0], -it[1]))
        found = (
            _point(best.snapshot, best.step_size * FACTOR**i, best.second * FACTOR**j)
            for i, j in moves
        )
        allowed = (
            it for it in found if it not in tried and not (second == "mixing" and it.second > 1)
        )
        for _, point in zip(range(AT_ONCE), allowed, strict=False):
            yield point

    def _try(self, points: Sequence[Point], logger: Logger | None) -> list[Trial]:
        outcomes = self._run(points, SEEDS, logger)
        return [
            Trial(point, *map(_mean, (it.area(), it.final)))
            for point, it in zip(points, outcomes, strict=True)
        ]

    def _confirm(self, tried: Sequence[Trial], logger: Logger | None) -> Iterator[Trial]:
        inside = [it for it in tried if self.enclosed(tried, it)] or tried
        finalists = {trial.point for by in SCORES for trial in best(inside, by)[:FINALISTS]}
        finalists |= {it.point for it in tried if it.point == self._printed_point}
        scores: dict[Point, list[float]] = {}
        for snapshot in sorted({point.snapshot for point in finalists}):
            mine = sorted(point for point in finalists if point.snapshot == snapshot)
            for point, it in zip(mine, self._run(mine, CONFIRMING, logger), strict=True):
                scores[point] = [_mean(it.area()), _mean(it.final)]
        for trial in tried:
            yield Trial(*trial[:3], *scores.get(trial.point, (nan, nan)))

    def _run(
        self, points: Sequence[Point], seeds: Sequence[int], logger: Logger | None
    ) -> list[Outcome]:
        algorithms = [self.algorithm(point) for point in points]
        return judged(
            self.task, algorithms, self.episodes, seeds, SEED, RECORDS, logger, mixtures=False
        )


def best(trials: Sequence[Trial], by: Score, confirmed: bool = False) -> list[Trial]:
    """Trials, the best ones first."""
    return sorted(trials, key=lambda it: -it.score(by, confirmed))


def winner(trials: Sequence[Trial], by: Score) -> Trial:
    """The best trial on the seeds that confirm."""
    return best(trials, by, confirmed=True)[0]


def _inside(tried: Sequence[float], number: float, most: float = inf) -> bool:
    """Whether smaller and larger numbers were tried, as far as there are any."""
    return min(tried) < number and (number < max(tried) or number >= most)


def read(arrays: Arrays) -> list[Trial]:
    """The trials of a search that is done."""
    return [Trial(Point(int(row[0]), *row[1:3]), *row[3:]) for row in arrays["trials"].tolist()]


def _packed(trials: Sequence[Trial]) -> Arrays:
    return {"trials": np.array([[*trial.point, *trial[1:]] for trial in trials], float)}


def _point(snapshot: int, step_size: float, second: float = 0.0) -> Point:
    return Point(snapshot, float(f"{step_size:.6g}"), float(f"{second:.6g}"))


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if (~np.isnan(values)).any() else nan

"""One method on one task with one setting: trained, judged along the way, and kept in a file.

Tables are judged by the exact utility of the policy at each record, and of the mixture of policies
that MaxEnt is about; networks by the mean return of a fixed number of evaluation episodes at each
record, which do not count.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from occupax.algorithms import Algorithm
from occupax.analysis.describe import words
from occupax.analysis.statistics import mean_over_grid, on_grid
from occupax.experiments.judges import EVALUATION, EvaluationJudge, ExactJudge
from occupax.experiments.store import Unit
from occupax.experiments.tasks import Task
from occupax.io import codec
from occupax.io.files import checksum
from occupax.training.loggers import Logger
from occupax.training.loop import run
from occupax.training.setup import make_setup

SEED = 0
"""The seed of all runs that are shown."""
EXACT_RECORDS, EVALUATED_RECORDS = 100, 25
"""How often policies are judged during a run, exactly and by episodes."""
SUSTAINED = 2
"""A threshold is reached where this many successive records are above it: the mean of them, if they
are sampled."""


@dataclass(frozen=True)
class Cell:
    """A method with its settings, what it is trained on, and for how long."""

    name: str
    task: Task
    algorithm: Algorithm[Any]
    episodes: int
    seeds: int
    given_records: int | None = None
    """How often the policy is judged, if not as often as is usual for the task."""

    @property
    def unit(self) -> Unit:
        """The training and its judgement, as work to be done."""
        records = self.given_records or (EXACT_RECORDS if self.task.tabular else EVALUATED_RECORDS)
        runs = partial(
            judged, self.task, [self.algorithm], self.episodes, range(self.seeds), SEED, records
        )
        sizes = {"episodes": self.episodes, "seeds": self.seeds, "records": records}
        about = {"algorithm": words(*codec.pack(self.algorithm))} | sizes
        return Unit(
            self.name,
            described(self.task) | about,
            self._seconds,
            lambda logger: runs(logger)[0]._asdict(),
        )

    @property
    def _seconds(self) -> float:
        episodes = self.episodes * self.seeds
        if self.task.tabular:
            return 4.0 + episodes / 1e6
        return 15.0 + episodes * self.task.problem.sampling_horizon() / 1e6


def described(task: Task) -> dict[str, Any]:
    """What results on a task depend on."""
    text, arrays = codec.pack(task.problem)
    judge = "exact" if task.tabular else f"{EVALUATION} episodes"
    return {"task": task.name, "problem": checksum(json.dumps(text), arrays), "judge": judge}


def slug(*parts: str) -> str:
    """Words as the name of a file."""
    return "-".join(re.findall(r"[a-z0-9.]+", " ".join(parts).lower()))


def run_name(task: Task, setting: str, method: str, algorithm: Any) -> str:
    """The name of a run; those with the same tuned settings have the same, by whatever score they were found."""
    numbers = (
        getattr(algorithm, name, None)
        for name in ("snapshot_batch", "batch", "step_size", "radius", "mixing")
    )
    found = [] if setting == "printed" else [f"{it:g}" for it in numbers if it is not None]
    return slug(task.name, "printed" if setting == "printed" else "tuned", method, *found)


class Outcome(NamedTuple):
    """What came of a cell, for every seed."""

    episodes: Int[np.ndarray, " record"]
    steps: Int[np.ndarray, "seed record"]
    values: Float[np.ndarray, "seed record"]
    """What the judge says of the policy; NaN once a seed was stopped."""
    mixture: Float[np.ndarray, "seed record"]
    """The exact utility of the mixture of all policies so far, of MaxEnt; otherwise that of the
    policy."""
    tables: Float[np.ndarray, "seed S A"]
    """The action probabilities in the end; empty for networks."""
    stopped: Int[np.ndarray, ""]
    """How many seeds were stopped because their numbers were not finite any more."""

    def area(self, until: int | None = None) -> Float[np.ndarray, " seed"]:
        """The mean of what the judge says over the episodes, from the first to a given one or the last."""
        return mean_height(self.episodes, self.values, until)

    @property
    def final(self) -> Float[np.ndarray, " seed"]:
        """What the judge says in the end, or before a seed was stopped."""
        return on_grid(self.episodes, self.values, self.episodes[-1:])[:, 0]

    def reached(self, threshold: float, exact: bool) -> Float[np.ndarray, " seed"]:
        """How many episodes it takes until a threshold is reached and kept for `SUSTAINED` records; or infinitely many.

        Exact values must be above it one by one; sampled ones on average, because single ones are
        noise.
        """
        windows = np.lib.stride_tricks.sliding_window_view(self.values, SUSTAINED, axis=1)
        height = windows.min(-1) if exact else windows.mean(-1)
        return np.where(height >= threshold, self.episodes[: height.shape[1]], np.inf).min(1)

    def late_rise(self) -> Float[np.ndarray, " seed"]:
        """By how much the last quarter of the records is higher on average than the quarter before."""
        known = on_grid(self.episodes, self.values, self.episodes)
        quarter = max(known.shape[1] // 4, 1)
        return known[:, -quarter:].mean(1) - known[:, -2 * quarter : -quarter].mean(1)


def mean_height(
    episodes: Int[np.ndarray, " record"],
    values: Float[np.ndarray, "seed record"],
    until: int | None = None,
) -> Float[np.ndarray, " seed"]:
    """The area under the curve of each seed from its first record on, divided by its width."""
    end = int(episodes[-1]) if until is None else until
    grid = np.unique(np.clip(np.concatenate([episodes, [end]]), None, end))
    return mean_over_grid(grid, on_grid(episodes, values, grid))


def judged(
    task: Task,
    algorithms: Sequence[Algorithm[Any]],
    episodes: int,
    seeds: Sequence[int],
    seed: int,
    records: int,
    logger: Logger | None = None,
    mixtures: bool = True,
) -> list[Outcome]:
    """Train each of some algorithms that differ in numbers only, and judge them; callbacks see complete records only.

    The mixture of MaxEnt takes a record for every iteration.
    """
    mixes = mixtures and task.tabular and hasattr(algorithms[0], "share")
    setup = make_setup(task.problem, algorithms, task.policy, seeds, seed, 1, exact=False)
    every = 1 if mixes else max(1, setup.schedule.iterations(episodes) // records)
    setup = replace(setup, record_every=every)
    judge = ExactJudge(task.problem) if task.tabular else EvaluationJudge(task.problem, seed)
    judge([policy for _, _, policy in setup.runs])
    loggers = [] if logger is None else [logger]
    results = run(setup, episodes, [lambda at: judge(at.policies), *loggers], progress=False)
    values, known = judge.values(), judge.records - 1
    mixture = values
    if mixes and isinstance(judge, ExactJudge):
        mixture = judge.mixtures(
            lambda k: np.array([cast("Any", it).share(k) for it, _, _ in setup.runs])
        )
    parts = (np.split(array, len(results)) for array in (values, mixture, judge.tables()))
    made: list[Outcome] = []
    for it, *measured in zip(results, *parts, strict=True):
        steps = np.pad(it.steps[:, :known], ((0, 0), (1, 0)))
        stopped = np.asarray(sum(status != "finished" for status in it.status))
        made.append(Outcome._make([np.pad(it.episodes[:known], (1, 0)), steps, *measured, stopped]))
    return made

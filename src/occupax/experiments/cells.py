"""Cells of the experiments: one method on one task with fixed hyperparameters, as a job.

Tables are evaluated by their exact utility at each record, and MaxEnt by that of its mixture of
policies. Networks are evaluated by the mean return of new episodes, which do not count.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax.algorithms import Algorithm, Budget
from occupax.analysis.saved_text import words
from occupax.analysis.statistics import mean_over_grid, on_grid
from occupax.experiments.evaluators import (
    EPISODES,
    EpisodeEvaluator,
    ExactEvaluator,
    RecordEvaluator,
)
from occupax.experiments.scale import Scale
from occupax.experiments.tasks import Task
from occupax.io import codec
from occupax.io.files import checksum
from occupax.jobs import Job, JobResult, file_name
from occupax.training.loggers import Logger
from occupax.training.loop import run
from occupax.training.setup import make_setup

SEED = 0
"""Seed of all runs that are shown."""
EXACT_RECORDS = 100
EVALUATED_RECORDS = 25
"""Number of records of a run, with exact evaluation and with episodes."""
SUSTAINED = 2
"""Number of successive records above a threshold that reach it.

The mean of them counts where records are estimates.
"""


@dataclass(frozen=True)
class ExperimentCell:
    """Algorithm with its task, budget and seeds."""

    name: str
    task: Task
    algorithm: Algorithm[Any]
    episodes: int
    seeds: int
    records: int | None = None
    """Number of records, by default that of the kind of task."""

    @property
    def job(self) -> Job:
        """Job that trains and evaluates."""
        description = {
            **describe_task(self.task),
            "algorithm": words(*codec.pack(self.algorithm)),
            "episodes": self.episodes,
            "seeds": self.seeds,
            "records": self._records(),
        }
        return Job(self.name, description, self._expected_seconds(), self._work)

    def _work(self, logger: Logger) -> JobResult:
        results = train_and_evaluate(
            self.task,
            [self.algorithm],
            self.episodes,
            range(self.seeds),
            SEED,
            self._records(),
            logger,
        )
        return JobResult(results[0]._asdict())

    def _records(self) -> int:
        if self.records is not None:
            return self.records
        if self.task.tabular:
            return EXACT_RECORDS
        return EVALUATED_RECORDS

    def _expected_seconds(self) -> float:
        episodes = self.episodes * self.seeds
        if self.task.tabular:
            return 4.0 + episodes / 1e6
        return 15.0 + episodes * self.task.problem.sampling_horizon() / 1e6


def make_cell(
    name: str, task: Task, algorithm: Algorithm[Any], scale: Scale, episodes: int | None = None
) -> ExperimentCell:
    """Return a cell with the budget of a task, or another one, at a scale."""
    budget = scale.episodes(episodes or task.episodes)
    return ExperimentCell(name, task, algorithm, budget, scale.seeds(task.seeds))


def describe_task(task: Task) -> dict[str, Any]:
    """Return all of a task that results depend on."""
    text, arrays = codec.pack(task.problem)
    evaluation = f"{EPISODES} episodes"
    if task.tabular:
        evaluation = "exact"
    fingerprint = checksum(json.dumps(text), arrays)
    return {"task": task.name, "problem": fingerprint, "evaluation": evaluation}


def run_name(task: Task, setting: str, method: str, algorithm: Any) -> str:
    """Return the name of a run. Equal tuned hyperparameters have equal names for all scores."""
    if setting == "printed":
        return file_name(task.name, "printed", method)
    numbers: list[str] = []
    for name in ("snapshot_batch", "batch", "step_size", "radius", "mixing"):
        value = getattr(algorithm, name, None)
        if value is not None:
            numbers.append(f"{value:g}")
    return file_name(task.name, "tuned", method, *numbers)


class ExperimentResult(NamedTuple):
    """Learning curves of all seeds of a cell."""

    episodes: Int[np.ndarray, " record"]
    steps: Int[np.ndarray, "seed record"]
    values: Float[np.ndarray, "seed record"]
    """Performance, NaN once a seed diverged."""
    mixture: Float[np.ndarray, "seed record"]
    """Exact utility of MaxEnt's mixture of policies, otherwise that of the policy."""
    tables: Float[np.ndarray, "seed S A"]
    """Final action probabilities, empty for networks."""
    stopped: Int[np.ndarray, ""]
    """Number of seeds that diverged."""

    def area(self, until: int | None = None) -> Float[np.ndarray, " seed"]:
        """Return the mean performance over the episodes, up to a number of them."""
        return mean_height(self.episodes, self.values, until)

    @property
    def final(self) -> Float[np.ndarray, " seed"]:
        """Final performance, or the last one before a seed diverged."""
        return on_grid(self.episodes, self.values, self.episodes[-1:])[:, 0]

    def episodes_to(self, threshold: float, exact: bool) -> Float[np.ndarray, " seed"]:
        """Return the episodes until a threshold is reached for `SUSTAINED` records, or infinity.

        Each exact value must reach it, and the mean of sampled ones, because single ones are noise.
        """
        windows = np.lib.stride_tricks.sliding_window_view(self.values, SUSTAINED, axis=1)
        heights = windows.mean(-1)
        if exact:
            heights = windows.min(-1)
        starts = self.episodes[: heights.shape[1]]
        return np.where(heights >= threshold, starts, np.inf).min(1)

    def late_rise(self) -> Float[np.ndarray, " seed"]:
        """Return the mean of the last quarter of the records minus that of the quarter before."""
        curves = on_grid(self.episodes, self.values, self.episodes)
        quarter = max(curves.shape[1] // 4, 1)
        last = curves[:, -quarter:].mean(1)
        return last - curves[:, -2 * quarter : -quarter].mean(1)


def mean_height(
    episodes: Int[np.ndarray, " record"],
    values: Float[np.ndarray, "seed record"],
    until: int | None = None,
) -> Float[np.ndarray, " seed"]:
    """Return the area under each curve from its first record on, divided by its width."""
    end = int(episodes[-1])
    if until is not None:
        end = until
    grid = np.unique(np.append(np.minimum(episodes, end), end))
    return mean_over_grid(grid, on_grid(episodes, values, grid))


def train_and_evaluate(
    task: Task,
    algorithms: Sequence[Algorithm[Any]],
    episodes: int,
    seeds: Sequence[int],
    seed: int,
    records: int,
    logger: Logger | None = None,
    mixtures: bool = True,
) -> list[ExperimentResult]:
    """Train algorithms that differ in numbers only, and evaluate every complete record.

    The mixture of MaxEnt takes a record for every iteration.
    """
    setup = make_setup(task.problem, algorithms, task.policy, seeds, seed, 1, exact=False)
    has_mixture = mixtures and task.tabular and hasattr(algorithms[0], "mixture_weight")
    if not has_mixture:
        every = max(1, setup.schedule.iterations(episodes) // records)
        setup = replace(setup, record_every=every)
    if task.tabular:
        evaluator: RecordEvaluator = ExactEvaluator(task.problem)
    else:
        evaluator = EpisodeEvaluator(task.problem, seed)
    evaluator.record([policy for _, _, policy in setup.runs])
    callbacks: list[Any] = [lambda progress: evaluator.record(progress.policies)]
    if logger is not None:
        callbacks.append(logger)
    runs = run(setup, Budget(episodes), callbacks, progress=False)
    values = evaluator.values()
    mixture = values
    if has_mixture and isinstance(evaluator, ExactEvaluator):
        members: list[Any] = [algorithm for algorithm, _, _ in setup.runs]
        mixture = evaluator.mixtures(
            lambda k: np.array([member.mixture_weight(k) for member in members])
        )
    count = len(runs)
    complete = values.shape[1] - 1
    results: list[ExperimentResult] = []
    for i, run_result in enumerate(runs):
        diverged = [status != "finished" for status in run_result.status]
        result = ExperimentResult(
            episodes=np.pad(run_result.episodes[:complete], (1, 0)),
            steps=np.pad(run_result.steps[:, :complete], ((0, 0), (1, 0))),
            values=np.split(values, count)[i],
            mixture=np.split(mixture, count)[i],
            tables=np.split(evaluator.tables(), count)[i],
            stopped=np.asarray(sum(diverged)),
        )
        results.append(result)
    return results

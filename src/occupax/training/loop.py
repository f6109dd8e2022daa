"""Loop over the iterations of runs: budget, records, checkpoints, callbacks and signals."""

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Num

from occupax.algorithms import Budget
from occupax.errors import check_number
from occupax.exact import Evaluator
from occupax.exact.probabilities import probabilities
from occupax.io import run_folder
from occupax.io.codec import Arrays
from occupax.io.files import remove_unfinished
from occupax.io.records import EXACT, RECORDS, MetricsFile, RecordTable
from occupax.io.results import ASSESSMENT, SUMMARY
from occupax.outcome import Outcome
from occupax.policies import Policy
from occupax.samplers import EpisodeError
from occupax.signals import noticed_signals
from occupax.training.budgets import check_budget, size, unit
from occupax.training.execution import MAX_ITERATIONS, Executor, make_executor
from occupax.training.loggers import ConsoleLogger, Logger
from occupax.training.outcomes import budget_of, make_outcomes, setup_config
from occupax.training.records import Records
from occupax.training.setup import Setup

CALL_SECONDS = 0.5
"""Duration of the iterations between two looks at the signals."""


@dataclass(frozen=True)
class Progress:
    """State of a training run at the end of a record, the argument of callbacks."""

    episodes: int
    """Number of trajectories that each run has sampled."""
    budget: Budget
    """Number of trajectories or of environment steps that each run may sample."""
    metrics: dict[str, Num[np.ndarray, " run"]]
    """Metrics of the last record by the names in `docs/diagnosis.md`. "steps" is cumulative."""
    policies: Sequence[Policy]
    """Output policy of each run so far."""


Function = Callable[[Progress], Any]
Callback = Logger | Function


def run(
    setup: Setup,
    budget: Budget,
    callbacks: Sequence[Callback] = (),
    out: Path | None = None,
    resume: bool = False,
    progress: bool = True,
    checkpoint_every: float = 30.0,
    resume_hint: str = "",
) -> list[Outcome]:
    """Train all runs of a set-up and return one outcome for each of its algorithms.

    Args:
        setup: set-up of the runs.
        budget: number of trajectories or of environment steps that each run may sample.
        callbacks: loggers, and functions of a `Progress` that end the training by returning True.
        out: directory of configuration, metrics and checkpoints, if any.
        resume: whether to continue from the last checkpoint in `out`, if there is one.
        progress: whether to show a progress bar.
        checkpoint_every: seconds between checkpoints.
        resume_hint: instruction that resumes the run, for messages.
    """
    if out is None and resume:
        raise ValueError("resume must be False without out, got True. Pass the directory as out.")
    check_number("checkpoint_every", checkpoint_every, low=0.0)
    _check_callbacks(callbacks)
    loggers = [callback for callback in callbacks if isinstance(callback, Logger)]
    functions = [callback for callback in callbacks if not isinstance(callback, Logger)]
    records = Records(setup.record_every, setup.schedule)
    loop = TrainingLoop(setup, budget, records, functions, loggers)
    if out is not None:
        loop.open(out, resume, resume_hint)
    if progress:
        loggers.append(ConsoleLogger())
    loop.train(checkpoint_every)
    return loop.outcomes()


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, Sequence):
        raise ValueError(
            "callbacks must be a list of functions of a Progress or loggers, "
            f"got {callbacks!r:.60}."
        )
    for callback in callbacks:
        if not isinstance(callback, Logger) and not callable(callback):
            raise ValueError(
                f"callbacks must be functions of a Progress or loggers, got {callback!r:.60}."
            )


@dataclass(frozen=True)
class RunFiles:
    """Files of runs in a directory, and the content of the last checkpoint."""

    checkpoints: run_folder.Checkpoints
    metrics: MetricsFile | None
    """`metrics.csv`, for a single algorithm."""
    arrays: Arrays
    """Arrays of the executor in the last checkpoint, empty without one."""
    iteration: int
    """Number of iterations before the last checkpoint."""
    seconds: float
    """Duration of the training before the last checkpoint."""
    resume_hint: str
    """Instruction that resumes the runs."""


def open_files(
    folder: Path, setup: Setup, budget: Budget, records: Records, resume: bool, resume_hint: str
) -> RunFiles:
    """Open the directory of runs, restore their records and return the last checkpoint."""
    config, config_arrays = setup_config(setup, budget)
    run_folder.check_same_run(folder, config, config_arrays, resume)
    checkpoints = run_folder.Checkpoints(folder / "checkpoint", config["fingerprint"])
    checkpoint = checkpoints.load()
    arrays: Arrays = {}
    record_arrays: Arrays = {}
    content: dict[str, Any] = {"iteration": 0, "seconds": 0.0, "metrics": None}
    if checkpoint is not None:
        saved, content = checkpoint
        for name, array in saved.items():
            if name.startswith("."):
                arrays[name] = array
            else:
                record_arrays[name] = array
        with _prefixed_errors("the run cannot be resumed"):
            records.restore(record_arrays, content["iteration"], len(setup.runs))
        sampled = setup.schedule.episodes(content["iteration"])
        before, _ = run_folder.read_config(folder)
        check_budget(budget, sampled, records.steps(len(setup.runs)), budget_of(before), folder)
    remove_unfinished(folder)
    run_folder.write_config(folder, config, config_arrays)
    metrics = None
    if len(setup.algorithms) == 1:
        metrics = MetricsFile(folder / RECORDS, setup.seeds, content["metrics"])
    for file in (SUMMARY, ASSESSMENT):  # the run is no longer finished
        (folder / file).unlink(missing_ok=True)
    return RunFiles(
        checkpoints, metrics, arrays, content["iteration"], content["seconds"], resume_hint
    )


class TrainingLoop:
    """Loop over the iterations of the runs of a set-up. Nothing is sampled before `train`."""

    def __init__(
        self,
        setup: Setup,
        budget: Budget,
        records: Records,
        functions: Sequence[Function],
        loggers: Sequence[Logger],
    ):
        self._setup = setup
        self._budget = budget
        self._last = setup.iterations(budget)
        self._records = records
        self._functions = functions
        self._loggers = loggers
        self._files: RunFiles | None = None
        self._seconds = 0.0
        self._executor: Executor

    def open(self, folder: Path, resume: bool, resume_hint: str) -> None:
        """Write checkpoints into a directory, and continue from the last one."""
        self._files = open_files(
            folder, self._setup, self._budget, self._records, resume, resume_hint
        )
        self._seconds = self._files.seconds

    def train(self, checkpoint_every: float) -> None:
        """Train until the budget is spent, a function returns True, or a signal arrives."""
        self._executor = make_executor(self._setup.for_budget(self._budget))
        try:
            self._restore()
            seeds = [run.seed for run in self._setup.runs]
            for logger in self._loggers:
                logger.open(seeds, self._budget, self._records.table(complete=True))
            with noticed_signals() as signals:
                with _ignored_failures(signals):
                    self._iterate(checkpoint_every, signals)
                self._save()
            self._write_unfinished()
        except EpisodeError as error:
            self._save()
            raise EpisodeError(f"{error} The training was {self._end_message()}") from error
        except OSError as error:
            raise self._write_error(error) from error
        finally:
            self._executor.close()
            for logger in self._loggers:
                logger.close()
        if signals and signals[0] == signal.SIGINT:
            raise KeyboardInterrupt(self._end_message())
        if signals:
            raise Terminated(self._end_message(), signals[0])

    def _restore(self) -> None:
        if self._files is not None and self._files.arrays:
            with _prefixed_errors("the run cannot be resumed"):
                self._executor.restore(self._files.arrays, self._files.iteration)

    def _iterate(self, checkpoint_every: float, signals: Sequence[int]) -> None:
        count = 1
        is_over = False
        saved_at = time.monotonic()
        start = saved_at - self._seconds
        while self._is_running(self._remaining()) and not is_over and not signals:
            call_start = time.monotonic()
            records = self._records.add(self._advance(count))
            seconds = max(time.monotonic() - call_start, 1e-3)
            fitting = int(count * CALL_SECONDS / seconds)
            count = max(1, min(2 * count, fitting, MAX_ITERATIONS))
            if records is not None:
                self._log(records)
                is_over = self._call_functions(records)
            self._seconds = time.monotonic() - start
            if time.monotonic() - saved_at >= checkpoint_every:
                self._save()
                saved_at = time.monotonic()

    def _remaining(self) -> Int[np.ndarray, " run"] | None:
        """Return the number of steps that each run may still take, None without such a limit."""
        if self._budget.steps is None:
            return None
        return self._budget.steps - self._records.steps(self._executor.count)

    def _is_running(self, remaining: Int[np.ndarray, " run"] | None) -> bool:
        """Return whether some run has not used up its budget."""
        if self._last is not None:
            return self._executor.iteration < self._last
        is_failed = self._executor.failures() > 0
        return remaining is not None and bool(np.any((remaining > 0) & ~is_failed))

    def _advance(self, count: int) -> Arrays:
        """Return the metrics of at most `count` further iterations.

        The iterations end with the budget and, if callbacks or exact values need it, with a record.
        """
        iteration = self._executor.iteration
        remaining = self._remaining()
        if self._functions or self._setup.exact:
            count = min(count, self._setup.record_every - iteration % self._setup.record_every)
        if self._last is not None:
            metrics = self._executor.advance(min(count, self._last - iteration))
        else:
            metrics = self._executor.advance(count, remaining)
        if remaining is not None:
            remaining = remaining - metrics["steps"].sum(0)
        if self._setup.exact:
            metrics |= self._exact_metrics(len(metrics["steps"]), self._is_running(remaining))
        return metrics

    def _exact_metrics(self, count: int, is_running: bool) -> Arrays:
        """Return the exact utility and the gap of every policy at the end of a record, else NaN."""
        problem = self._setup.problem
        iteration = self._executor.iteration
        names = EXACT
        if not problem.utility.concave:
            names = EXACT[:1]
        metrics = {name: np.full((count, self._executor.count), np.nan) for name in names}
        if iteration % self._setup.record_every and is_running:
            return metrics
        tables = [probabilities(problem, policy) for policy in self._executor.outputs()]
        values = Evaluator(problem).values(np.array(tables))
        for name, column in zip(EXACT, values, strict=True):
            if name in metrics and column is not None:
                metrics[name][-1] = column
        return metrics

    def _log(self, records: RecordTable) -> None:
        if self._files is not None and self._files.metrics is not None:
            self._files.metrics.append(records)
        for logger in self._loggers:
            logger.log(records)

    def _call_functions(self, records: RecordTable) -> bool:
        """Call all functions and return whether one of them returned True."""
        if not self._functions:
            return False
        metrics: dict[str, np.ndarray] = {"steps": records.steps[:, -1]}
        for name, values in records.metrics.items():
            metrics[name] = values[:, -1]
        progress = Progress(
            int(records.episodes[-1]), self._budget, metrics, self._executor.outputs()
        )
        returned = [function(progress) for function in self._functions]
        return any(_is_true(value) for value in returned)

    def _save(self) -> None:
        """Write a checkpoint, if there is a directory."""
        if self._files is None:
            return
        mark = None
        if self._files.metrics is not None:
            mark = self._files.metrics.mark()
        arrays = self._executor.arrays() | self._records.arrays()
        self._files.checkpoints.save(self._executor.iteration, self._seconds, mark, arrays)

    def _write_unfinished(self) -> None:
        """Write the record of the pending iterations. A resumed run removes it again."""
        unfinished = self._records.unfinished()
        if unfinished is None or self._files is None or self._files.metrics is None:
            return
        self._files.metrics.append(unfinished)

    def _write_error(self, error: OSError) -> OSError:
        """Return the error for a file that cannot be written, as on a full disk."""
        if self._files is None or error.errno is None:
            return error
        reason = error.strerror or error
        state = f"the last checkpoint is intact, and the training was {self._end_message()}"
        return OSError(error.errno, f"{reason}: {state}", error.filename)

    def _end_message(self) -> str:
        """Return where the training ended, and how to resume it."""
        completed = self._setup.schedule.episodes(self._executor.iteration)
        if self._budget.steps is not None:
            completed = int(self._records.steps(self._executor.count).min())
        message = f"stopped after {completed:,} of {size(self._budget):,} {unit(self._budget)}"
        if self._files is None:
            return f"{message}; nothing was saved without a directory (out)."
        if not self._files.resume_hint:
            return f"{message}."
        return f"{message}; to resume: {self._files.resume_hint}."

    def outcomes(self) -> list[Outcome]:
        """Return one outcome for each algorithm."""
        models: list[Any] = []
        for run, state in zip(self._setup.runs, self._executor.states(), strict=True):
            models.append(run.algorithm.model(self._setup.problem, state))
        return make_outcomes(
            self._setup,
            self._budget,
            self._records.table(),
            self._executor.outputs(),
            models,
            self._executor.status(),
            self._seconds,
        )


class Terminated(BaseException):
    """End of a training run by SIGTERM or SIGHUP, after its checkpoint."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.number = number
        """Number of the signal."""


def _is_true(value: Any) -> bool:
    """Return whether a value is True of Python, NumPy or JAX."""
    return value is True or (getattr(value, "dtype", None) == np.bool_ and bool(value))


@contextmanager
def _ignored_failures(signals: Sequence[int]) -> Generator[None]:
    """Ignore a failed episode after a signal, which a terminal sends to simulators, too."""
    try:
        yield
    except EpisodeError:
        if not signals:
            raise


@contextmanager
def _prefixed_errors(prefix: str) -> Generator[None]:
    """Put a prefix before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{prefix}: {error}") from None

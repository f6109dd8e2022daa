"""The loop around the compiled program: budget, records, checkpoints, callbacks and Ctrl-C."""

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num

from occupax.errors import check_integer, check_number
from occupax.exact import Evaluator
from occupax.exact.probabilities import probabilities
from occupax.io import run_folder
from occupax.io.files import remove_unfinished
from occupax.io.records import EXACT, RECORDS, MetricsFile, RecordTable
from occupax.io.results import ASSESSMENT, SUMMARY
from occupax.outcome import Outcome
from occupax.policies import Policy
from occupax.samplers import EpisodeError
from occupax.signals import noticed_signals
from occupax.training.execution import MAX_ITERATIONS, make_executor
from occupax.training.loggers import Console, Logger
from occupax.training.outcomes import make_outcomes, setup_config
from occupax.training.records import Records
from occupax.training.setup import Setup

SECONDS_A_CALL = 0.5
MOST_EPISODES = 10**10
"""More than any machine samples in a year."""


@dataclass(frozen=True)
class Progress:
    """How far training has come at the end of a record; what callbacks are given."""

    episodes: int
    """Trajectories each run has sampled."""
    budget: int
    """Trajectories each run may sample."""
    metrics: dict[str, Num[np.ndarray, " run"]]
    """What was recorded last, by the names of `docs/diagnosis.md`; "steps" are those taken so far."""
    policies: Sequence[Policy]
    """What each run would return now."""


Callback = Logger | Callable[[Progress], Any]


def run(
    setup: Setup,
    episodes: int,
    callbacks: Sequence[Callback] = (),
    out: Path | None = None,
    resume: bool = False,
    progress: bool = True,
    checkpoint_every: float = 30.0,
    resume_hint: str = "",
) -> list[Outcome]:
    """Train every run of a set-up; return one outcome for each of its algorithms."""
    if out is None and resume:
        raise ValueError("resume=True needs out, the folder of the run to go on with.")
    check_number("checkpoint_every", checkpoint_every, low=0.0)
    if not isinstance(callbacks, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"callbacks must be a list of functions of a Progress or loggers, got {callbacks!r:.60}."
        )
    for callback in callbacks:
        if not isinstance(callback, Logger) and not callable(callback):
            raise ValueError(
                f"callbacks must be functions of a Progress or loggers, got {callback!r:.60}."
            )
    loggers = [callback for callback in callbacks if isinstance(callback, Logger)]
    functions = [callback for callback in callbacks if not isinstance(callback, Logger)]
    training = Training(
        setup, check_integer("episodes", episodes, maximum=MOST_EPISODES), functions, loggers
    )
    if out is not None:
        training.open(out, resume, resume_hint)
    if progress:
        loggers.append(Console())
    training.go(checkpoint_every)
    return training.outcomes()


def paid_iterations(setup: Setup, episodes: int) -> int:
    """How many iterations a number of episodes pays for; at least one."""
    paid = setup.schedule.iterations(check_integer("episodes", episodes, maximum=MOST_EPISODES))
    if paid == 0:
        first = setup.schedule.episodes(1)
        raise ValueError(
            f"episodes must pay for a first batch of {first} trajectories, got {episodes}."
        )
    return paid


class Training:
    """A set of runs on their way; nothing is started before `go`."""

    def __init__(
        self,
        setup: Setup,
        episodes: int,
        functions: Sequence[Callable[[Progress], Any]],
        loggers: Sequence[Logger],
    ):
        self._setup, self._episodes, self._functions, self._loggers = (
            setup,
            episodes,
            functions,
            loggers,
        )
        self._last = paid_iterations(setup, episodes)
        self._records = Records(setup.record_every, setup.schedule)
        self._checkpoints: run_folder.Checkpoints | None = None
        self._metrics: MetricsFile | None = None
        self._saved: tuple[dict[str, np.ndarray], int] | None = None
        self._resume_hint = ""
        self._seconds = 0.0

    def open(self, folder: Path, resume: bool, resume_hint: str) -> None:
        """Keep checkpoints in `folder`, and go on from the last one if there is one."""
        config, arrays = setup_config(self._setup, self._episodes)
        run_folder.check_same_run(folder, config, arrays, resume)
        self._resume_hint = resume_hint
        self._checkpoints = run_folder.Checkpoints(folder / "checkpoint", config["fingerprint"])
        found, mark = self._checkpoints.load(), None
        if found is not None:
            saved, content = found
            runs, mark = (
                {name: array for name, array in saved.items() if name.startswith(".")},
                content["metrics"],
            )
            self._saved = runs, content["iteration"]
            records = {name: array for name, array in saved.items() if name not in runs}
            with _saying("the run cannot be resumed"):
                self._records.restore(records, content["iteration"], len(self._setup.runs))
            self._seconds = content["seconds"]
            if content["iteration"] > self._last:
                done = self._setup.schedule.episodes(content["iteration"])
                raise ValueError(
                    f"episodes is {self._episodes:,}, but the run in {folder} has {done:,} already."
                )
        remove_unfinished(folder)
        run_folder.write_config(folder, config, arrays)
        if len(self._setup.algorithms) == 1:
            self._metrics = MetricsFile(folder / RECORDS, self._setup.seeds, mark)
        for file in (SUMMARY, ASSESSMENT):  # the run is not finished any more
            (folder / file).unlink(missing_ok=True)

    def go(self, checkpoint_every: float) -> None:
        """Train until the budget is spent, a function says stop, or Ctrl-C."""
        self._executor = make_executor(self._setup)
        try:
            if self._saved is not None:
                self._restore(*self._saved)
            for logger in self._loggers:
                seeds = [seed for _, seed, _ in self._setup.runs]
                logger.open(seeds, self._episodes, self._records.table(complete=True))
            with noticed_signals() as noticed:
                with _ignored_failures(noticed):
                    self._loop(checkpoint_every, noticed)
                self._save()
            self._end_records()
        except EpisodeError as error:
            self._save()
            raise EpisodeError(f"{error} The training was {self._where_it_stopped()}") from error
        except OSError as error:
            raise self._not_written(error) from error
        finally:
            self._executor.close()
            for logger in self._loggers:
                logger.close()
        if noticed and noticed[0] == signal.SIGINT:
            raise KeyboardInterrupt(self._where_it_stopped())
        if noticed:
            raise Terminated(self._where_it_stopped(), noticed[0])

    def _restore(self, runs: dict[str, np.ndarray], iteration: int) -> None:
        with _saying("the run cannot be resumed"):
            self._executor.restore(runs, iteration)

    def _not_written(self, error: OSError) -> OSError:
        """The error for a disk that is full, or a folder that cannot be written any more."""
        if self._checkpoints is None or error.errno is None:
            return error
        kept = "the last checkpoint is as it was; once there is space again,"
        said = f"{error.strerror or error}: the training was {self._where_it_stopped(f'{kept} ')}"
        return OSError(error.errno, said, error.filename)

    def _loop(self, checkpoint_every: float, noticed: Sequence[int]) -> None:
        count, saved, over = 1, time.monotonic(), False
        start = saved - self._seconds
        while self._executor.iteration < self._last and not over and not noticed:
            began = time.monotonic()
            records = self._records.add(self._advance(count))
            took = time.monotonic() - began
            count = max(
                1, min(2 * count, int(count * SECONDS_A_CALL / max(took, 1e-3)), MAX_ITERATIONS)
            )
            if records is not None:
                if self._metrics is not None:
                    self._metrics.append(records)
                for logger in self._loggers:
                    logger.log(records)
                over = self._over(records)
            self._seconds = time.monotonic() - start
            if time.monotonic() - saved >= checkpoint_every:
                self._save()
                saved = time.monotonic()

    def _advance(self, count: int) -> dict[str, np.ndarray]:
        """Run iterations: never beyond the budget nor, where that matters, the end of a record."""
        count = min(count, self._last - self._executor.iteration)
        if self._functions or self._setup.exact:
            count = min(
                count,
                self._setup.record_every - self._executor.iteration % self._setup.record_every,
            )
        iterations = self._executor.advance(count)
        return iterations | self._exact_values(count) if self._setup.exact else iterations

    def _exact_values(self, count: int) -> dict[str, np.ndarray]:
        """The exact utility and the gap of every policy where a record or the budget ends, which is looked at last."""
        problem, iteration = self._setup.problem, self._executor.iteration
        columns = {name: np.full((count, self._executor.count), np.nan) for name in EXACT}
        if iteration % self._setup.record_every == 0 or iteration == self._last:
            tables = np.array(
                [probabilities(problem, policy) for policy in self._executor.outputs()]
            )
            for name, values in zip(EXACT, Evaluator(problem).values(tables), strict=True):
                columns[name][-1] = np.nan if values is None else values
        return columns if problem.utility.concave else {EXACT[0]: columns[EXACT[0]]}

    def _over(self, records: RecordTable) -> bool:
        """Call all functions; whether one of them returned True, be it Python's, NumPy's or JAX's."""
        if not self._functions:
            return False
        metrics = {"steps": records.steps[:, -1]} | {
            name: values[:, -1] for name, values in records.metrics.items()
        }
        progress = Progress(
            int(records.episodes[-1]), self._episodes, metrics, self._executor.outputs()
        )
        answers = [function(progress) for function in self._functions]
        return any(
            it is True or (getattr(it, "dtype", None) == np.bool_ and bool(it)) for it in answers
        )

    def _save(self) -> None:
        if self._checkpoints is not None:
            arrays = self._executor.arrays() | self._records.arrays()
            mark = None if self._metrics is None else self._metrics.mark()
            self._checkpoints.save(self._executor.iteration, self._seconds, mark, arrays)

    def _end_records(self) -> None:
        """Write down what is recorded of iterations that do not fill a record; it is taken back to go on."""
        unfinished = self._records.unfinished()
        if self._metrics is not None and unfinished is not None:
            self._metrics.append(unfinished)

    def _where_it_stopped(self, before: str = "") -> str:
        done = self._setup.schedule.episodes(self._executor.iteration)
        nothing = "nothing was saved, because no folder was given (out)"
        hint = f"{before}to go on: {self._resume_hint}" if self._resume_hint else nothing
        return f"stopped after {done:,} of {self._episodes:,} episodes; {hint}."

    def outcomes(self) -> list[Outcome]:
        """Return one outcome for each algorithm."""
        states = self._executor.states()
        models = [
            algorithm.model(self._setup.problem, state)
            for (algorithm, _, _), state in zip(self._setup.runs, states, strict=True)
        ]
        return make_outcomes(
            self._setup,
            self._episodes,
            self._records.table(),
            self._executor.outputs(),
            models,
            self._executor.status(),
            self._seconds,
        )


class Terminated(BaseException):
    """End of a training run by SIGTERM or SIGHUP, after its checkpoint. `number` is the signal."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.number = number


@contextmanager
def _ignored_failures(noticed: Sequence[int]) -> Generator[None]:
    """Ignore a failed episode after a signal: the terminal sends the signal to the processes of simulators, too."""
    try:
        yield
    except EpisodeError:
        if not noticed:
            raise


@contextmanager
def _saying(what: str) -> Generator[None]:
    """Put a few words before the sentence of what is refused."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None

"""The loop around the compiled program: budget, records, checkpoints, callbacks and Ctrl-C."""

import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from jaxtyping import Num

from occupax._forking import begin_jax_use
from occupax._signals import noticed_signals
from occupax.errors import OccupaxWarning, check_integer, check_number
from occupax.exact import Evaluator
from occupax.exact.probabilities import probabilities
from occupax.io import run_folder
from occupax.policies import Policy
from occupax.problem import Problem, ProblemSource
from occupax.samplers import EpisodeError, Sampler
from occupax.training.assessment import FILE
from occupax.training.execution import MAX_ITERATIONS, make_executor
from occupax.training.loggers import Console, Logger, MetricsFile
from occupax.training.records import EXACT, Records, RecordTable
from occupax.training.result import SUMMARY, Result, comparison
from occupax.training.setup import (
    AlgorithmSource,
    PolicySource,
    Setup,
    as_algorithm,
    given_episodes,
    make_setup,
    refuse_unless_path,
)

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
    """What was recorded last, by the names of `docs/records.md`; "steps" are those taken so far."""
    policies: Sequence[Policy]
    """What each run would return now."""


Callback = Logger | Callable[[Progress], Any]


def train(
    problem: ProblemSource,
    algorithm: AlgorithmSource = None,
    episodes: int | None = None,
    seeds: int | Iterable[int] = 1,
    seed: int = 0,
    policy: PolicySource = None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    record_every: int = 1,
    exact: bool = False,
    checkpoint_every: float = 30.0,
    sampler: Sampler | str = "auto",
) -> Result:
    """Train a policy for each seed.

    Args:
        problem: what to maximise, and where; an environment or its name stands for its discounted
            return.
        algorithm: how, for example `occupax.TSIVRPG()` or "tsivr-pg"; by default `occupax.PlugIn()`
            for tables of up to 128 states without constraints, and `occupax.REINFORCE()` otherwise,
            with the linear baseline where actions are real numbers and the goal is a return.
        episodes: trajectories each seed may sample; it must be given. Never exceeded: an iteration
            that does not fit is not begun.
        seeds: how many seeds, or which.
        seed: of everything: run k depends on (seed, k) alone.
        policy: an initialiser such as `occupax.policies.mlp()`, its name, "mlp", or a policy for
            all seeds to start from; by default a normal law for actions that are real numbers, a
            table for a tabular environment, and an MLP otherwise.
        callbacks: functions that are called with a `Progress` at every record, and end the training
            by returning True; or loggers such as `occupax.training.TensorBoard(folder)`.
        out: folder for configuration, metrics, checkpoints, policies and `report.html`.
        resume: go on from the last checkpoint in `out`, if there is one.
        progress: show a progress bar.
        record_every: iterations in a record.
        exact: record the exact utility and, for a concave utility, the certified gap of the present
            policies (tabular problems only). It takes time at every record: raise `record_every`.
        checkpoint_every: seconds between checkpoints.
        sampler: how trajectories are sampled: `occupax.samplers.Kernel()` or `Jax()` inside the
            compiled program, `Host(...)` in this process, batch by batch, `Ray(...)` on a cluster,
            one of your own, or the name of one. "auto" is the host for an environment of Gymnasium,
            the kernel where it can be used, and plain JAX otherwise.

    Returns:
        Records, policies and status of every seed.
    """
    begin_jax_use()
    refuse_unless_path(out)
    budget = given_episodes(episodes)
    chosen = None if algorithm is None else as_algorithm(algorithm)
    setup = make_setup(problem, [chosen], policy, seeds, seed, record_every, exact, sampler)
    folder = (
        None if out is None else Path(out).absolute()
    )  # callbacks may change the working directory
    hint = _resume_hint(setup.problem.env, out)
    with run_folder.locked(folder):
        result = run(setup, budget, callbacks, folder, resume, progress, checkpoint_every, hint)[0]
        if folder is not None:
            result.save_beside_records(folder)
            _write_pages(result, folder)
    return result


def _resume_hint(env: object, out: str | Path | None) -> str:
    """Return the instruction that resumes the run in `out`."""
    source = getattr(env, "source", "")
    if not isinstance(source, str):  # a function, which the command line cannot import
        return "repeat the command with --resume (in Python: resume=True)"
    command = f"occupax train --out {quote(str(out))} --resume"
    if ":" in source:  # the command imports the module of the environment only with this option
        command += " --trust"
    return f"{command} (in Python: resume=True)"


def _write_pages(result: Result, folder: Path) -> None:
    from occupax.analysis import report

    report.write_pages(result, folder)


def run(
    setup: Setup,
    episodes: int,
    callbacks: Sequence[Callback] = (),
    out: Path | None = None,
    resume: bool = False,
    progress: bool = True,
    checkpoint_every: float = 30.0,
    resume_hint: str = "",
) -> list[Result]:
    """Train every run of a set-up; return one result for each of its algorithms."""
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
    _warn_of_steep_utility(setup.problem)
    if out is not None:
        training.open(out, resume, resume_hint)
    if progress:
        loggers.append(Console())
    training.go(checkpoint_every)
    return training.results()


def _warn_of_steep_utility(problem: Problem) -> None:
    from occupax.analysis.diagnosis import steep_utility

    finding = steep_utility(problem)
    if finding is not None:
        warnings.warn(f"{finding.sentence} Try: {finding.advice}", OccupaxWarning, stacklevel=4)


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
        config, arrays = run_folder.make_config(self._setup, self._episodes)
        run_folder.refuse_another_run(folder, config, arrays, resume)
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
        run_folder.remove_unfinished(folder)
        run_folder.write_config(folder, config, arrays)
        if len(self._setup.algorithms) == 1:
            self._metrics = MetricsFile(folder / "metrics.csv", self._setup.seeds, mark)
        for file in (SUMMARY, FILE):  # the run is not finished any more
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

    def results(self) -> list[Result]:
        """One result for each algorithm."""
        table, seeds = self._records.table(), self._setup.seeds
        policies, status = self._executor.outputs(), self._executor.status()
        models = [
            algorithm.model(self._setup.problem, state)
            for (algorithm, _, _), state in zip(
                self._setup.runs, self._executor.states(), strict=True
            )
        ]
        compare = comparison(self._setup.problem, self._setup.policies[0])
        results: list[Result] = []
        for i, algorithm in enumerate(self._setup.algorithms):
            runs = slice(i * len(seeds), (i + 1) * len(seeds))
            config, arrays = run_folder.make_config(
                replace(self._setup, algorithms=(algorithm,)), self._episodes
            )
            metrics = {name: values[runs] for name, values in table.metrics.items()}
            recorded = (
                self._setup.problem,
                algorithm,
                seeds,
                table.episodes,
                table.steps[runs],
                metrics,
            )
            ended = tuple(policies[runs]), tuple(status[runs]), self._seconds
            results.append(
                Result(
                    *recorded, *ended, config, arrays, compare=compare, models=tuple(models[runs])
                )
            )
        return results


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

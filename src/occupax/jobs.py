"""Store of finished jobs: each job runs once, also among several processes and after a kill."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from occupax.algorithms import Budget
from occupax.io.files import read_arrays, write_arrays
from occupax.io.lock import hold_lock
from occupax.io.run_folder import versions
from occupax.progress import ProgressBar
from occupax.training.budgets import size, used
from occupax.training.loggers import Logger

MAX_PROGRAMS = 20
"""Number of jobs whose compiled programs stay in memory.

The programs of some hundred jobs exhaust the memory mappings that a process may have.
"""
SECONDS = "seconds"
"""Name of the fact with the processor time of a job, compilation included."""
FOLDERS = ("jobs", "locks")
"""Folders of a store."""


@dataclass(frozen=True)
class JobResult:
    """Result of a job: arrays, and facts that JSON can hold."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Work that takes a while and has a result worth keeping."""

    name: str
    """Name of the file with the result."""
    description: Mapping[str, Any]
    """All that the result depends on, as JSON can hold it, except the versions of the software."""
    expected_seconds: float
    work: Callable[[Logger], JobResult]
    """Function that computes the result. Its training runs report to the logger."""
    title: str = ""
    """Text of the progress bar, by default the name."""


class JobStore:
    """Folder with the results of jobs, which several processes may share."""

    def __init__(self, folder: Path):
        self._folder = folder

    def load(self, job: Job) -> JobResult | None:
        """Return the stored result of a job with the same description and versions, or None."""
        file = self._file(job)
        if not file.exists():
            return None
        arrays, content = read_arrays(file)
        if content.get("job") != _full_description(job):
            return None
        return JobResult(arrays, content["facts"])

    def run(self, jobs: Sequence[Job], progress: bool = True) -> dict[str, JobResult]:
        """Return the results of jobs by name. Stored results are not computed again.

        A job that another process works on is left for the end. Its result is then waited for.
        """
        results: dict[str, JobResult] = {}
        missing: list[Job] = []
        for job in jobs:
            stored = self.load(job)
            if stored is None:
                missing.append(job)
            else:
                results[job.name] = stored
        with _JobsBar(missing, progress) as bar:
            postponed: list[Job] = []
            for job in missing:
                result = self._run_locked(job, bar, wait=False)
                if result is None:
                    postponed.append(job)
                else:
                    results[job.name] = result
            for job in postponed:
                result = self._run_locked(job, bar, wait=True)
                if result is not None:
                    results[job.name] = result
        return {job.name: results[job.name] for job in jobs}

    def _run_locked(self, job: Job, bar: "_JobsBar", wait: bool) -> JobResult | None:
        """Return the result of a job, or None if another process works on it."""
        lock = self._folder / "locks" / job.name
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        with hold_lock(lock, wait) as is_held:
            if not is_held:
                return None
            logger = bar.begin(job)
            result = self.load(job)
            if result is None:
                result = self._compute(job, logger)
            bar.finish(job)
            return result

    def _compute(self, job: Job, logger: Logger) -> JobResult:
        start = time.process_time()
        result = job.work(logger)
        seconds = round(time.process_time() - start, 3)
        result = JobResult(result.arrays, {**result.facts, SECONDS: seconds})
        content = {"job": _full_description(job), "facts": result.facts}
        write_arrays(self._file(job), result.arrays, content)
        return result

    def _file(self, job: Job) -> Path:
        return self._folder / "jobs" / f"{job.name}.safetensors"


def file_name(*parts: str) -> str:
    """Return the words of some texts as the name of a file."""
    words = re.findall(r"[a-z0-9.]+", " ".join(parts).lower())
    return "-".join(words)


def versions_text() -> str:
    """Return the versions of the software as text."""
    named = versions()
    del named["float64"]
    return ", ".join(f"{name} {version}" for name, version in named.items())


def _full_description(job: Job) -> dict[str, Any]:
    return {**job.description, "versions": versions()}


class _JobsBar:
    """Progress bar of several jobs in units of expected seconds."""

    def __init__(self, jobs: Sequence[Job], shown: bool):
        self._count = len(jobs)
        self._started = 0
        self._finished_seconds = 0.0
        total = sum(job.expected_seconds for job in jobs)
        self._bar = ProgressBar(
            total, "", shown=shown, seconds_a_unit=1.0, seconds_between_lines=0.0
        )

    def __enter__(self) -> "_JobsBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self, job: Job) -> Logger:
        """Announce a job, and return the logger that moves the bar with its training."""
        self._started += 1
        title = job.title or job.name
        self._bar.update(self._finished_seconds, f"{self._started} of {self._count}: {title}")
        return _JobLogger(self._bar, self._finished_seconds, job.expected_seconds)

    def finish(self, job: Job) -> None:
        """Move the bar to the end of a job."""
        self._finished_seconds += job.expected_seconds
        self._bar.update(self._finished_seconds)
        if self._started % MAX_PROGRAMS == 0:
            jax.clear_caches()


class _JobLogger(Logger):
    """Logger that moves the bar along the training of one job."""

    def __init__(self, bar: ProgressBar, start: float, length: float):
        self._bar = bar
        self._start = start
        self._length = length
        self._budget = Budget(episodes=1)

    def open(self, seeds: Sequence[int], budget: Budget, table: Any) -> None:
        self._budget = budget

    def log(self, table: Any) -> None:
        fraction = used(self._budget, table) / size(self._budget)
        self._bar.update(self._start + self._length * fraction)

    def close(self) -> None:
        """Leave the bar open, because further jobs use the same one."""

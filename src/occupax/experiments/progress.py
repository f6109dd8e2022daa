"""Jobs that take a while, one after the other, with a progress bar over all of them."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from occupax.progress import ProgressBar
from occupax.training.loggers import Logger

KEPT = 20
"""Of how many jobs compiled programs are kept. Those of some hundreds take more pieces of memory
than a process may have, and then it dies."""


class Job(NamedTuple):
    """Work that takes a while, and trains something."""

    name: str
    expected_seconds: float
    work: Callable[[Logger], None]
    """Does it; the logger, which is given to its training, moves the bar."""


def share_jobs(jobs: Sequence[Job], locks: Path, shown: bool = True) -> None:
    """Run jobs, each of which keeps what comes of it in a file, beside other processes that may do the same ones.

    What another process is at is left to it, and waited for in the end: a job is asked to work once
    the other process has finished, and then finds the file.
    """
    taken: list[Job] = []

    def claim(job: Job, wait: bool, logger: Logger) -> None:
        with _claimed(locks / re.sub(r"\W+", "-", job.name), wait) as mine:
            job.work(logger) if mine else taken.append(job)

    run_jobs([job._replace(work=partial(claim, job, False)) for job in jobs], shown)
    run_jobs([job._replace(work=partial(claim, job, True)) for job in taken], shown)


@contextmanager
def _claimed(file: Path, wait: bool) -> Generator[bool]:
    """Whether no other process has the lock of a file; if so, or after waiting, it is held meanwhile."""
    import fcntl  # which other systems do not have

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def run_jobs(jobs: Sequence[Job], shown: bool = True) -> None:
    """Run one job after the other."""
    total, done = sum(job.expected_seconds for job in jobs), 0.0
    with ProgressBar(total, "", shown=shown, seconds_a_unit=1.0, seconds_between_lines=0.0) as bar:
        for number, job in enumerate(jobs, 1):
            bar.update(done, f"{number} of {len(jobs)}: {job.name}")
            job.work(_JobLogger(bar, done, job.expected_seconds))
            done += job.expected_seconds
            bar.update(done)
            if number % KEPT == 0:
                jax.clear_caches()


class _JobLogger(Logger):
    """Moves a bar along with the training of a job."""

    def __init__(self, bar: ProgressBar, start: float, length: float):
        self._bar, self._start, self._length, self._budget = bar, start, length, 1

    def open(self, seeds: Sequence[int], budget: int, table: Any) -> None:
        self._budget = budget

    def log(self, table: Any) -> None:
        self._bar.update(self._start + self._length * int(table.episodes[-1]) / self._budget)

    def close(self) -> None:
        """Leave the bar, which is not the logger's own."""

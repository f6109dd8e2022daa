"""The store of jobs: saved results, concurrent processes and a shared progress bar."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from occupax import jobs
from occupax.algorithms import Budget
from occupax.io.lock import hold_lock
from occupax.io.records import RecordTable
from occupax.jobs import MAX_PROGRAMS, SECONDS, Job, JobResult, JobStore


def make_job(name: str, work: Callable[..., object], seconds: float = 1.0, **description) -> Job:
    def run(logger) -> JobResult:
        result = work(logger)
        return result if isinstance(result, JobResult) else JobResult()

    return Job(name, description, seconds, run)


def run_all(folder: Path, *listed: Job) -> dict[str, JobResult]:
    return JobStore(folder).run(listed, progress=False)


def test_a_finished_job_is_not_done_again(tmp_path):
    calls = []

    def work(_):
        calls.append(1)
        return JobResult({"values": np.arange(3.0)}, {"label": "a"})

    first = run_all(tmp_path, make_job("a", work, size=3))["a"]
    again = run_all(tmp_path, make_job("a", work, size=3))["a"]
    assert len(calls) == 1
    for result in (first, again):
        np.testing.assert_array_equal(result.arrays["values"], [0.0, 1.0, 2.0])
        assert result.facts["label"] == "a"
        assert result.facts[SECONDS] >= 0.0


def test_another_description_or_version_makes_a_job_run_again(tmp_path, monkeypatch):
    calls = []
    for size in (3, 4, 4):
        run_all(tmp_path, make_job("a", lambda _: calls.append(1), size=size))
    assert len(calls) == 2
    monkeypatch.setattr(jobs, "versions", lambda: {"occupax": "another"})
    run_all(tmp_path, make_job("a", lambda _: calls.append(1), size=4))
    assert len(calls) == 3


def test_a_failed_job_leaves_the_finished_ones(tmp_path):
    calls = []

    def fail(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(tmp_path, make_job("a", lambda _: calls.append("a")), make_job("b", fail))
    run_all(
        tmp_path,
        make_job("a", lambda _: calls.append("again")),
        make_job("b", lambda _: calls.append("b")),
    )
    assert calls == ["a", "b"]


def test_a_job_of_another_process_is_left_to_it(tmp_path):
    """A locked job comes last, after the lock was released, and its stored result is used."""
    order: list[str] = []
    started, finish = threading.Event(), threading.Event()

    def other(_):
        started.set()
        assert finish.wait(10)
        order.append("other")

    def own(name, _):
        order.append(name)
        finish.set()

    thread = threading.Thread(target=run_all, args=(tmp_path, make_job("a", other)))
    thread.start()
    assert started.wait(10)
    results = run_all(tmp_path, *(make_job(name, partial(own, name)) for name in ("a", "b")))
    thread.join()
    assert order == ["b", "other"]
    assert list(results) == ["a", "b"]


def test_a_lock_is_held_by_one(tmp_path):
    with hold_lock(tmp_path) as first:
        assert first
        with hold_lock(tmp_path) as second:
            assert not second
    with hold_lock(tmp_path) as third:
        assert third


def test_programs_of_many_jobs_are_not_all_kept(tmp_path, monkeypatch):
    cleared = []
    # programs of other tests are not to be compiled again
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(True))
    names = [f"job-{i}" for i in range(MAX_PROGRAMS)]
    listed = [make_job(name, lambda _: None) for name in names]
    run_all(tmp_path / "one", *listed[1:])
    assert cleared == []
    run_all(tmp_path / "other", *listed)
    assert cleared == [True]


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test sets."""
    times = [1000.0]
    monkeypatch.setattr("occupax.progress.time.monotonic", lambda: times[0])
    return times


def test_jobs_are_announced_with_the_time_left(tmp_path, clock, capsys):
    seconds = (60.0, 30.0, 35.5)
    listed = [make_job(f"part {i}", lambda _: None, it) for i, it in enumerate(seconds)]
    JobStore(tmp_path / "one").run(listed)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 3: part 0 (ETA 2:05)",
        "2 of 3: part 1 (ETA 1:05)",
        "3 of 3: part 2 (ETA 0:35)",
    ]
    JobStore(tmp_path / "other").run([make_job("part", lambda _: None)], progress=False)
    JobStore(tmp_path / "other").run([])
    assert capsys.readouterr().err == ""


def test_the_time_left_follows_the_training(tmp_path, clock, capsys):
    table = RecordTable(np.array([50, 100]), np.zeros((1, 2), int), {})
    bars = []

    def first(logger):
        logger.open([0], Budget(200), table)
        clock[0] += 15
        logger.log(table)  # half of 10 expected seconds took 15: 30 for all
        bars.append(logger._bar._bar.tasks[0])
        assert (bars[0].completed, bars[0].fields["left"]) == (5, "ETA 2:15")
        clock[0] += 5  # 20 seconds for 10
        logger.close()

    listed = [make_job("first", first, 10.0)]
    listed += [make_job(name, lambda _: None, 20.0) for name in ("second", "third")]
    JobStore(tmp_path).run(listed)
    assert capsys.readouterr().err.splitlines()[1] == "2 of 3: second (ETA 1:20)"
    assert bars[0].completed == 50

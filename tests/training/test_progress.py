import io

import numpy as np
import pytest
import rich.console

from occupax.experiments.progress import Job, run_jobs
from occupax.progress import ProgressBar
from occupax.training.records import RecordTable


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test sets."""
    now = [1000.0]
    monkeypatch.setattr("occupax.progress.time.monotonic", lambda: now[0])
    return now


def test_without_a_terminal_there_is_a_line_now_and_then(clock, capsys):
    with ProgressBar(100, "begun", done=20) as bar:
        for done in (40, 60, 80):
            clock[0] += 10
            bar.update(done, f"{done} [of] 100")
            bar.update(done)  # without a text there is no line
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == ["60 [of] 100 (about 0:20 left)"]


def test_nothing_is_known_before_something_is_done(capsys):
    with ProgressBar(100, "begun", done=20, seconds_between_lines=0.0) as bar:
        bar.update(20, "still there")
    assert capsys.readouterr().err == "still there (time left unknown)\n"


def test_it_can_be_switched_off(capsys):
    with ProgressBar(2, "begun", shown=False, seconds_between_lines=0.0) as bar:
        bar.update(1, "going on")
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar(clock, monkeypatch):
    screen, make = io.StringIO(), rich.console.Console
    monkeypatch.setattr(
        rich.console,
        "Console",
        lambda **_: make(file=screen, force_terminal=True, width=100, color_system=None),
    )
    with ProgressBar(4, "0 of 4 trials") as bar:
        clock[0] += 30
        bar.update(1, "1 of 4 trials")
    assert "1 of 4 trials" in screen.getvalue()
    assert "about 1:30 left" in screen.getvalue()


def test_parts_are_announced_with_the_time_left(clock, capsys):
    done = []
    seconds = (60.0, 30.0, 35.5)
    run_jobs([Job(f"part {i}", it, lambda _, i=i: done.append(i)) for i, it in enumerate(seconds)])
    assert done == [0, 1, 2]
    assert capsys.readouterr().err.splitlines() == [
        "1 of 3: part 0 (about 2:05 left)",
        "2 of 3: part 1 (about 1:05 left)",
        "3 of 3: part 2 (about 0:35 left)",
    ]
    run_jobs([Job("part", 60.0, lambda _: None)], shown=False)
    run_jobs([])
    assert capsys.readouterr().err == ""


def test_the_time_left_follows_the_training(clock, capsys):
    table = RecordTable(np.array([50, 100]), np.zeros((1, 2), int), {})
    bars = []

    def first(logger):
        logger.open([0], 200, table)
        clock[0] += 15
        logger.log(table)  # half of it took 15 seconds: 30 for 10
        bars.append(logger._bar._bar.tasks[0])
        assert (bars[0].completed, bars[0].fields["left"]) == (5, "about 2:15 left")
        clock[0] += 5  # 20 seconds for 10
        logger.close()

    run_jobs(
        [
            Job("first", 10.0, first),
            Job("second", 20.0, lambda _: None),
            Job("third", 20.0, lambda _: None),
        ]
    )
    assert capsys.readouterr().err.splitlines()[1] == "2 of 3: second (about 1:20 left)"
    assert bars[0].completed == 50

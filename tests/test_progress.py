import io

import pytest
import rich.console

from occupax.progress import ProgressBar


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test sets."""
    times = [1000.0]
    monkeypatch.setattr("occupax.progress.time.monotonic", lambda: times[0])
    return times


def test_without_a_terminal_there_is_a_line_now_and_then(clock, capsys):
    with ProgressBar(100, "begun", completed=20) as bar:
        for done in (40, 60, 80):
            clock[0] += 10
            bar.update(done, f"{done} [of] 100")
            bar.update(done)  # without a text there is no line
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == ["60 [of] 100 (ETA 0:20)"]


def test_nothing_is_known_before_something_is_done(capsys):
    with ProgressBar(100, "begun", completed=20, seconds_between_lines=0.0) as bar:
        bar.update(20, "still there")
    assert capsys.readouterr().err == "still there (ETA unknown)\n"


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
    assert "ETA 1:30" in screen.getvalue()

"""Calls with invalid arguments and the error messages they raise.

A test file with cases runs itself in a process of its own, because users run the package without
the checks of types and shapes that pytest switches on and that would raise first.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import occupax as ox

LONGEST = 400
"""The longest messages list the known environments or quote the error of a user's function."""

Case = tuple[Callable[[], Any], tuple[str, ...]]
"""A call, and the fragments of the message that it raises."""
Outcome = tuple[str, str, bool]
"""The type of the error (ValueError for its subclasses, too), its message, and whether the package
itself raised it."""
Outcomes = dict[str, Outcome]


def outcome(call: Callable[[], Any]) -> Outcome:
    """Make a call and return the error that it raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        return kind, str(error), Path(ox.__file__).parent in Path(_innermost(error)).parents
    return "no error", "", False


def _innermost(error: BaseException) -> str:
    """Return the file whose code raised the error."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename


def print_outcomes(cases: Mapping[str, Case]) -> None:
    """Make the calls of all cases and print their outcomes as JSON."""
    found = {name: outcome(call) for name, (call, _) in cases.items()}
    sys.stdout.write("\n" + json.dumps(found))


def outcomes_of(file: str, environment: dict[str, str]) -> Outcomes:
    """Run a test file as a program and return the outcomes of its cases."""
    env = environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, file], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def assert_sentence(found: Outcome, fragments: tuple[str, ...]) -> None:
    """Assert a ValueError of the package whose message has all fragments."""
    kind, message, ours = found
    assert kind == "ValueError", message
    for fragment in fragments:
        assert fragment in message
    assert ours, f"raised outside the package: {message}"
    assert len(message) < LONGEST
    assert message.endswith((".", ")", "?"))
    assert "\n" not in message
    assert "Tracer" not in message
    assert "jax._src" not in message

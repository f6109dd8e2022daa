"""Commands of the command line, run in this process."""

import io
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from occupax import cli
from occupax.training.execution.compiled import CompiledExecutor

ICE = "FrozenLake-v1"

SIZES = ("--algorithm", "tsivr-pg", "--set", "snapshot_batch=6", "batch=4", "epoch_length=3")


def occupax(*arguments):
    """Run a command in this process: its exit code, and what it printed."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["occupax", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code or 0
    return code, out.getvalue(), err.getvalue()


def interrupt_after(calls, patch):
    """Press Ctrl-C while the engine is at work."""
    advance, left = CompiledExecutor.advance, iter(range(calls))

    def advance_and_interrupt(self, count):
        if next(left, None) is None:
            signal.raise_signal(signal.SIGINT)
        return advance(self, count)

    patch.setattr(CompiledExecutor, "advance", advance_and_interrupt)


OCCUPAX = Path(sys.executable).with_name("occupax")


def run(*arguments, cwd=None):
    """Run a command as users do, in a process of its own."""
    return subprocess.run(
        [OCCUPAX, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )

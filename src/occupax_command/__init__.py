"""Entry point of the command `occupax`.

This module lies outside the package, whose import takes seconds, so that a signal during the import
ends the command without a traceback.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Any

ENDING = [signal.SIGINT, signal.SIGTERM]
# `nohup` ignores SIGHUP
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
    ENDING.append(signal.SIGHUP)


def main() -> None:
    """Import and run the command line."""
    for number in ENDING:
        signal.signal(number, _end)
    from occupax.cli import main as run

    try:
        run()
    except SystemExit as end:
        if end.code in [128 + number for number in ENDING]:
            _leave(int(end.code))
        raise


def _end(number: int, _: Any) -> None:
    """End the process at once, without an exception.

    C++ extensions do not expect an exception while a module is half imported.
    """
    with suppress(OSError):  # the terminal may have been closed
        reason = "interrupted" if number == signal.SIGINT else "terminated"
        sys.stderr.write(f"occupax: {reason}.\n")
    _leave(128 + number)


def _leave(status: int) -> None:
    """End the process without waiting for threads inside a simulator or a compiler."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)

"""The command `occupax`, outside of the package, whose import takes seconds: a signal meanwhile is no traceback."""

import os
import signal
import sys
from contextlib import suppress
from typing import Any

ENDING = [signal.SIGINT, signal.SIGTERM]
if (
    hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
):  # `nohup` ignores it
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
    """End at once: where a module is half imported, what is written in C++ does not expect an exception."""
    with suppress(OSError):  # the terminal may have been closed
        sys.stderr.write(
            f"occupax: {'interrupted' if number == signal.SIGINT else 'terminated'}.\n"
        )
    _leave(128 + number)


def _leave(status: int) -> None:
    """End without waiting for threads, which may be inside of a simulator or a compiler."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)

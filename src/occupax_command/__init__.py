"""The command `occupax`, outside of the package, whose import takes seconds: an interrupt meanwhile is no traceback."""

import os
import signal
import sys
from typing import Any

STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


def main() -> None:
    """Import and run the command line."""
    signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGTERM, _end)
    from occupax.cli import main as run

    try:
        run()
    except SystemExit as end:
        if end.code in STOPPED:  # threads may be left behind, inside of a simulator or a compiler
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(end.code))
        raise


def _end(number: int, _: Any) -> None:
    """End at once: where a module is half imported, what is written in C++ does not expect an exception."""
    sys.stderr.write(f"occupax: {'interrupted' if number == signal.SIGINT else 'terminated'}.\n")
    sys.stderr.flush()
    os._exit(128 + number)

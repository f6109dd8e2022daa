"""Signals that end a training run or a command after the work under way."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


def ending_signals() -> list[signal.Signals]:
    """Return SIGINT, SIGTERM and, unless this process ignores it as under `nohup`, SIGHUP."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


@contextmanager
def noticed_signals() -> Generator[list[int]]:
    """Delay the first ending signal until the caller handles the signal.

    A second signal ends the process at once.
    The list receives the number of the signal.
    """
    noticed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noticed
        return
    before = {number: signal.getsignal(number) for number in ending_signals()}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def notice(number: int, _: Any) -> None:
        noticed.append(number)
        restore()

    for number in before:
        signal.signal(number, notice)
    try:
        yield noticed
    finally:
        restore()

"""Calls of foreign code that may never return."""

import contextvars
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import jax

Returned = TypeVar("Returned")


class HungError(Exception):
    """A call took longer than it may."""


class Watch:
    """Time limit of calls, by a thread that is abandoned once a call exceeds the limit.

    A thread cannot be stopped from outside: one that hangs is left behind, and ends with the
    process at the latest. Compiled code that keeps Python's global lock for itself stops the watch
    too.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._began: dict[threading.Thread, float] = {}
        self._left: set[threading.Thread] = set()

    @contextmanager
    def call(self) -> Generator[None]:
        """Limit the time of the enclosed call, which may hang."""
        thread = threading.current_thread()
        self._began[thread] = time.monotonic()
        try:
            yield
        finally:
            self._began.pop(thread, None)
            if thread in self._left:
                raise SystemExit  # end the abandoned thread without a traceback

    def run(self, function: Callable[[], Returned], whole: bool = False) -> Returned:
        """Run a function in the context of the caller. Raise `HungError` after the time limit.

        A function that is abandoned, after the time limit or by Ctrl-C, ends with its current call.
        """
        outcome: Future[Returned] = Future()
        double = bool(jax.config.read("jax_enable_x64"))  # worker threads do not inherit the flag

        def work() -> None:
            try:
                with jax.enable_x64(double), self.call() if whole else nullcontext():
                    returned = function()
                outcome.set_result(returned)
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
                outcome.set_exception(error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
        try:
            thread.start()
            while not wait([outcome], min(1.0, self.seconds / 4)).done:
                began = self._began.get(thread)
                if began is not None and time.monotonic() - began > self.seconds:
                    raise HungError
        finally:
            if not outcome.done():
                self._left.add(thread)
        return outcome.result()

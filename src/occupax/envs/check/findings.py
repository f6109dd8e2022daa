"""What a check of an environment finds."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from occupax._watch import HungError, Watch

TEXT_LENGTH = 160
"""How many characters of a value are shown."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with an environment."""

    severity: Literal["error", "warning"]
    """An error makes training impossible or wrong; a warning may."""
    what: str
    expected: str
    actual: str
    where: str
    """A part of the environment, or a call with what it takes to repeat it: episode, step, seed, action."""
    remedy: str


def text(value: Any) -> str:
    """A value as a short text on one line, even if it cannot describe itself."""
    try:
        words = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - the repr is that of the environment, and may raise anything
        words = f"an object of type {type(value).__name__}"
    return words if len(words) <= TEXT_LENGTH else words[: TEXT_LENGTH - 3] + "..."


def kind(value: Any) -> str:
    """The type of a value, and the value."""
    return f"{type(value).__name__} {text(value)}"


class BrokenError(Exception):
    """Something cannot be gone on with; why is among the findings."""


class Findings:
    """Collects findings: of each kind the first one that was met."""

    def __init__(self, timeout: float) -> None:
        """Each call into the environment may take `timeout` seconds."""
        self._first: dict[str, Finding] = {}
        self._watch = Watch(timeout)
        self._called = ("", "", "")
        self._before: tuple[Finding, ...] = ()

    def collect(self, check: Callable[[], None]) -> tuple[Finding, ...]:
        """Run a check that adds to these findings; return them, in the order in which they were made."""
        with suppress(BrokenError):
            try:
                self._watch.run(check)
            except HungError:
                self.add(*self._before, self._hang(*self._called))
        return tuple(self._first.values())

    def add(self, *findings: Finding) -> None:
        """Keep those that are of a new kind."""
        for finding in findings:
            self._first.setdefault(finding.what, finding)

    def call(self, function: Callable[[], Any], name: str, where: str, remedy: str, repeat: str = "") -> Any:
        """Call a function of the environment; if it hangs or raises anything, that is a finding.

        Args:
            function: what is called.
            name: what to call it.
            where: the place.
            remedy: what to do if it raises.
            repeat: how to repeat it, if `where` does not say so.
        """
        try:
            with self.watch(name, where, repeat or where):
                return function()
        except Exception as error:
            what = f"{name} raised {type(error).__name__}"
            self.add(Finding("error", what, "no exception", text(error), where, remedy))
            raise BrokenError from error

    def watch(self, name: str, where: str, repeat: str, *before: Finding) -> AbstractContextManager[None]:
        """Announce a call into the environment; if it hangs, that is found, after `before`, and the check ends."""
        self._called, self._before = (name, where, repeat), before
        return self._watch.call()

    def _hang(self, name: str, where: str, repeat: str) -> Finding:
        seconds = self._watch.seconds
        expected = f"an answer within {seconds:g} second{'' if seconds == 1 else 's'}"
        remedy = f"repeat it: {repeat}; if it is only slow, raise the timeout."
        return Finding("error", f"{name} hangs", expected, "no answer", where, remedy)

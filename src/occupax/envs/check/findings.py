"""What a check of an environment finds."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

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
        self._if_hung: tuple[Finding, ...] = ()

    def collect(self, check: Callable[[], None]) -> tuple[Finding, ...]:
        """Run a check that adds to these findings; return them, in the order in which they were made."""
        with suppress(BrokenError):
            try:
                self._watch.run(check)
            except HungError:
                self.add(*self._if_hung)
        return tuple(self._first.values())

    def add(self, *findings: Finding) -> None:
        """Keep those that are of a new kind."""
        for finding in findings:
            self._first.setdefault(finding.what, finding)

    def refuse(self, what: str, expected: str, actual: str, where: str, remedy: str) -> NoReturn:
        """Add an error that cannot be gone on with; the arguments are the fields of a `Finding`."""
        self.add(Finding("error", what, expected, actual, where, remedy))
        raise BrokenError

    def call(self, function: Callable[[], Any], name: str, where: str, remedy: str) -> Any:
        """Call a function of the environment; if it hangs or raises anything, that is a finding.

        Args:
            function: what is called.
            name: what to call it.
            where: the call as it is written.
            remedy: what to do if it raises.
        """
        try:
            with self.watch(name, where, where):
                return function()
        except Exception as error:
            self.add(raised(error, name, where, remedy))
            raise BrokenError from error

    def watch(self, name: str, where: str, repeat: str, *before: Finding) -> AbstractContextManager[None]:
        """Announce a call into the environment; if it hangs, that is found, after `before`, and the check ends."""
        seconds = self._watch.seconds
        expected = f"an answer within {seconds:g} second{'' if seconds == 1 else 's'}"
        remedy = f"repeat it: {repeat}; if it is only slow, raise the timeout."
        self._if_hung = (*before, Finding("error", f"{name} hangs", expected, "no answer", where, remedy))
        return self._watch.call()


def raised(error: BaseException | None, name: str, where: str, remedy: str) -> Finding:
    """The finding that a call raised an exception."""
    return Finding("error", f"{name} raised {type(error).__name__}", "no exception", text(error), where, remedy)

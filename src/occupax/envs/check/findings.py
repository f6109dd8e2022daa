"""What a check of an environment finds; `findings.toml` has the texts."""

import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from occupax.watch import HungError, Watch

TEXTS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
CHARACTERS_SHOWN = 160


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with an environment."""

    severity: Literal["error", "warning"]
    """An error makes training impossible or wrong; a warning may."""
    what: str
    expected: str
    actual: str
    where: str
    """A part of the environment, or a call with what it takes to repeat it: episode, step, seed,
    action."""
    remedy: str


def found(name: str, actual: str, where: str, /, **values: Any) -> Finding:
    """The finding of this name in `findings.toml`, with the values that stand there in braces."""
    texts: dict[str, Any] = {field: words.format(**values) for field, words in TEXTS[name].items()}
    return Finding(severity=texts.pop("severity", "error"), actual=actual, where=where, **texts)


def text(value: Any) -> str:
    """A value as a short text on one line, even if it cannot describe itself."""
    try:
        words = " ".join(repr(value).split())
    except BaseException:  # noqa: BLE001 - the repr is that of the environment, and may raise anything
        words = f"an object of type {type(value).__name__}"
    return words if len(words) <= CHARACTERS_SHOWN else words[: CHARACTERS_SHOWN - 3] + "..."


def kind(value: Any) -> str:
    """The type of a value, and the value."""
    return f"{type(value).__name__} {text(value)}"


class BrokenError(Exception):
    """Something cannot be gone on with; why is among the findings."""


class Findings:
    """Collects findings, of each kind the first one that was met; calls may take `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
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

    def refuse(self, name: str, actual: str, where: str, /, **values: Any) -> NoReturn:
        """Add what cannot be gone on with; the arguments are those of `found`."""
        self.add(found(name, actual, where, **values))
        raise BrokenError

    def call(self, function: Callable[[], Any], name: str, where: str, remedy: str) -> Any:
        """Call a function of the environment; if it hangs, or raises anything, for which `remedy` is, it is found."""
        with self.watch(name, where, where):
            try:
                return function()
            except BaseException as error:  # SystemExit, too
                self.add(raised(error, name, where, remedy))
                raise BrokenError from error

    def watch(
        self, name: str, where: str, repeat: str, *before: Finding
    ) -> AbstractContextManager[None]:
        """Announce a call into the environment; if it hangs, that is found, after `before`, and the check ends."""
        seconds = f"{self._watch.seconds:g} second{'' if self._watch.seconds == 1 else 's'}"
        self._if_hung = (
            *before,
            found("hangs", "no answer", where, name=name, seconds=seconds, repeat=repeat),
        )
        return self._watch.call()


def raised(error: BaseException | None, name: str, where: str, remedy: str) -> Finding:
    """The finding that a call raised an exception."""
    return found("raised", text(error), where, name=name, error=type(error).__name__, remedy=remedy)

"""What a check of an environment finds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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

    def __init__(self) -> None:
        self._first: dict[str, Finding] = {}

    def add(self, *findings: Finding) -> None:
        """Keep those that are of a new kind."""
        for finding in findings:
            self._first.setdefault(finding.what, finding)

    def call(self, function: Callable[[], Any], name: str, where: str, remedy: str) -> Any:
        """Call a function of the environment; if it raises anything, that is a finding."""
        try:
            return function()
        except Exception as error:
            what = f"{name} raised {type(error).__name__}"
            self.add(Finding("error", what, "no exception", text(error), where, remedy))
            raise BrokenError from error

    def all(self) -> tuple[Finding, ...]:
        """What was found, in the order in which it was."""
        return tuple(self._first.values())

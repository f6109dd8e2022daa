"""Issues that a check of an environment reports. `issues.toml` has the texts."""

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
MAX_CHARACTERS = 160


@dataclass(frozen=True)
class EnvIssue:
    """A fault of an environment."""

    severity: Literal["error", "warning"]
    """An error makes training impossible or wrong; a warning may."""
    what: str
    """The fault."""
    expected: str
    """Expected value or behaviour."""
    actual: str
    """Actual value or behaviour."""
    where: str
    """A part of the environment, or a call with all that is needed to repeat it: episode, step,
    seed, action."""
    remedy: str
    """Way to fix the fault."""


def make_issue(name: str, actual: str, where: str, /, **values: Any) -> EnvIssue:
    """Return the issue of a name in `issues.toml`, with values for the words in braces."""
    texts: dict[str, Any] = {field: words.format(**values) for field, words in TEXTS[name].items()}
    severity = texts.pop("severity", "error")
    return EnvIssue(severity, actual=actual, where=where, **texts)


def raised_issue(error: BaseException | None, name: str, where: str, remedy: str) -> EnvIssue:
    """Return the issue of a call that raised an exception."""
    kind = type(error).__name__
    return make_issue("raised", describe(error), where, name=name, error=kind, remedy=remedy)


def describe(value: Any) -> str:
    """Return a short text of a value on one line, even if its repr fails."""
    try:
        words = " ".join(repr(value).split())
    except BaseException:  # noqa: BLE001 - the repr is that of the environment, and may raise anything
        words = f"an object of type {type(value).__name__}"
    if len(words) > MAX_CHARACTERS:
        return words[: MAX_CHARACTERS - 3] + "..."
    return words


def describe_with_type(value: Any) -> str:
    """Return the type of a value, and a short text of the value."""
    return f"{type(value).__name__} {describe(value)}"


def episode_step(episode: int, seed: int, step: int = 0) -> str:
    """Return the words for a step of an episode. Step 0 is the reset."""
    call = f"step {step}" if step else "reset"
    return f"{call} of episode {episode}, seed {seed}"


class StopCheckError(Exception):
    """A check cannot continue. The reason is among the issues."""


class Issues:
    """Collector of issues, the first one of each kind. Calls may take `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self._first: dict[str, EnvIssue] = {}
        self._watch = Watch(timeout)
        self._if_hung: tuple[EnvIssue, ...] = ()

    def collect(self, check: Callable[[], None]) -> tuple[EnvIssue, ...]:
        """Run a check that adds to these issues. Return the issues in order."""
        with suppress(StopCheckError):
            try:
                self._watch.run(check)
            except HungError:
                self.add(*self._if_hung)
        return tuple(self._first.values())

    def add(self, *issues: EnvIssue) -> None:
        """Add issues of a new kind."""
        for issue in issues:
            self._first.setdefault(issue.what, issue)

    def stop(self, issue: EnvIssue) -> NoReturn:
        """Add an issue with which the check cannot continue."""
        self.add(issue)
        raise StopCheckError

    def call(self, function: Callable[[], Any], name: str, where: str, remedy: str) -> Any:
        """Call a function of the environment.

        A hang or an exception is an issue and ends the check.
        """
        with self.watch(name, where, where):
            try:
                return function()
            except BaseException as error:  # SystemExit, too
                self.add(raised_issue(error, name, where, remedy))
                raise StopCheckError from error

    def watch(
        self, name: str, where: str, repeat: str, *earlier: EnvIssue
    ) -> AbstractContextManager[None]:
        """Announce a call of the environment.

        A hang is an issue, after `earlier`, and ends the check.
        """
        plural = "" if self._watch.seconds == 1 else "s"
        seconds = f"{self._watch.seconds:g} second{plural}"
        hang = make_issue("hangs", "no answer", where, name=name, seconds=seconds, repeat=repeat)
        self._if_hung = (*earlier, hang)
        return self._watch.call()

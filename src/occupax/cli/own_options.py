"""`--step-size 0.1` and the like: a setting of the chosen algorithm as an option of its own."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from occupax.algorithms import ALGORITHMS
from occupax.cli.choices import Choices
from occupax.cli.names import algorithms_with
from occupax.errors import unknown
from occupax.training.setup import as_algorithm

SET = "--set"
RENAMED = {"given": "set", "progress": "no_progress"}
"""Arguments of commands whose options have another name."""
WITHOUT_NAME = {"choices", "env", "runs"}
"""Arguments that are no options of their own, or stand without a name."""


def with_settings(words: Sequence[str], commands: dict[str, Callable[..., None]]) -> list[str]:
    """Return a command line with hyperparameters as `--set name=value`.

    An option that the command does not have is refused, with the nearest one that it has.
    """
    command = commands.get(words[0]) if words else None
    if command is None:
        return list(words)
    options = {*inspect.signature(inspect.unwrap(command)).parameters, "help"}
    algorithm = None
    settings: dict[str, Any] = {}
    if "choices" in options:
        algorithm = _value(words, "--algorithm")
        settings = _settings_of_all() if algorithm is None else _settings_of(algorithm)
        options |= {field.name for field in dataclasses.fields(Choices)}
    own = {RENAMED.get(name, name) for name in options - WITHOUT_NAME}
    kept: list[str] = []
    given: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        field = name.removeprefix("--").replace("-", "_")
        if not name.startswith("--") or field in own:
            kept.append(word)
            continue
        if field not in settings:
            raise _no_such_option(name, field, own | settings.keys(), algorithm)
        value = value if equals else next(rest, "")
        if not value:
            raise ValueError(
                f"{name} must be followed by a value, as in {SET} {field}={settings[field]}."
            )
        given.append(f"{field}={value}")
    if not given:
        return kept
    place = kept.index(SET) + 1 if SET in kept else len(kept)
    return [*kept[:place], *([] if SET in kept else [SET]), *given, *kept[place:]]


def _no_such_option(name: str, field: str, known: set[str], algorithm: str | None) -> ValueError:
    others = [] if algorithm is None else algorithms_with(field)
    if others:
        return ValueError(
            f"{name} is not a setting of {algorithm}, but of --algorithm {' or '.join(others)}."
        )
    return unknown("option", name, (f"--{it.replace('_', '-')}" for it in known))


def _settings_of(name: str) -> dict[str, Any]:
    """The settings of an algorithm, with their defaults."""
    algorithm = as_algorithm(name)
    return {field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)}


def _settings_of_all() -> dict[str, Any]:
    """The settings of all algorithms, each with its default in the first that has it.

    The default algorithm depends on the problem, which is not made yet: `build` refuses settings
    that it does not have.
    """
    settings: dict[str, Any] = {}
    for name in ALGORITHMS:
        settings = _settings_of(name) | settings
    return settings


def _value(words: Sequence[str], option: str) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return None

"""`--step-size 0.1` and the like: a setting of the chosen algorithm as an option of its own."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from occupax.algorithms import ALGORITHMS
from occupax.cli.choices import DEFAULTS, Choices

SET = "--set"


def with_settings(words: Sequence[str], commands: dict[str, Callable[..., None]]) -> list[str]:
    """The words of a command line in which options that are settings of the algorithm became `--set name=value`."""
    command = commands.get(words[0]) if words else None
    options = {} if command is None else inspect.signature(inspect.unwrap(command)).parameters
    if "choices" not in options:
        return list(words)
    own = {*options, *(field.name for field in dataclasses.fields(Choices)), "set", "no_progress", "help"}
    settings = _settings_of(_value(words, "--algorithm") or DEFAULTS["algorithm"])
    kept: list[str] = []
    given: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        field = name.removeprefix("--").replace("-", "_")
        if not name.startswith("--") or field in own or field not in settings:
            kept.append(word)
            continue
        value = value if equals else next(rest, "")
        if not value:
            raise ValueError(f"{name} must be followed by a value, as in {SET} {field}={settings[field]}.")
        given.append(f"{field}={value}")
    if not given:
        return kept
    place = kept.index(SET) + 1 if SET in kept else len(kept)
    return [*kept[:place], *([] if SET in kept else [SET]), *given, *kept[place:]]


def _settings_of(name: str) -> dict[str, Any]:
    """The settings of an algorithm, with their defaults; none of one that is not known."""
    make = ALGORITHMS.get(name)
    return {} if make is None else {field.name: getattr(make(), field.name) for field in dataclasses.fields(make())}


def _value(words: Sequence[str], option: str) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return None

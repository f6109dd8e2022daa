"""Hyperparameters of the algorithms as options, such as `--step-size 0.1`."""

import dataclasses
import inspect
import re
from typing import Annotated, Any

import tyro

from occupax.algorithms import ALGORITHMS, Algorithm

SENTENCE = re.compile(r"(.*?)(?:\. |\.$|$)")


def algorithms_with(field: str) -> list[str]:
    """Return the names of the algorithms with a hyperparameter."""
    return [name for name, algorithm in ALGORITHMS.items() if field in _fields(algorithm)]


def _fields(algorithm: type[Algorithm[Any]]) -> list[str]:
    return [field.name for field in dataclasses.fields(algorithm)]


def describe_field(algorithm: type[Algorithm[Any]], field: str) -> str:
    """Return the first sentence about a hyperparameter in the docstring of an algorithm."""
    docstring = inspect.getdoc(algorithm) or ""
    arguments = docstring.partition("\nArgs:\n")[2]
    entry = re.search(rf"^ {{4}}{field}: (.*(?:\n {{8}}.*)*)", arguments, re.MULTILINE)
    if entry is None:
        return ""
    text = " ".join(entry[1].split())
    sentence = SENTENCE.match(text)
    return "" if sentence is None else sentence[1]


def _option(field: str) -> Any:
    names = algorithms_with(field)
    text = describe_field(ALGORITHMS[names[0]], field)
    owners = "all algorithms" if len(names) == len(ALGORITHMS) else ", ".join(names)
    option = tyro.conf.arg(metavar="VALUE", help=f"{text}.", help_behavior_hint=f"({owners})")
    return Annotated[str | None, option]


def _options() -> list[tuple[str, Any, Any]]:
    """Return name, type and default of an option for each hyperparameter of any algorithm."""
    names = [name for algorithm in ALGORITHMS.values() for name in _fields(algorithm)]
    return [(name, _option(name), None) for name in dict.fromkeys(names)]


Hyperparameters = dataclasses.make_dataclass("Hyperparameters", _options(), frozen=True)
"""Text of each hyperparameter of the command line. None stands for an option that was not set."""


def chosen_texts(hyperparameters: Any) -> dict[str, str]:
    """Return the hyperparameters that were set, by name."""
    texts = dataclasses.asdict(hyperparameters)
    return {name: text for name, text in texts.items() if text is not None}

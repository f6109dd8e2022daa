"""Option `--over name=value,value`: values of a sweep, parsed by the type of each setting."""

from collections.abc import Mapping
from typing import Any

from occupax.cli import settings
from occupax.cli.choices import TrainingArguments
from occupax.policies import ConfiguredInitialiser
from occupax.training.grid import PROBLEM_SETTINGS
from occupax.training.setup import policy_source


def read_values(
    training: TrainingArguments, texts: Mapping[str, list[str]]
) -> dict[str, list[Any]]:
    """Return the values to try for each setting of algorithm, policy and problem."""
    problem = training.problem
    targets: dict[str, Any] = {"": training.algorithm}
    targets["problem"] = {field: getattr(problem, field) for field in PROBLEM_SETTINGS}
    initialiser = policy_source(problem.env, training.options["policy"])
    if isinstance(initialiser, ConfiguredInitialiser):
        targets["policy"] = initialiser
    grid: dict[str, list[Any]] = {}
    for name, values in texts.items():
        grid[name] = [settings.read(set_name(name), text, targets) for text in values]
    return grid


def set_name(name: str) -> str:
    """Return the name of a swept setting as `--set` takes it."""
    return f"problem.{name}" if name in PROBLEM_SETTINGS else name


def set_text(point: Mapping[str, Any]) -> str:
    """Return a configuration of a sweep as words for `--set`."""
    words = [f"{set_name(name)}={value_text(value)}" for name, value in point.items()]
    return " ".join(words)


def value_text(value: Any) -> str:
    """Return a value as the command line takes it."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)

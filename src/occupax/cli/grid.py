"""`--over name=value,value`: the values that a sweep tries, by what each setting takes."""

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
    targets["problem"] = {name: getattr(problem, name) for name in PROBLEM_SETTINGS}
    initialiser = policy_source(problem.env, training.options["policy"])
    if isinstance(initialiser, ConfiguredInitialiser):
        targets["policy"] = initialiser
    return {
        name: [settings.read(set_name(name), text, targets) for text in values]
        for name, values in texts.items()
    }


def set_name(name: str) -> str:
    """Return the name of a swept setting as `--set` takes it."""
    return f"problem.{name}" if name in PROBLEM_SETTINGS else name


def set_text(point: Mapping[str, Any]) -> str:
    """Return a point of a sweep as words for `--set`."""
    return " ".join(f"{set_name(name)}={value_text(value)}" for name, value in point.items())


def value_text(value: Any) -> str:
    """Return a value as the command line takes it."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)

"""Types of options: readers of numbers, folders and horizons, and defaults in help texts."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from occupax.cli import settings


def number(kind: type[int] | type[float]) -> PrimitiveConstructorSpec[Any]:
    """Return the type of a numeric option. Values are read as by `--set`: 5e4 is an integer."""
    described, reader = settings.READERS[kind]

    def read(words: list[str]) -> Any:
        try:
            return reader(words[0])
        except ValueError:
            raise ValueError(f"must be {described}, got {words[0]!r}.") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="N" if kind is int else "X",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


def _read_folder(words: list[str]) -> Path:
    if not words[0].strip():
        raise ValueError(f"must be the path of a directory, got {words[0]!r}.")
    return Path(words[0])


FOLDER = PrimitiveConstructorSpec(
    nargs=1,
    metavar="FOLDER",
    instance_from_str=_read_folder,
    is_instance=lambda value: isinstance(value, Path),
    str_from_instance=lambda value: [str(value)],
)
"""Type of an option for a folder. An empty string is invalid, as it would be the current folder."""


def option_name(argument: str) -> str:
    """Return the option of an argument, as it is written on the command line."""
    name = "set" if argument == "assignments" else argument
    return "--" + name.replace("_", "-")


def shown(default: Any, metavar: str | None = None) -> Any:
    """Return the default and the metavar of an option in its help text."""
    hint = "" if default == "" else f"(default: {default})"
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)


INFINITE = "infinite"
"""Value of `--horizon` for an infinite horizon."""


def _read_horizon(words: list[str]) -> int | str:
    if words[0].lower() == INFINITE:
        return INFINITE
    try:
        return settings.READERS[int][1](words[0])
    except ValueError:
        raise ValueError(f"must be an integer or {INFINITE}, got {words[0]!r}.") from None


_HORIZON = PrimitiveConstructorSpec(
    nargs=1,
    metavar=f"N|{INFINITE}",
    instance_from_str=_read_horizon,
    is_instance=lambda value: isinstance(value, int) or value == INFINITE,
    str_from_instance=lambda value: [str(value)],
)
Horizon = Annotated[
    int | str | None,
    _HORIZON,
    shown(
        "the time limit of the environment; without one, "
        "until less than 1% of the discounted mass is left"
    ),
]
"""Option for the horizon, shared by all commands."""

Flag = Annotated[bool, shown("")]
"""Option without a value, off by default."""

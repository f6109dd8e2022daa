"""How options read their values, and what the help says of them."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from occupax.cli import settings


def number(kind: type[int] | type[float]) -> PrimitiveConstructorSpec[Any]:
    """How an option reads a number: as a setting does, so that 5e4 is a whole number."""
    described, reader = settings.READERS[kind]

    def read(words: list[str]) -> Any:
        try:
            return reader(words[0])
        except ValueError:
            raise ValueError(f"it takes {described}, got {words[0]!r}.") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="N" if kind is int else "X",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


def _read_folder(words: list[str]) -> Path:
    if not words[0].strip():
        raise ValueError(f"it takes the path of a folder, got {words[0]!r}.")
    return Path(words[0])


FOLDER = PrimitiveConstructorSpec(
    nargs=1,
    metavar="FOLDER",
    instance_from_str=_read_folder,
    is_instance=lambda value: isinstance(value, Path),
    str_from_instance=lambda value: [str(value)],
)
"""How an option reads a folder: an empty text would be the present one."""


def option_name(argument: str) -> str:
    """Return the option of an argument, as it is written on the command line."""
    name = "set" if argument == "given" else argument
    return "--" + name.replace("_", "-")


def shown(default: Any, metavar: str | None = None) -> Any:
    """Return the default and the metavar of an option in its help text."""
    return tyro.conf.arg(
        metavar=metavar, help_behavior_hint="" if default == "" else f"(default: {default})"
    )


INFINITE = "infinite"
"""How the command line calls the horizon without an end."""


def _read_horizon(words: list[str]) -> int | str:
    if words[0].lower() == INFINITE:
        return INFINITE
    try:
        return settings.READERS[int][1](words[0])
    except ValueError:
        raise ValueError(
            f"it takes a whole number of steps or {INFINITE}, got {words[0]!r}."
        ) from None


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
"""The option for the horizon, which all commands read alike."""

Flag = Annotated[bool, shown("")]
"""An option without a value, which is off unless it is given."""

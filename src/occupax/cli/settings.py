"""`--set name=value`: any field of what a command works with, by its name.

Targets are what is set, by prefix: "" is the algorithm, "utility" the utility, "policy" the
initialiser of policies, "problem" a dict of keyword arguments of `Problem`, and "env" a dict of
options for `make`, of any name. So `step_size=0.05` is a field of the algorithm, and
`utility.sigma=0.125` one of the utility.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from occupax.errors import unknown
from occupax.policies import ConfiguredInitialiser
from occupax.problem import Problem


def parse(words: Sequence[str]) -> dict[str, str]:
    """Split words of the form name=value."""
    settings: dict[str, str] = {}
    for word in words:
        name, _, value = (part.strip() for part in word.partition("="))
        if not name or not value:
            raise ValueError(f"a setting must have the form name=value, got {word!r}.")
        if name in settings:
            raise ValueError(
                f"setting {name!r} must be given once, "
                f"got the values {settings[name]!r} and {value!r}."
            )
        settings[name] = value
    return settings


def parse_lists(words: Sequence[str]) -> dict[str, list[str]]:
    """Split words of the form name=value,value,..."""
    return {
        name: [value.strip() for value in values.split(",")]
        for name, values in parse(words).items()
    }


def known(targets: dict[str, Any]) -> dict[str, Any]:
    """The name of each setting and its present value."""
    return {
        f"{prefix}.{field}" if prefix else field: value
        for prefix, target in targets.items()
        for field, value in _present(target).items()
    }


def read(name: str, text: str, targets: dict[str, Any]) -> Any:
    """The value that `text` stands for, by what the setting takes."""
    prefix, field = _find(name, targets)
    kinds = _kinds(prefix, targets[prefix], field)
    for kind, (_, reader) in READERS.items():
        if kind in kinds:
            with suppress(LookupError, ValueError):
                return reader(text)
    taken = " or ".join(described for kind, (described, _) in READERS.items() if kind in kinds)
    raise ValueError(f"setting {name!r} takes {taken}, got {text!r}.")


def apply(settings: dict[str, str], targets: dict[str, Any]) -> dict[str, Any]:
    """Return the targets with new values, checked by their constructors."""
    changes: dict[str, dict[str, Any]] = {}
    for name, text in settings.items():
        prefix, field = _find(name, targets)
        changes.setdefault(prefix, {})[field] = read(name, text, targets)
    changed = dict(targets)
    for prefix, new in changes.items():
        target = targets[prefix]
        values = {**_present(target), **new}
        if isinstance(target, ConfiguredInitialiser):
            changed[prefix] = target.with_settings(new)
        else:
            changed[prefix] = values if isinstance(target, dict) else type(target)(**values)
    return changed


def _find(name: str, targets: dict[str, Any]) -> tuple[str, str]:
    """The prefix of the target, and the field of it, that a name stands for."""
    prefix, _, field = name.rpartition(".")
    is_option = (
        prefix == "env" and field.isidentifier() and field != "source"
    )  # `make` calls its own argument so
    if prefix in targets and (is_option or field in _present(targets[prefix])):
        return prefix, field
    options = ["env.OPTION"] if "env" in targets else []
    raise unknown("setting", name, [*known(targets), *options])


def _present(target: Any) -> dict[str, Any]:
    if isinstance(target, dict):
        return target
    if isinstance(target, ConfiguredInitialiser):
        return target.settings
    return {field.name: getattr(target, field.name) for field in fields(target) if field.init}


def _constructor(target: Any) -> Any:
    """What the settings of a target are arguments of."""
    if isinstance(target, dict):
        return Problem.__init__
    return target.factory if isinstance(target, ConfiguredInitialiser) else type(target)


def _kinds(prefix: str, target: Any, field: str) -> set[Any]:
    """What a field may be: by its annotation or, if that leaves it open, by its present value."""
    if prefix == "env":
        return {kind for kind in READERS if isinstance(kind, type)}
    hint = get_type_hints(_constructor(target)).get(field)
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    allowed = {str if get_origin(kind) is Literal else kind for kind in kinds}
    if not allowed & READERS.keys():
        allowed = {type(_present(target)[field])}
    return {kind for kind in READERS if kind in allowed} or {str}


def _read_widths(text: str) -> tuple[int, ...]:
    return tuple(_read_whole(part) for part in text.split("x"))


def _read_whole(text: str) -> int:
    with suppress(ValueError):
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    NoneType: ("none", lambda text: {"none": None}[text.lower()]),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    int: ("a whole number", _read_whole),
    float: ("a number", float),
    Sequence[int]: ("whole numbers such as 64x64", _read_widths),
    str: ("a word", str),
}
"""How each kind is described and read; where several are allowed, the first that fits is taken."""

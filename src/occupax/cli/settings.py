"""Settings of the form `--set name=value` for algorithm, utility, policy, problem and environment.

A target is an object or a dict whose fields are set. Each target has a prefix: "" is the algorithm,
"utility" the utility, "policy" the initialiser of policies, "problem" a dict of keyword arguments
of `Problem`, and "env" a dict of options for `make`, of any name. For example, `step_size=0.05`
sets a field of the algorithm, and `utility.sigma=0.125` sets a field of the utility.
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
    settings: dict[str, list[str]] = {}
    for name, values in parse(words).items():
        settings[name] = [value.strip() for value in values.split(",")]
    return settings


def known(targets: dict[str, Any]) -> dict[str, Any]:
    """Return the current value of each setting of the targets by its name."""
    values: dict[str, Any] = {}
    for prefix, target in targets.items():
        for field, value in _current(target).items():
            name = f"{prefix}.{field}" if prefix else field
            values[name] = value
    return values


def read(name: str, text: str, targets: dict[str, Any]) -> Any:
    """Return the value of a setting, parsed from a string by the type of the setting."""
    prefix, field = _find(name, targets)
    kinds = _kinds(prefix, targets[prefix], field)
    allowed: list[str] = []
    for kind, (described, reader) in READERS.items():
        if kind in kinds:
            with suppress(LookupError, ValueError):
                return reader(text)
            allowed.append(described)
    raise ValueError(f"setting {name!r} must be {' or '.join(allowed)}, got {text!r}.")


def apply(settings: dict[str, str], targets: dict[str, Any]) -> dict[str, Any]:
    """Return the targets with new values, checked by their constructors."""
    changes: dict[str, dict[str, Any]] = {}
    for name, text in settings.items():
        prefix, field = _find(name, targets)
        changes.setdefault(prefix, {})[field] = read(name, text, targets)
    changed = dict(targets)
    for prefix, new in changes.items():
        target = targets[prefix]
        values = {**_current(target), **new}
        if isinstance(target, ConfiguredInitialiser):
            changed[prefix] = target.with_settings(new)
        elif isinstance(target, dict):
            changed[prefix] = values
        else:
            changed[prefix] = type(target)(**values)
    return changed


def _find(name: str, targets: dict[str, Any]) -> tuple[str, str]:
    """Return the prefix of the target and the field that the name of a setting consists of."""
    prefix, _, field = name.rpartition(".")
    if prefix in targets:
        is_option = prefix == "env" and field.isidentifier() and field not in RESERVED
        if is_option or field in _current(targets[prefix]):
            return prefix, field
    options = ["env.OPTION"] if "env" in targets else []
    raise unknown("setting", name, [*known(targets), *options])


def _current(target: Any) -> dict[str, Any]:
    """Return the current values of the fields of a target."""
    if isinstance(target, dict):
        return target
    if isinstance(target, ConfiguredInitialiser):
        return target.settings
    names = [field.name for field in fields(target) if field.init]
    return {name: getattr(target, name) for name in names}


def _constructor(target: Any) -> Any:
    """Return the function whose arguments are the fields of a target."""
    if isinstance(target, dict):
        return Problem.__init__
    if isinstance(target, ConfiguredInitialiser):
        return target.factory
    return type(target)


def _kinds(prefix: str, target: Any, field: str) -> set[Any]:
    """Return the types of a field: by its annotation or, if inconclusive, by its current value."""
    if prefix == "env":
        return {kind for kind in READERS if isinstance(kind, type)}
    hint = get_type_hints(_constructor(target)).get(field)
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    allowed: set[Any] = set()
    for kind in alternatives:
        is_literal = get_origin(kind) is Literal
        allowed.add(str if is_literal else kind)
    if not allowed & READERS.keys():
        allowed = {type(_current(target)[field])}
    return allowed & READERS.keys() or {str}


def _read_widths(text: str) -> tuple[int, ...]:
    return tuple(map(_read_integer, text.split("x")))


def _read_none(text: str) -> None:
    if text.lower() != "none":
        raise ValueError(text)


def _read_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_integer(text: str) -> int:
    with suppress(ValueError):
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    NoneType: ("none", _read_none),
    bool: ("true or false", _read_bool),
    int: ("an integer", _read_integer),
    float: ("a number", float),
    Sequence[int]: ("integers such as 64x64", _read_widths),
    str: ("a string", str),
}
"""Description and reader of each type. Of several allowed types, the first that fits is used."""
RESERVED = ("source",)
"""Names of arguments of `make` that are no options of an environment."""

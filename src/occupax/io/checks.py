"""Checks of objects restored from files: types, shapes, signs and ranges.

The method `__check_init__` of a class checks its values beyond the types of its fields. Equinox
calls it after every constructor, and `check_restored` after an instance is filled from a file.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
from jaxtyping import jaxtyped


def check_restored(instance: Any, values: Mapping[str, Any]) -> None:
    """Raise ValueError for restored values that the constructor would have rejected."""
    kind: Any = type(instance)
    hints = get_type_hints(kind)
    converters = _converters(kind)
    try:
        with jaxtyped("context"):  # an axis has one length in all fields that name it
            for name, value in values.items():
                _check_field(name, value, hints[name], converters.get(name))
        for base in kind.__mro__:
            if "__check_init__" in vars(base):
                vars(base)["__check_init__"](instance)
        if kind.__module__.startswith("equinox.nn."):
            _check_layer(kind, values)
    except Exception as error:  # checks raise anything for values that they do not expect
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"{kind.__name__} was saved with a value that it cannot have: {reason.rstrip('.')}."
        ) from error


def _converters(kind: Any) -> dict[str, Any]:
    """Return the converters of the fields of a module by name."""
    converters: dict[str, Any] = {}
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            converters[field.name] = field.metadata.get("converter")
    return converters


def _check_layer(kind: Any, values: Mapping[str, Any]) -> None:
    """Raise ValueError for a layer with other arrays than its constructor makes of its sizes."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name == "key":
            arguments[name] = jax.random.key(0)
        elif name in values and not eqx.is_array(values[name]):
            arguments[name] = values[name]
        elif name != "self" and _is_required(parameter):
            return
    if not any(map(eqx.is_array, values.values())):
        return
    layer = eqx.filter_eval_shape(partial(kind, **arguments))
    for name, value in values.items():
        expected = getattr(layer, name)
        if not hasattr(expected, "shape"):
            continue
        if not eqx.is_inexact_array(value) or value.shape != expected.shape:
            raise ValueError(
                f"{name} must be real numbers of shape {expected.shape}, got {_shown(value)}."
            )


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD


def _check_field(name: str, value: Any, hint: Any, converter: Callable[[Any], Any] | None) -> None:
    if not _fits(value, hint):
        raise ValueError(f"{name} must be {_name(hint)}, got {_shown(value)}.")
    if converter is not None and converter(value) != value:
        raise ValueError(f"{name} must be {converter(value)!r:.80}, got {value!r:.80}.")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value fits an annotation, True for unsupported annotations."""
    origin = get_origin(hint)
    parts = get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return (type(value), value) in [(type(part), part) for part in parts]
    if origin is tuple:
        return _fits_tuple(value, parts)
    if origin is Callable or hint is Callable:
        return callable(value)
    if hint is float:
        return type(value) in (float, int)
    if hint is int:
        return type(value) is int
    if hint in (None, NoneType):
        return value is None
    kind = origin or hint
    return not isinstance(kind, type) or isinstance(value, kind)


def _fits_tuple(value: Any, parts: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple):
        return False
    hints = parts
    if parts[1:] == (...,):
        hints = parts[:1] * len(value)
    return len(value) == len(hints) and all(map(_fits, value, hints))


def _shown(value: Any) -> str:
    """Return the type and the shape of an array, or the start of the text of another value."""
    if hasattr(value, "dtype"):
        return f"{value.dtype} of shape {value.shape}"
    return " ".join(repr(value).split())[:80]


def _name(hint: Any) -> str:
    if isinstance(hint, type):
        return hint.__name__
    return str(hint).replace("typing.", "")

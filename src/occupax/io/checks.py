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
    converters = (
        {}
        if isinstance(instance, tuple)
        else {it.name: it.metadata for it in dataclasses.fields(kind)}
    )
    try:
        with jaxtyped(
            "context"
        ):  # so that an axis has the same length in every field that names it
            for name, value in values.items():
                _check_field(name, value, hints[name], converters.get(name, {}).get("converter"))
        for base in kind.__mro__:
            if "__check_init__" in vars(base):
                vars(base)["__check_init__"](instance)
        if kind.__module__.startswith("equinox.nn."):
            _check_layer(kind, values)
    except Exception as error:  # a check was not written for everything that a file may hold
        said = (str(error).partition("\n")[0] or type(error).__name__).rstrip(".")
        raise ValueError(
            f"{kind.__name__} was saved with a value that it cannot have: {said}."
        ) from error


def _check_layer(kind: Any, values: Mapping[str, Any]) -> None:
    """Refuse a layer with other arrays than those that its constructor makes of its sizes."""
    wanted = inspect.signature(kind.__init__).parameters
    given = {
        name: values[name] for name in wanted if name in values and not eqx.is_array(values[name])
    }
    needed = {
        it.name
        for it in wanted.values()
        if it.default is it.empty and it.kind is not it.VAR_KEYWORD
    }
    if not needed <= {"self", "key", *given} or not any(
        eqx.is_array(value) for value in values.values()
    ):
        return
    keys = {"key": jax.random.key(0)} if "key" in wanted else {}
    made = eqx.filter_eval_shape(partial(kind, **given, **keys))
    for name, value in values.items():
        expected = getattr(made, name)
        if hasattr(expected, "shape") and not (
            eqx.is_inexact_array(value) and value.shape == expected.shape
        ):
            raise ValueError(
                f"{name} must be real numbers of shape {expected.shape}, got {_shown(value)}."
            )


def _check_field(name: str, value: Any, hint: Any, converter: Callable[[Any], Any] | None) -> None:
    if not _fits(value, hint):
        raise ValueError(f"{name} must be {_name(hint)}, got {_shown(value)}.")
    if converter is not None and converter(value) != value:
        raise ValueError(f"{name} must be {converter(value)!r:.80}, got {value!r:.80}.")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value fits an annotation, True for unsupported annotations."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin is tuple:
        kinds = (
            (parts[0],) * len(value) if isinstance(value, tuple) and parts[1:] == (...,) else parts
        )
        return (
            isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
        )
    if origin is Callable or hint is Callable:
        return callable(value)
    if hint is float:
        return type(value) in (float, int)
    if hint is int:
        return type(value) is int
    if hint in (None, NoneType):
        return value is None
    kind = origin or hint
    return isinstance(value, kind) if isinstance(kind, type) else True


def _shown(value: Any) -> str:
    """A value in a few words; of an array its type and its shape."""
    return (
        f"{value.dtype} of shape {value.shape}"
        if hasattr(value, "dtype")
        else " ".join(repr(value).split())[:80]
    )


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")

"""Values as JSON and named arrays. Nothing is pickled, and no code in a file is executed."""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from occupax.io.checks import check_restored
from occupax.policies import NAMED_FUNCTIONS

Arrays = dict[str, np.ndarray]

PACKAGES = ("equinox.nn", "occupax.policies")
"""Classes of these are found in the package, whichever of its modules they are defined in."""


def pack(value: Any) -> tuple[Any, Arrays]:
    """Return the description of a value as JSON, and its arrays.

    What cannot be restored (functions, classes of others) is called opaque and given by its name
    and what it holds.
    """
    arrays: Arrays = {}
    return _describe(value, "", arrays), arrays


def unpack(description: Any, arrays: Mapping[str, np.ndarray], like: Any = None) -> Any:
    """Restore a value from what `pack` made of it; NumPy arrays come back read-only.

    The functions and classes of `like`, a value of the same structure, stand in for the opaque
    parts.
    """
    try:
        return _build(description, arrays) if like is None else _fill(like, description, arrays)
    except RecursionError:
        raise ValueError("the description is nested too deeply to be a value of occupax.") from None


def named_arrays(tree: Any) -> Arrays:
    """The arrays of a tree by where they stand in it, such as ".policy.table"."""
    leaves, _ = tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {keystr(path): np.asarray(leaf) for path, leaf in leaves}


def with_arrays_of(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The tree with other arrays in the places that `named_arrays` gives them."""
    own, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(
        tree_map_with_path(lambda path, _: jnp.asarray(arrays[keystr(path)]), own), rest
    )


def _describe(value: Any, name: str, arrays: Arrays) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if isfinite(value) else {"float": str(value)}
    if _is_array(value):
        origin, arrays[name] = _read_array(value)
        return {"array": name, "kind": origin}
    known = [word for word, function in NAMED_FUNCTIONS.items() if value is function]
    if known:
        return {"function": known[0]}
    parts = {
        step: _describe(part, (name + step).removeprefix("."), arrays)
        for step, part in _parts(value)
    }
    kind: type = type(value)
    if kind in (list, tuple):
        return list(parts.values()) if kind is list else {"tuple": list(parts.values())}
    if kind is dict and all(type(key) is str for key in value):
        return {"dict": dict(zip(value, parts.values(), strict=True))}
    home = next(
        (home for home in PACKAGES if kind.__module__.startswith(f"{home}.")), kind.__module__
    )
    address = f"{home}.{kind.__qualname__}"
    if _find(address) is kind:
        return {
            "class": address,
            "fields": {step.removeprefix("."): part for step, part in parts.items()},
        }
    named = value if isinstance(getattr(value, "__qualname__", None), str) else kind
    opaque: dict[str, Any] = {"opaque": f"{named.__module__}.{named.__qualname__}"}
    return opaque | {"parts": parts} if parts else opaque


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, eqx.Module):
        held = vars(
            value
        )  # constants of the class are not the value's own, and JAX would tell the difference
        return [
            (f".{field.name}", held[field.name])
            for field in _saved_fields(value)
            if field.name in held
        ]
    if type(value) is dict:
        # other keys have no name that is the same in every process
        return [(f"[{key!r}]", part) for key, part in value.items() if type(key) in (str, int)]
    children, _ = tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    return [(keystr(path), part) for path, part in children if path]


def _saved_fields(kind: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class, except those marked as not saved."""
    return [field for field in dataclasses.fields(kind) if _is_saved(field)]


def _is_saved(field: dataclasses.Field[Any]) -> bool:
    return field.metadata.get("saved", True)


def _is_array(value: Any) -> bool:
    is_any = isinstance(value, (np.ndarray, np.generic, jax.Array))
    return is_any and any(
        jnp.issubdtype(value.dtype, kind) for kind in (np.number, np.bool_, jax.dtypes.prng_key)
    )


def _read_array(value: Any) -> tuple[str, np.ndarray]:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return f"key {jax.random.key_impl(value)}", np.asarray(jax.random.key_data(value))
    if isinstance(value, jax.Array):
        return "jax", np.asarray(value)
    return "scalar" if isinstance(value, np.generic) else "numpy", np.asarray(value)


def _build_array(name: str, kind: str, arrays: Mapping[str, np.ndarray]) -> Any:
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"the array {name!r} is missing.")
    if kind in ("numpy", "scalar"):
        view = array.view()
        view.setflags(write=False)
        return view if kind == "numpy" else view[()]
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise ValueError(f"the array {name!r} is {array.dtype} of JAX, which needs jax.enable_x64.")
    if kind == "jax":
        return jnp.array(array)
    try:
        return jax.random.wrap_key_data(jnp.array(array), impl=kind.removeprefix("key "))
    except (TypeError, ValueError):
        raise ValueError(f"the array {name!r} cannot be read as {kind!r}.") from None


def _build(description: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if description is None or isinstance(description, (bool, int, float, str)):
        return description
    match description:
        case list():
            return [_build(part, arrays) for part in description]
        case {"tuple": list() as parts}:
            return tuple(_build(part, arrays) for part in parts)
        case {"dict": dict() as parts}:
            return {key: _build(part, arrays) for key, part in parts.items()}
        case {"float": "inf" | "-inf" | "nan" as number}:
            return float(number)
        case {"array": str() as name, "kind": str() as kind}:
            return _build_array(name, kind, arrays)
        case {"function": str() as name} if name in NAMED_FUNCTIONS:
            return NAMED_FUNCTIONS[name]
        case {"class": str() as address, "fields": dict() as fields}:
            return _build_instance(address, fields, arrays)
        case {"opaque": what}:
            raise ValueError(
                f"{what!s:.80} cannot be restored from a file; pass like=, a value of the same "
                "structure."
            )
        case _:
            raise ValueError(f"the description holds {description!r:.80}, which is not understood.")


def _build_instance(address: str, fields: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Return a module or a named tuple, filled and checked without its constructor."""
    kind: Any = _find(address)
    if kind is None:
        raise ValueError(f"{address!r:.80} is not a class that occupax restores.")
    parts = () if issubclass(kind, tuple) else _saved_fields(kind)
    names = [*getattr(kind, "_fields", ()), *(field.name for field in parts)]
    constants = {field.name for field in parts if not field.init and hasattr(kind, field.name)}
    if fields.keys() | constants != set(names):
        raise ValueError(
            f"{address} must have the fields {sorted(names)}, "
            f"but the description has {sorted(fields)}."
        )
    values = {name: _build(fields[name], arrays) for name in names if name in fields}
    if issubclass(kind, tuple):
        instance: Any = tuple.__new__(kind, values.values())
    else:
        instance = object.__new__(kind)
        others = {
            field.name: field.default for field in dataclasses.fields(kind) if not _is_saved(field)
        }
        for name, value in {**others, **values}.items():
            object.__setattr__(instance, name, value)
    check_restored(instance, values)
    return instance


def _find(address: str) -> type | None:
    """Return the class of an address, None for a class that files may not name."""
    parts = re.fullmatch(r"(equinox\.nn|occupax(?:\.\w+)*)\.(\w+)", address)
    if parts is None or "__" in address:
        return None
    home, name = parts.groups()
    try:
        found = vars(importlib.import_module(home)).get(name)
    except ImportError:
        return None
    if not isinstance(found, type) or inspect.isabstract(found):
        return None
    if found.__module__ != home and not (
        home in PACKAGES and found.__module__.startswith(f"{home}.")
    ):
        return None
    return (
        found
        if issubclass(found, eqx.Module) or (issubclass(found, tuple) and hasattr(found, "_fields"))
        else None
    )


def _fill(like: Any, description: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    expected, own = pack(like)
    place = difference(expected, description)
    if place is not None:
        raise ValueError(
            f"like must have the structure of what was saved, but differs at {place or 'the top'}."
        )

    def restore(path: Any, leaf: Any) -> Any:
        name = keystr(path).removeprefix(".")
        return _build_array(name, _read_array(leaf)[0], arrays) if _is_array(leaf) else leaf

    for name, array in own.items():
        found = _build_array(name, "numpy", arrays)
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            wanted, given = (f"{it.dtype} of shape {it.shape}" for it in (found, array))
            raise ValueError(
                f"like must hold {wanted} at {name}, as it was saved, but holds {given}."
            )
    filled = tree_map_with_path(restore, like)
    for name, array in pack(filled)[1].items():
        if array.tobytes() != arrays[name].tobytes():
            raise ValueError(
                f"like must hold the saved numbers at {name} already, because it is static there."
            )
    return filled


def difference(left: Any, right: Any, place: str = "") -> str | None:
    """Return the first difference of two descriptions, except in the names of opaque parts."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        pairs = [(key, left[key], right[key]) for key in left if key != "opaque"]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = list(zip(range(len(left)), left, right, strict=True))
    else:
        return None if left == right and type(left) is type(right) else place
    places = (difference(a, b, f"{place}/{key}") for key, a, b in pairs)
    return next((found for found in places if found is not None), None)


def unpack_as(kind: type, description: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Restore a value of a class that `pack` could only describe, by its constructor."""
    parts = {name.removeprefix("."): part for name, part in description.get("parts", {}).items()}
    wanted = {field.name for field in dataclasses.fields(kind) if field.init}
    if not parts.keys() <= wanted:
        raise ValueError(
            f"{kind.__name__} has no field {min(parts.keys() - wanted)!r}, which was saved."
        )
    return kind(**{name: _build(part, arrays) for name, part in parts.items()})


def class_name(description: Any) -> str:
    """The name of what is described, without its module and its fields."""
    parts = description if isinstance(description, dict) else {}
    names = (parts.get(kind) for kind in ("class", "opaque", "function"))
    return next((name.rpartition(".")[2] for name in names if isinstance(name, str)), "unknown")

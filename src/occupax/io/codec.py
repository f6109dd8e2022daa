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
"""Packages whose classes are addressed by the package, whichever module defines them."""
ARRAY_DTYPES = (np.number, np.bool_, jax.dtypes.prng_key)


def pack(value: Any) -> tuple[Any, Arrays]:
    """Return the description of a value as JSON, and its arrays.

    Equal values have equal descriptions in every process. A function, or a class outside of this
    package, cannot be restored. Its description, called opaque, has its name and its parts.
    """
    arrays: Arrays = {}
    return _describe(value, "", arrays), arrays


def unpack(description: Any, arrays: Mapping[str, np.ndarray], like: Any = None) -> Any:
    """Return the value that `pack` described, with read-only NumPy arrays.

    Args:
        description: description as JSON.
        arrays: arrays by name.
        like: value of the same structure, whose functions and classes replace the opaque parts.
    """
    try:
        if like is None:
            return _build(description, arrays)
        return _fill(like, description, arrays)
    except RecursionError:
        raise ValueError("the description is nested too deeply to be a value of occupax.") from None


def named_arrays(tree: Any) -> Arrays:
    """Return the arrays of a tree by their paths, such as ".policy.table"."""
    leaves, _ = tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {keystr(path): np.asarray(leaf) for path, leaf in leaves}


def with_arrays_of(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return a tree with other arrays at the paths of `named_arrays`."""
    own_arrays, static = eqx.partition(tree, eqx.is_array)

    def replace(path: Any, _: Any) -> Any:
        return jnp.asarray(arrays[keystr(path)])

    return eqx.combine(tree_map_with_path(replace, own_arrays), static)


def _describe(value: Any, name: str, arrays: Arrays) -> Any:
    """Return the description of a value, and add its arrays with names that begin with `name`."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return _describe_float(value)
    if _is_array(value):
        kind, arrays[name] = _read_array(value)
        return {"array": name, "kind": kind}
    for word, function in NAMED_FUNCTIONS.items():
        if value is function:
            return {"function": word}
    parts: dict[str, Any] = {}
    for step, part in _parts(value):
        parts[step] = _describe(part, (name + step).removeprefix("."), arrays)
    return _describe_node(value, parts)


def _describe_float(value: float) -> Any:
    if isfinite(value):
        return value
    return {"float": str(value)}


def _describe_node(value: Any, parts: dict[str, Any]) -> Any:
    """Return the description of a value from the descriptions of its parts."""
    kind: type = type(value)
    if kind is list:
        return list(parts.values())
    if kind is tuple:
        return {"tuple": list(parts.values())}
    if kind is dict and set(map(type, value)) <= {str}:
        return {"dict": dict(zip(value, parts.values(), strict=True))}
    address = _address(kind)
    if _find(address) is kind:
        fields = {step.removeprefix("."): part for step, part in parts.items()}
        return {"class": address, "fields": fields}
    named = value
    if not isinstance(getattr(value, "__qualname__", None), str):
        named = kind
    opaque: dict[str, Any] = {"opaque": f"{named.__module__}.{named.__qualname__}"}
    if parts:
        opaque["parts"] = parts
    return opaque


def _address(kind: type) -> str:
    home = kind.__module__
    for package in PACKAGES:
        if home.startswith(f"{package}."):
            home = package
    return f"{home}.{kind.__qualname__}"


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return the parts of a value with their steps in a path."""
    if isinstance(value, eqx.Module):
        own = vars(value)  # without constants of the class, in which descriptions would differ
        names = [field.name for field in _saved_fields(value) if field.name in own]
        return [(f".{name}", own[name]) for name in names]
    parts: list[tuple[str, Any]] = []
    if type(value) is dict:
        for key, part in value.items():
            if type(key) in (str, int):  # names of other keys differ between processes
                parts.append((f"[{key!r}]", part))
        return parts
    children, _ = tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    for path, part in children:
        if path:
            parts.append((keystr(path), part))
    return parts


def _saved_fields(kind: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class, except those marked as not saved."""
    return list(filter(_is_saved, dataclasses.fields(kind)))


def _is_saved(field: dataclasses.Field[Any]) -> bool:
    return field.metadata.get("saved", True)


def _is_array(value: Any) -> bool:
    if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return False
    return any(jnp.issubdtype(value.dtype, dtype) for dtype in ARRAY_DTYPES)


def _read_array(value: Any) -> tuple[str, np.ndarray]:
    """Return the kind of an array, and its entries."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return f"key {jax.random.key_impl(value)}", np.asarray(jax.random.key_data(value))
    kind = "numpy"
    if isinstance(value, jax.Array):
        kind = "jax"
    elif isinstance(value, np.generic):
        kind = "scalar"
    return kind, np.asarray(value)


def _build_array(name: str, kind: str, arrays: Mapping[str, np.ndarray]) -> Any:
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"the array {name!r} is missing.")
    if kind in ("numpy", "scalar"):
        view = array.view()
        view.setflags(write=False)
        if kind == "scalar":
            return view[()]
        return view
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
            return tuple(_build(parts, arrays))
        case {"dict": dict() as parts}:
            return _build_dict(parts, arrays)
        case {"float": "inf" | "-inf" | "nan" as number}:
            return float(number)
        case {"array": str() as name, "kind": str() as kind}:
            return _build_array(name, kind, arrays)
        case {"function": str() as name} if name in NAMED_FUNCTIONS:
            return NAMED_FUNCTIONS[name]
        case {"class": str() as address, "fields": dict() as fields}:
            return _build_instance(address, fields, arrays)
        case {"opaque": name}:
            raise ValueError(
                f"{name!s:.80} cannot be restored from a file; pass like=, a value of the same "
                "structure."
            )
        case _:
            raise ValueError(f"the description holds {description!r:.80}, which is not understood.")


def _build_dict(parts: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: _build(part, arrays) for name, part in parts.items()}


def _build_instance(address: str, fields: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Return a module or a named tuple, filled and checked without its constructor."""
    kind: Any = _find(address)
    if kind is None:
        raise ValueError(f"{address!r:.80} is not a class that occupax restores.")
    names = _field_names(kind)
    constants = _constant_names(kind)
    if fields.keys() | constants != set(names):
        raise ValueError(
            f"{address} must have the fields {sorted(names)}, "
            f"but the description has {sorted(fields)}."
        )
    ordered = {name: fields[name] for name in names if name in fields}
    values = _build_dict(ordered, arrays)
    if issubclass(kind, tuple):
        instance: Any = tuple.__new__(kind, values.values())
    else:
        instance = object.__new__(kind)
        for field in dataclasses.fields(kind):
            if not _is_saved(field):
                object.__setattr__(instance, field.name, field.default)
        for name, value in values.items():
            object.__setattr__(instance, name, value)
    check_restored(instance, values)
    return instance


def _field_names(kind: Any) -> list[str]:
    """Return the names of the fields of a named tuple or of the saved fields of a module."""
    if hasattr(kind, "_fields"):
        return list(kind._fields)
    return [field.name for field in _saved_fields(kind)]


def _constant_names(kind: Any) -> set[str]:
    """Return the names of the fields whose values belong to the class."""
    if issubclass(kind, tuple):
        return set()
    names: set[str] = set()
    for field in _saved_fields(kind):
        if not field.init and hasattr(kind, field.name):
            names.add(field.name)
    return names


def _find(address: str) -> type | None:
    """Return the class of an address, None for a class that files may not name."""
    parts = re.fullmatch(r"(equinox\.nn|occupax(?:\.\w+)*)\.(\w+)", address)
    if parts is None or "__" in address:
        return None
    home, name = parts.groups()
    try:
        kind = vars(importlib.import_module(home)).get(name)
    except ImportError:
        return None
    if not isinstance(kind, type) or inspect.isabstract(kind) or _address(kind) != address:
        return None
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if is_named_tuple or issubclass(kind, eqx.Module):
        return kind
    return None


def _fill(like: Any, description: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return a copy of `like` with the arrays of a description of the same structure."""
    expected, own_arrays = pack(like)
    path = difference(expected, description)
    if path is not None:
        raise ValueError(
            f"like must have the structure of what was saved, but differs at {path or 'the top'}."
        )
    for name, array in own_arrays.items():
        saved = _shown(_build_array(name, "numpy", arrays))
        own = _shown(array)
        if saved != own:
            raise ValueError(f"like must hold {saved} at {name}, as it was saved, but holds {own}.")

    def restore(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        kind, _ = _read_array(leaf)
        return _build_array(keystr(path).removeprefix("."), kind, arrays)

    filled = tree_map_with_path(restore, like)
    _, filled_arrays = pack(filled)
    for name, array in filled_arrays.items():
        if array.tobytes() != arrays[name].tobytes():
            raise ValueError(
                f"like must hold the saved numbers at {name} already, because it is static there."
            )
    return filled


def _shown(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def difference(left: Any, right: Any, path: str = "") -> str | None:
    """Return the path to the first difference of two descriptions, or None.

    Names of opaque parts may differ, because functions and scripts are renamed.
    """
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        pairs.extend((key, left[key], right[key]) for key in left if key != "opaque")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs.extend(zip(range(len(left)), left, right, strict=True))
    elif left != right or type(left) is not type(right):
        return path
    for step, left_part, right_part in pairs:
        different = difference(left_part, right_part, f"{path}/{step}")
        if different is not None:
            return different
    return None


def unpack_as(kind: type, description: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the instance of a class that a description calls opaque, made by the constructor."""
    fields = {name.removeprefix("."): part for name, part in description.get("parts", {}).items()}
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    for name in sorted(fields):
        if name not in names:
            raise ValueError(f"{kind.__name__} has no field {name!r}, which was saved.")
    return kind(**_build_dict(fields, arrays))


def class_name(description: Any) -> str:
    """Return the name of a described object, without its module and its fields."""
    if isinstance(description, dict):
        for key in ("class", "opaque", "function"):
            name = description.get(key)
            if isinstance(name, str):
                return name.rpartition(".")[2]
    return "unknown"

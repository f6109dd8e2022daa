"""Values as JSON and named arrays, and files of both: nothing is pickled, and nothing in a file is ever executed.

A file is there as a whole or not at all, with a checksum, and equal content gives equal bytes in
every process.
"""

import dataclasses
import importlib
import inspect
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from occupax.io.checks import check_restored
from occupax.policies import ACTIVATIONS

Arrays = dict[str, np.ndarray]

UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")
"""The names of files that are being written."""
CONTENT, CHECKSUM = "occupax", "occupax-sha256"
IDENTITY = inspect.signature(eqx.nn.MLP).parameters["final_activation"].default
FUNCTIONS: dict[str, Callable[..., Any]] = {**ACTIVATIONS, "identity": IDENTITY}
"""The functions that are saved by name."""
PACKAGES = ("equinox.nn", "occupax.policies")
"""Classes of these are found in the package, whichever of its modules they are defined in."""


def pack(value: Any) -> tuple[Any, Arrays]:
    """Describe a value as JSON and the arrays it holds; equal values have equal descriptions in every process.

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
    known = [word for word, function in FUNCTIONS.items() if value is function]
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
    """Return the fields of a class, without those that say of themselves that they are not saved."""
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
        case {"function": str() as name} if name in FUNCTIONS:
            return FUNCTIONS[name]
        case {"class": str() as address, "fields": dict() as fields}:
            return _build_instance(address, fields, arrays)
        case {"opaque": what}:
            raise ValueError(
                f"{what!s:.80} cannot be restored from a file; pass like=, a value of the same structure."
            )
        case _:
            raise ValueError(f"the description holds {description!r:.80}, which is not understood.")


def _build_instance(address: str, fields: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Fill a module or a named tuple without running its constructor, and check what it would have checked."""
    kind: Any = _find(address)
    if kind is None:
        raise ValueError(f"{address!r:.80} is not a class that occupax restores.")
    parts = () if issubclass(kind, tuple) else _saved_fields(kind)
    names = [*getattr(kind, "_fields", ()), *(field.name for field in parts)]
    constants = {field.name for field in parts if not field.init and hasattr(kind, field.name)}
    if fields.keys() | constants != set(names):
        raise ValueError(
            f"{address} must have the fields {sorted(names)}, but the description has {sorted(fields)}."
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
    """The class of an address, if it is one that a file may name: a module or a named tuple of ours, or a layer."""
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
    """Where two descriptions first differ; the names of opaque parts may, since functions and scripts are renamed."""
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


def write(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> None:
    """Write arrays and JSON as one safetensors file."""
    text = json.dumps(metadata, allow_nan=False)
    # safetensors writes the memory as it lies, and would take the columns of a transposed array for
    # its rows
    plain = {
        name: np.asarray(array, array.dtype.newbyteorder("="), order="C")
        for name, array in arrays.items()
    }
    try:
        content = save(plain, {CONTENT: text, CHECKSUM: checksum(text, plain)})
    except SafetensorError as error:
        raise ValueError(f"arrays must be of a type that safetensors can hold: {error}.") from error
    write_bytes(path, _with_sorted_header(content))


def write_text(path: str | Path, text: str) -> None:
    """Write a text file."""
    write_bytes(path, text.encode())


def read(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and the JSON of a file that `write` wrote, and refuse any other."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{file} {'is not a file' if file.exists() else 'does not exist'}.")
    try:
        with safe_open(file, "numpy") as opened:
            metadata = opened.metadata() or {}
            ours = {CONTENT, CHECKSUM} <= metadata.keys()
            arrays: dict[str, np.ndarray] = {}
            if ours:
                for name in opened.keys():  # noqa: SIM118
                    arrays[name] = opened.get_tensor(name)
        content = json.loads(metadata[CONTENT]) if ours else None
    except Exception as error:
        raise ValueError(f"{file} is damaged or not a safetensors file: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is a safetensors file, but not one that occupax wrote.")
    if checksum(metadata[CONTENT], arrays) != metadata[CHECKSUM]:
        raise ValueError(
            f"{file} was changed after it was written: its checksum does not match its content."
        )
    return arrays, content


def checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of a text and of the names, types, shapes and bytes of arrays."""
    ordered = sorted(arrays.items())
    shapes = [(name, array.dtype.name, array.shape) for name, array in ordered]
    digest = sha256(json.dumps([text, shapes]).encode())
    for _, array in ordered:
        digest.update(array.tobytes())
    return digest.hexdigest()


def _with_sorted_header(content: bytes) -> bytes:
    """The same safetensors file with the keys of its header in order, where safetensors leaves it to chance."""
    # a file is the length of the header in 8 bytes, the header as JSON, padded to a multiple of 8
    # bytes, and the data
    start = 8 + int.from_bytes(content[:8], "little")
    found = json.loads(content[8:start])
    header = json.dumps(found, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[start:]


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file beside its place, and move it there as a whole; what a link points to stays as it is."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"path must name a file, but {file} is a folder.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"path must name a file in a folder, but {file.parent} is none.") from None
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with unfinished.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        if error.errno is None:
            raise
        raise OSError(
            error.errno, error.strerror, str(file)
        ) from error  # which names the file that was to be written
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # elsewhere folders cannot be opened
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

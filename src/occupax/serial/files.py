"""Files of arrays and JSON, and of text: there as a whole or not at all, with a checksum, in equal bytes if equal."""

import json
import os
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

CONTENT, CHECKSUM = "occupax", "occupax-sha256"


def write(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> None:
    """Write arrays and JSON as one safetensors file, which is there as a whole or not at all.

    Equal content gives equal bytes in every process.
    """
    text = json.dumps(metadata, allow_nan=False)
    # safetensors writes the memory as it lies, and would take the columns of a transposed array for its rows
    plain = {name: np.asarray(array, array.dtype.newbyteorder("="), order="C") for name, array in arrays.items()}
    try:
        content = save(plain, {CONTENT: text, CHECKSUM: checksum(text, plain)})
    except SafetensorError as error:
        raise ValueError(f"arrays must be of a type that safetensors can hold: {error}.") from error
    _write_whole(path, _with_sorted_header(content))


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, which is there as a whole or not at all."""
    _write_whole(path, text.encode())


def read(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and the JSON of a file that `write` wrote, and refuse any other."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{file} {'is not a file' if file.exists() else 'does not exist'}.")
    try:
        with safe_open(file, "numpy") as opened:
            metadata = opened.metadata() or {}
            ours = {CONTENT, CHECKSUM} <= metadata.keys()
            arrays: dict[str, np.ndarray] = {name: opened.get_tensor(name) for name in opened.keys() if ours}  # noqa: SIM118
        content = json.loads(metadata[CONTENT]) if ours else None
    except Exception as error:
        raise ValueError(f"{file} is damaged or not a safetensors file: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is a safetensors file, but not one that occupax wrote.")
    if checksum(metadata[CONTENT], arrays) != metadata[CHECKSUM]:
        raise ValueError(f"{file} was changed after it was written: its checksum does not match its content.")
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
    """The same safetensors file with the keys of its header in order, where safetensors leaves it to chance.

    A file is the length of the header in 8 bytes, the header as JSON, padded to a multiple of 8 bytes, and the data.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(
        json.loads(content[8:start]), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[start:]


def _write_whole(path: str | Path, content: bytes) -> None:
    """Write beside the file, and put the result in its place once it is on the disk."""
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
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # elsewhere folders cannot be opened
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Files: one format for arrays, one for JSON, one checksum scheme and atomic writes.

A file exists as a whole or not at all. Equal content gives equal bytes in every process. Checksums
are SHA-256. A checksum detects damage and files of another run, but is not a signature.
"""

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import file_digest, sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from occupax.io.codec import Arrays

VERSION = 4
"""Version of the format of all files."""
READERS = {1: "0.2.0", 2: "0.2.0", 3: "0.2.0"}
"""The release of occupax that reads each earlier version of the format."""
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")
"""Pattern of the names of files that are being written."""
CONTENT = "occupax"
"""Key of the JSON in the metadata of a safetensors file."""
ARRAYS_CHECKSUM = "occupax-sha256"
"""Key of the checksum in the metadata of a safetensors file."""
CHECKSUM = "checksum"
"""Key of the checksum in a JSON file."""
FILES = "files"
"""Key of the checksums of other files in a JSON file."""


def header(kind: str) -> dict[str, Any]:
    """Return the entries of a file that name its kind, the version of the format and its writer."""
    return {"format": kind, "version": VERSION, "occupax": version("occupax")}


def check_header(path: str | Path, content: Mapping[str, Any], kind: str) -> None:
    """Raise ValueError unless `content` has the header of a kind of file in this format."""
    if content.get("format") != kind:
        got = f"{content.get('format')!r:.60}"
        raise ValueError(f"{path} must have the format {kind}, but has {got}.")
    number = content.get("version")
    if number == VERSION and type(number) is int:
        return
    reader = content.get("occupax", "a newer version")
    if type(number) is int:
        reader = READERS.get(number, reader)
    raise ValueError(
        f"{path} has version {number!r:.20} of the format {kind}, which occupax {reader!s:.20} "
        f"reads; this occupax reads version {VERSION}."
    )


def checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the checksum of a text and of the names, types, shapes and entries of arrays."""
    entries = sorted(arrays.items())
    shapes = [(name, array.dtype.name, array.shape) for name, array in entries]
    digest = sha256(json.dumps([text, shapes]).encode())
    for _, array in entries:
        digest.update(array.tobytes())
    return digest.hexdigest()


def file_checksum(path: Path) -> str:
    """Return the checksum of the bytes of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def write_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], content: Mapping[str, Any]
) -> None:
    """Write arrays and JSON as one safetensors file."""
    text = json.dumps(content, allow_nan=False)
    # safetensors writes memory as it is: a transposed array would change its entries
    contiguous = {
        name: np.asarray(array, array.dtype.newbyteorder("="), order="C")
        for name, array in arrays.items()
    }
    metadata = {CONTENT: text, ARRAYS_CHECKSUM: checksum(text, contiguous)}
    try:
        data = save(contiguous, metadata)
    except SafetensorError as error:
        raise ValueError(f"arrays must be of a type that safetensors can hold: {error}.") from error
    write_bytes(path, _with_sorted_header(data))


def read_arrays(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """Read the arrays and the JSON of a file that `write_arrays` wrote."""
    file = Path(path)
    if not file.exists():
        raise ValueError(f"{file} does not exist.")
    if not file.is_file():
        raise ValueError(f"{file} is not a file.")
    arrays: Arrays = {}
    content: Any = None
    try:
        with safe_open(file, "numpy") as stream:
            metadata = stream.metadata() or {}
            if {CONTENT, ARRAYS_CHECKSUM} <= metadata.keys():
                for name in stream.keys():  # noqa: SIM118
                    arrays[name] = stream.get_tensor(name)
                content = json.loads(metadata[CONTENT])
    except Exception as error:  # safetensors raises many kinds
        raise ValueError(f"{file} is damaged or not a safetensors file: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is a safetensors file, but not one that occupax wrote.")
    if checksum(metadata[CONTENT], arrays) != metadata[ARRAYS_CHECKSUM]:
        raise _changed(file)
    return arrays, content


def write_json(path: Path, content: Mapping[str, Any], files: Iterable[str] = ()) -> None:
    """Write JSON with its checksum and with the checksums of existing files in the same folder."""
    checksums = {name: file_checksum(path.parent / name) for name in files}
    body = {**content, FILES: checksums}
    write_text(path, json.dumps({**body, CHECKSUM: _json_checksum(body)}, indent=1))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that `write_json` wrote. `check_json` verifies its checksum."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be a file.")
    try:
        content = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ValueError(f"{path} is damaged: it must hold an object of JSON, got a {kind}.")
    return content


def check_json(path: Path, content: dict[str, Any], files: Iterable[str] = ()) -> dict[str, Any]:
    """Check the checksums of JSON and of files beside it, and return the JSON without them."""
    body = {name: value for name, value in content.items() if name != CHECKSUM}
    checksums = body.get(FILES)
    if content.get(CHECKSUM) != _json_checksum(body) or not isinstance(checksums, dict):
        raise _changed(path)
    for name in files:
        file = path.parent / name
        if not file.is_file():
            raise ValueError(f"{file} is missing.")
        if checksums.get(name) != file_checksum(file):
            raise ValueError(
                f"{file} was changed after it was written, or is that of another run or another "
                "seed."
            )
    del body[FILES]
    return body


def write_text(path: str | Path, text: str) -> None:
    """Write a text file."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that the file is never incomplete."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"path must be the path of a file, but {file} is a directory.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"path must be in a directory, but {file.parent} or a parent of it is a file."
        ) from None
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
        raise OSError(error.errno, error.strerror, str(file)) from error  # names the final file
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(file.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of a process that was killed during a write."""
    for file in (*folder.glob(".*"), *folder.glob("*/.*")):
        if UNFINISHED.fullmatch(file.name) and not file.is_symlink():
            with suppress(OSError):
                file.unlink()


def _changed(path: Path) -> ValueError:
    return ValueError(
        f"{path} was changed after it was written: its checksum does not match its content."
    )


def _json_checksum(content: Mapping[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True), {})


def _with_sorted_header(data: bytes) -> bytes:
    """Return a safetensors file with sorted keys in its header. Safetensors has no fixed order."""
    # a file is the length of the header in 8 bytes, the header as JSON, padded to a multiple of 8
    # bytes, and the arrays
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    text = json.dumps(entries, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    sorted_header = text.encode()
    sorted_header += b" " * (-len(sorted_header) % 8)
    return len(sorted_header).to_bytes(8, "little") + sorted_header + data[start:]


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

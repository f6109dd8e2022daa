"""JSON files with a checksum of their own, and of the files that belong with them.

A checksum shows damage, and files of another run; it is no signature, and anyone can make a new
one.
"""

import json
from collections.abc import Iterable
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from occupax.io import codec

CHECKSUM, FILES = "checksum", "files"


def write_sealed(path: Path, content: dict[str, Any], files: Iterable[str] = ()) -> None:
    """Write JSON with its checksum, and with those of files in the same folder, which are there already."""
    content = content | {FILES: {name: _digest(path.parent / name) for name in files}}
    codec.write_text(path, json.dumps(content | {CHECKSUM: _checksum(content)}, indent=1))


def read_json(path: Path) -> dict[str, Any]:
    """Read JSON that `write_sealed` wrote; `check_seal` then says whether it was changed since."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be a file.")
    try:
        content = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} is damaged: it must hold an object of JSON, got a {type(content).__name__}."
        )
    return content


def check_seal(path: Path, content: dict[str, Any], files: Iterable[str] = ()) -> dict[str, Any]:
    """Refuse JSON that was changed after it was written, and files that are not those it was written with.

    Returns:
        What was given to `write_sealed`.
    """
    sealed = {name: value for name, value in content.items() if name != CHECKSUM}
    if content.get(CHECKSUM) != _checksum(sealed) or not isinstance(content.get(FILES), dict):
        raise ValueError(
            f"{path} was changed after it was written: its checksum does not match its content."
        )
    for name in files:
        file = path.parent / name
        if not file.is_file():
            raise ValueError(f"{file} is missing.")
        if content[FILES].get(name) != _digest(file):
            raise ValueError(
                f"{file} was changed after it was written, or is that of another run or another seed."
            )
    return {name: value for name, value in sealed.items() if name != FILES}


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()

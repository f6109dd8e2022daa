"""Compiled programs are kept for the next command, as long as there is a place for them."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

MOST_BYTES = 1_000_000_000
"""What the kept programs may take; beyond it those that were used longest ago are removed."""


def keep_compiled_programs() -> None:
    """Let a second command of the same shape start without compiling, unless the user has arranged this already.

    Where there is no home, or nothing can be written there, programs are not kept.
    """
    write_whole_entries()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = (
            Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
            / "occupax"
            / "programs"
        )
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return
        remove_oldest(folder, MOST_BYTES)
    except (OSError, RuntimeError):  # there is no home, or not one of this user
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def write_whole_entries() -> None:
    """Let JAX write a program into a file of another name, and rename it when all of it is there.

    JAX writes it in place. Another process that compiles the same would read half of it, and all
    later ones would if this process were killed meanwhile; they warn and compile again.
    """
    try:
        from jax._src.lru_cache import LRUCache
    except ImportError:  # JAX keeps them in some other way
        return
    if jax.config.values["jax_compilation_cache_max_size"] == -1:  # otherwise JAX locks the folder
        LRUCache.put = _put


def _put(self: Any, key: str, value: bytes) -> None:
    entry: Path = self.path / f"{key}-cache"
    if not entry.exists():
        part = entry.with_name(f"{key}-{os.getpid()}-{threading.get_ident()}-part")
        part.write_bytes(value)
        part.replace(entry)


def remove_oldest(folder: Path, most: int) -> None:
    """Remove the files of a folder that were used longest ago, until the others take at most so many bytes."""
    files = [(file, file.stat()) for file in folder.iterdir() if file.is_file()]
    total = sum(status.st_size for _, status in files)
    for file, status in sorted(files, key=lambda pair: max(pair[1].st_atime, pair[1].st_mtime)):
        if total <= most:
            break
        with suppress(OSError):
            file.unlink()
        total -= status.st_size

"""Compiled programs are kept for the next command, as long as there is a place for them."""

import os
from contextlib import suppress
from pathlib import Path

import jax

MOST_BYTES = 1_000_000_000
"""What the kept programs may take; beyond it those that were used longest ago are removed."""


def keep_compiled_programs() -> None:
    """Let a second command of the same shape start without compiling, unless the user has arranged this already.

    Where there is no home, or nothing can be written there, programs are not kept.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "occupax" / "programs"
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return
        remove_oldest(folder, MOST_BYTES)
    except (OSError, RuntimeError):  # there is no home, or not one of this user
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


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

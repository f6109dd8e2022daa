"""Persistent cache of compiled programs: a second command of the same shape does not compile."""

import os
from pathlib import Path

import jax
from filelock import FileLock, Timeout

MAX_BYTES = 1_000_000_000
"""Largest size of the cache. JAX removes the least recently used programs beyond it."""
MIN_COMPILE_SECONDS = 0.1
"""Shortest compilation whose program is kept."""
LOCK = ".lockfile"
"""Name of the file by which JAX locks a bounded cache."""
LOCK_SECONDS = 1.0
"""Longest wait for the lock when a command starts."""


def keep_compiled_programs() -> None:
    """Keep compiled programs for later commands, unless the user has configured a cache.

    Nothing is kept without a home directory, or if nothing can be written there.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = _cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        remove_incomplete(folder)
    except (OSError, RuntimeError):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)


def remove_incomplete(folder: Path) -> None:
    """Remove programs of processes that were killed while they wrote them.

    JAX writes a program in place and its time of use afterwards. A program without a time of use
    would stop JAX from writing any other program.
    """
    try:
        with FileLock(folder / LOCK, timeout=LOCK_SECONDS):
            for program in folder.glob("*-cache"):
                time_of_use = program.with_name(program.name.removesuffix("cache") + "atime")
                if not time_of_use.exists():
                    program.unlink()
    except Timeout:  # another process holds the lock, and the next command removes the rest
        return


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    if not root:
        root = Path("~/.cache").expanduser()
    return Path(root) / "occupax" / "programs"

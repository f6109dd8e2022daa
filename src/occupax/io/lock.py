"""One lock on files and directories, which the operating system releases after a kill."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks, and processes are not kept apart there
    fcntl = None


@contextmanager
def hold_lock(path: Path, wait: bool = False) -> Generator[bool]:
    """Hold the lock of an existing file or directory, and yield whether this process has it."""
    if fcntl is None:
        yield True
        return
    descriptor = os.open(path, os.O_RDONLY)
    operation = fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)

"""Atomic writes into the unbounded compilation cache that the workers of the tests share."""

import os
import threading
from pathlib import Path
from typing import Any

from jax._src.lru_cache import LRUCache

_put_in_place = LRUCache.put


def write_whole_programs() -> None:
    """Make JAX write a program into a file of another name, and rename the complete file."""
    LRUCache.put = _put


def _put(self: Any, key: str, value: bytes) -> None:
    if self.eviction_enabled:
        _put_in_place(self, key, value)
        return
    program: Path = self.path / f"{key}-cache"
    if not program.exists():
        part = program.with_name(f"{key}-{os.getpid()}-{threading.get_ident()}-part")
        part.write_bytes(value)
        part.replace(program)

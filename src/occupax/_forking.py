"""Detection of processes that were forked after JAX had been used, in which JAX waits for threads that do not exist."""

import os

_pids: set[int] = set()
"""The ids of the forked processes, in the memory that each of them has a copy of."""


def _mark_fork() -> None:
    """Mark this process, which was just forked, if JAX had been used before."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:  # another version of JAX: its own warning at the fork remains
        return
    if backends_are_initialized():
        _pids.add(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_fork)


def check_not_forked() -> None:
    """Raise RuntimeError in a process that was forked after JAX had been used."""
    if os.getpid() in _pids:
        raise RuntimeError(
            "this process was forked after JAX had been used, and JAX would wait for threads that only its parent has: "
            "start processes with multiprocessing.get_context('spawn'), or fork before anything is computed."
        )

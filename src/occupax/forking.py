"""Detection of processes that were forked after a use of JAX, in which JAX would hang."""

import os


class JaxUse:
    """Use of JAX by calls of occupax, in this process and in the ones that it was forked from."""

    def __init__(self) -> None:
        self.used = False
        self.used_before_fork = False

    def mark_fork(self) -> None:
        """Mark this process as forked after a use of JAX, if there was one."""
        self.used_before_fork = self.used


jax_use = JaxUse()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=jax_use.mark_fork)


def begin_jax_use() -> None:
    """Record a use of JAX. Raise RuntimeError in a process forked after an earlier use."""
    if jax_use.used_before_fork:
        raise RuntimeError(
            "this process was forked after JAX had been used, and JAX would wait for threads that "
            "only its parent has: start processes with multiprocessing.get_context('spawn'), or "
            "fork before anything is computed."
        )
    jax_use.used = True

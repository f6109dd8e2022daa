"""Bellman backups of sparse tables in C++, on all cores. `planning.cc` has the functions."""

import ctypes
import functools
import os
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from occupax import kernels

Pointer = Any


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled functions, or None if the kernels are missing."""
    if kernels.missing():
        return None
    loaded = ctypes.CDLL(str(kernels.LIBRARY))
    if not hasattr(loaded, "planning_solve"):
        return None
    loaded.planning_solve.restype = ctypes.c_double
    for name in ("backup", "sweep", "apply"):
        getattr(loaded, f"planning_{name}").restype = None
    return loaded


def num_threads() -> int:
    """Return the number of cores of this process, or the variable OMP_NUM_THREADS."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdigit() and int(limit) > 0:
        return int(limit)
    return os.cpu_count() or 1


class SparseTable:
    """Sparse table in the layout of the kernel."""

    def __init__(
        self,
        functions: ctypes.CDLL,
        shape: tuple[int, int],
        starts: Int[np.ndarray, " rows"],
        columns: Int[np.ndarray, " nnz"],
        data: Float[np.ndarray, " nnz"],
    ):
        """Keep the arrays of a CSR matrix [S * A, S], converted where the type differs."""
        self._functions = functions
        self._shape = shape
        self._starts = np.ascontiguousarray(starts, np.int64)
        self._columns = np.ascontiguousarray(columns, np.int32)
        self._data = np.ascontiguousarray(data, np.float64)
        self._threads = num_threads()

    def backup(
        self,
        reward: Float[np.ndarray, "S A"],
        values: Float[np.ndarray, " S"],
        discount: float,
        margin: float,
        actions: Int[np.ndarray, " S"],
    ) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, " 4"]]:
        """Update `actions` in place. Return the Bellman residual and its extremes."""
        residual = np.empty_like(values)
        extremes = np.empty(4)
        self._functions.planning_backup(
            *self._table(),
            _pointer(reward),
            _pointer(values),
            ctypes.c_double(discount),
            ctypes.c_double(margin),
            ctypes.c_int64(self._threads),
            _pointer(actions),
            _pointer(residual),
            _pointer(extremes),
        )
        return residual, extremes

    def sweep(
        self,
        reward: Float[np.ndarray, "S A"],
        values: Float[np.ndarray, " S"],
        discount: float,
        reverse: bool,
    ) -> None:
        """Update `values` in place by one Gauss-Seidel sweep of value iteration."""
        self._functions.planning_sweep(
            *self._table(),
            _pointer(reward),
            _pointer(values),
            ctypes.c_double(discount),
            ctypes.c_int64(reverse),
            ctypes.c_int64(self._threads),
        )

    def apply(
        self,
        actions: Int[np.ndarray, " S"],
        vector: Float[np.ndarray, " S"],
        discount: float,
    ) -> Float[np.ndarray, " S"]:
        """Return (I - discount P_pi) vector."""
        result = np.empty_like(vector)
        self._functions.planning_apply(
            *self._table(),
            _pointer(actions),
            _pointer(vector),
            ctypes.c_double(discount),
            ctypes.c_int64(self._threads),
            _pointer(result),
        )
        return result

    def solve(
        self,
        actions: Int[np.ndarray, " S"],
        right: Float[np.ndarray, " S"],
        discount: float,
        accuracy: float,
        max_products: int,
    ) -> tuple[Float[np.ndarray, " S"], float]:
        """Return x with (I - discount P_pi) x = right by BiCGStab, and its relative residual."""
        solution = np.empty_like(right)
        residual = self._functions.planning_solve(
            *self._table(),
            _pointer(actions),
            _pointer(right),
            ctypes.c_double(discount),
            ctypes.c_double(accuracy),
            ctypes.c_int64(max_products),
            ctypes.c_int64(self._threads),
            _pointer(solution),
        )
        return solution, residual

    def _table(self) -> tuple[Pointer, ...]:
        states, actions = self._shape
        return (
            ctypes.c_int64(states),
            ctypes.c_int64(actions),
            _pointer(self._starts),
            _pointer(self._columns),
            _pointer(self._data),
        )


def _pointer(array: np.ndarray) -> Pointer:
    if not array.flags.c_contiguous:
        raise ValueError("arrays of the kernel must be contiguous, got a strided one.")
    return ctypes.c_void_p(array.ctypes.data)

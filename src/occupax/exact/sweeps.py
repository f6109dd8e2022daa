"""Bellman backups of a table for one reward, in C++ or in NumPy."""

from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax.exact.dynamics import Dynamics, StateActionArray
from occupax.exact.krylov import BREAKDOWN, solve_gmres, solve_krylov
from occupax.kernels import planning

StateArray = Float[np.ndarray, " S"]
ActionArray = Int[np.ndarray, " S"]


class Backup(NamedTuple):
    """Bellman backup of values v: a greedy policy and its Bellman residual."""

    residual: StateArray
    """T_pi v - v, for the greedy policy pi."""
    actions: ActionArray
    """Greedy policy of v."""
    lowest: float
    """Smallest entry of the residual."""
    highest: float
    """Largest entry of T v - v."""
    lowest_sum: float
    """Smallest sum of transition probabilities of a row."""
    highest_sum: float
    """Largest sum of transition probabilities of a row."""


class Sweeps(ABC):
    """Operations on the values of a table that cost one pass over its transitions."""

    @abstractmethod
    def backup(self, values: StateArray, current: ActionArray | None, margin: float) -> Backup:
        """Return the Bellman backup.

        Args:
            values: values v.
            current: actions to keep unless another one is better by more than the margin.
            margin: smallest advantage of a new action.
        """

    @abstractmethod
    def sweep(self, values: StateArray, reverse: bool) -> StateArray:
        """Return the values after one sweep of value iteration."""

    @abstractmethod
    def solve(
        self, actions: ActionArray, right: StateArray, accuracy: float, max_steps: int
    ) -> StateArray:
        """Return an approximate solution x of (I - gamma P_pi) x = right. See `solve_krylov`."""

    @abstractmethod
    def apply(self, actions: ActionArray, vector: StateArray) -> StateArray:
        """Return (I - gamma P_pi) vector."""


def table_sweeps(model: Dynamics, reward: StateActionArray) -> Sweeps:
    """Return the sweeps of a table, in C++ if the kernels are compiled."""
    if planning.library() is None:
        return ArraySweeps(model, reward)
    return KernelSweeps(model, reward)


class KernelSweeps(Sweeps):
    """Sweeps in C++, on all cores."""

    def __init__(self, model: Dynamics, reward: StateActionArray):
        """Keep the table in the layout of the kernel."""
        functions = planning.library()
        assert functions is not None  # noqa: S101
        matrix = model.transition
        self._table = planning.SparseTable(
            functions, model.shape, matrix.indptr, matrix.indices, matrix.data
        )
        self._reward = np.ascontiguousarray(reward, np.float64)
        self._discount = model.discount

    def backup(self, values: StateArray, current: ActionArray | None, margin: float) -> Backup:
        """Return the Bellman backup."""
        actions = np.full(values.size, -1, np.int32)
        if current is not None:
            actions[:] = current
        residual, extremes = self._table.backup(
            self._reward, values, self._discount, margin, actions
        )
        return Backup(residual, actions, *extremes.tolist())

    def sweep(self, values: StateArray, reverse: bool) -> StateArray:
        """Return the values after one Gauss-Seidel sweep of value iteration."""
        swept = values.copy()
        self._table.sweep(self._reward, swept, self._discount, reverse)
        return swept

    def solve(
        self, actions: ActionArray, right: StateArray, accuracy: float, max_steps: int
    ) -> StateArray:
        """Return an approximate solution by BiCGStab, or by GMRES where BiCGStab breaks down."""
        solution, residual = self._table.solve(actions, right, self._discount, accuracy, max_steps)
        if residual <= max(accuracy, BREAKDOWN):
            return solution
        multiply = partial(self.apply, actions)
        return solve_gmres(multiply, right, solution, accuracy, max_steps)

    def apply(self, actions: ActionArray, vector: StateArray) -> StateArray:
        """Return (I - gamma P_pi) vector."""
        return self._table.apply(actions, np.ascontiguousarray(vector), self._discount)


class ArraySweeps(Sweeps):
    """Sweeps in NumPy and SciPy."""

    def __init__(self, model: Dynamics, reward: StateActionArray):
        """Keep the table, with the sums of its rows."""
        self._model = model
        self._reward = reward
        self._states = np.arange(model.shape[0])
        sums = model.transition.sum(axis=1)
        self._lowest_sum = float(sums.min())
        self._highest_sum = float(sums.max())

    def backup(self, values: StateArray, current: ActionArray | None, margin: float) -> Backup:
        """Return the Bellman backup."""
        action_values = self._action_values(values)
        actions = action_values.argmax(1).astype(np.int32)
        highest_values = action_values[self._states, actions]
        greedy_values = highest_values
        if current is not None:
            current_values = action_values[self._states, current]
            is_kept = current_values >= highest_values - margin
            actions = np.where(is_kept, current, actions)
            greedy_values = np.where(is_kept, current_values, highest_values)
        residual = greedy_values - values
        highest = float((highest_values - values).max())
        lowest = float(residual.min())
        return Backup(residual, actions, lowest, highest, self._lowest_sum, self._highest_sum)

    def sweep(self, values: StateArray, reverse: bool) -> StateArray:
        """Return the values after one Jacobi sweep of value iteration."""
        return self._action_values(values).max(1)

    def solve(
        self, actions: ActionArray, right: StateArray, accuracy: float, max_steps: int
    ) -> StateArray:
        """Return an approximate solution by BiCGStab, or by GMRES where BiCGStab breaks down."""
        return solve_krylov(partial(self.apply, actions), right, accuracy, max_steps)

    def apply(self, actions: ActionArray, vector: StateArray) -> StateArray:
        """Return (I - gamma P_pi) vector."""
        rows = self._states * self._model.shape[1] + actions
        return vector - self._model.discount * (self._model.transition[rows] @ vector)

    def _action_values(self, values: StateArray) -> StateActionArray:
        return self._reward + self._model.discount * self._model.following(values)

"""Exact values of many policies of one problem."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from occupax.exact.certificates import certify
from occupax.exact.dynamics import Dynamics, dynamics, read_probs
from occupax.exact.evaluation import total_occupancy
from occupax.problem import Problem

MOST_NUMBERS_AT_ONCE = 10**7
"""In the matrices of all policies together; beyond that they are evaluated one after the other."""


class Evaluator:
    """Works out what policies of a tabular problem are worth, many at a time; the dynamics are read only once.

    Args:
        problem: a tabular problem.
    """

    def __init__(self, problem: Problem):
        self._problem, self._model = problem, dynamics(problem)

    def values(
        self, tables: Float[np.ndarray, "n S A"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"] | None]:
        """The utility and, for a concave one, the certified gap of each table of action probabilities.

        Args:
            tables: the tables; those with numbers that are not finite have the value and the gap NaN.
        """
        occupancies = self.occupancies(tables)
        return self.utilities(occupancies), self.gaps(occupancies) if self._problem.utility.concave else None

    def occupancies(self, tables: Float[np.ndarray, "n S A"]) -> Float[np.ndarray, "n d"]:
        """The occupancy of the problem's features under each table, NaN for tables that are not finite."""
        found, known = np.full((len(tables), self._problem.size), np.nan), np.isfinite(tables).all((1, 2))
        if known.any():
            probs = np.array([read_probs(table, self._model) for table in tables[known]])
            if len(probs) * self._model.shape[0] * probs[0].size <= MOST_NUMBERS_AT_ONCE:
                visits = stationary_occupancies(self._model, probs)
            else:
                visits = np.array([total_occupancy(self._model, table) for table in probs])
            found[known] = visits.reshape(len(probs), -1) @ self._model.features
        return found

    def utilities(self, occupancies: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The utility of each occupancy of the problem's features."""
        with jax.enable_x64(True):
            return np.asarray(_utilities(self._problem.utility, occupancies))

    def gaps(self, occupancies: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """By how much at most any policy is better than each occupancy; the utility must be concave."""
        return np.array(
            [certify(self._problem, self._model, it).gap if np.isfinite(it).all() else np.nan for it in occupancies]
        )


def stationary_occupancies(model: Dynamics, probs: Float[np.ndarray, "n S A"]) -> Float[np.ndarray, "n S A"]:
    """The state-action occupancies of many tables of probabilities, by dense matrices.

    With M = gamma P_pi^T the flow of H steps is (I - M)^-1 (xi - M^H xi).
    """
    S, A = model.shape
    matrices = model.discount * np.einsum("nsa,sat->nts", probs, model.transition.toarray().reshape(S, A, S))
    right = np.broadcast_to(model.initial, (len(probs), S))
    if model.horizon is not None:
        right = right - np.linalg.matrix_power(matrices, model.horizon) @ model.initial
    return np.linalg.solve(np.eye(S) - matrices, right[..., None]) * probs


_utilities: Any = eqx.filter_jit(lambda utility, occupancies: jax.vmap(utility.value)(occupancies))

"""Who says what a policy is worth: the exact utility of a table, or a fixed number of evaluation episodes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import softmax

from occupax.exact import Evaluator
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.training.evaluation import mean_returns

EVALUATION = 40
"""Episodes that a network is judged by at each record."""
TABLES_AT_ONCE, AT_ONCE = 100, 5
"""How many tables, and how many networks, are judged together: few enough for dense matrices on the
lake."""

Values = Float[np.ndarray, "run record"]


class Judge(ABC):
    """Sees the policies of all runs at every record."""

    def __init__(self, problem: Problem):
        self.problem, self.records = problem, 0

    def __call__(self, policies: Sequence[Policy]) -> None:
        """Take note of the policies at a record."""
        self.records += 1
        self._see(policies)

    @abstractmethod
    def _see(self, policies: Sequence[Policy]) -> None:
        """Take note of the policies at a record."""

    @abstractmethod
    def values(self) -> Values:
        """What every policy is worth."""

    @abstractmethod
    def tables(self) -> Float[np.ndarray, "run S A"]:
        """The action probabilities of the last policies; nothing for networks."""


class ExactJudge(Judge):
    """The exact utility of tables, and of mixtures of them."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self._evaluator, self._seen = Evaluator(problem), list[np.ndarray]()

    def _see(self, policies: Sequence[Policy]) -> None:
        self._seen.append(np.array([cast("Tabular", policy).table for policy in policies], float))

    def tables(self) -> Float[np.ndarray, "run S A"]:
        """The action probabilities of the last policies."""
        return softmax(self._seen[-1], axis=2)

    def values(self) -> Values:
        """The utility of every policy."""
        return self._utilities(self._occupancies)

    def mixtures(self, share: Callable[[int], Float[np.ndarray, " run"]]) -> Values:
        """The utility of the mixture u <- (1 - share) u + share u_k after each iteration k, record by record."""
        latest = self._occupancies
        mixed = [latest[0]]
        for k, occupancies in enumerate(latest[:-1]):
            part = share(k)[:, None]
            mixed.append((1 - part) * mixed[-1] + part * occupancies)
        return self._utilities(np.array(mixed))

    @cached_property
    def _occupancies(self) -> Float[np.ndarray, "record run d"]:
        tables = np.array(self._seen)
        flat = tables.reshape(-1, *tables.shape[2:])
        parts = [flat[at : at + TABLES_AT_ONCE] for at in range(0, len(flat), TABLES_AT_ONCE)]
        found = [self._evaluator.occupancies(softmax(part, axis=2)) for part in parts]
        return np.concatenate(found).reshape(*tables.shape[:2], -1)

    def _utilities(self, occupancies: Float[np.ndarray, "record run d"]) -> Values:
        found = self._evaluator.utilities(occupancies.reshape(-1, occupancies.shape[2]))
        return found.reshape(occupancies.shape[:2]).T


class EvaluationJudge(Judge):
    """The mean return of `EVALUATION` episodes of each policy, which are drawn anew at every record."""

    def __init__(self, problem: Problem, seed: int):
        super().__init__(problem)
        self._key, self._found = jax.random.fold_in(jax.random.key(seed), 2**31), list[np.ndarray]()

    def _see(self, policies: Sequence[Policy]) -> None:
        key = jax.random.fold_in(self._key, self.records)
        groups = [policies[at : at + AT_ONCE] for at in range(0, len(policies), AT_ONCE)]
        found = [
            self._returns(group, jax.random.fold_in(key, at)) for at, group in enumerate(groups)
        ]
        self._found.append(np.concatenate(found))

    def _returns(self, policies: Sequence[Policy], key: Key[Array, ""]) -> np.ndarray:
        """What some policies earn, filled up to a number for which the program is compiled already."""
        filled = [*policies, *[policies[-1]] * (AT_ONCE - len(policies))]
        arrays, rest = zip(*(eqx.partition(policy, eqx.is_array) for policy in filled), strict=True)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
        found = np.array(mean_returns(self.problem, stacked, rest[0], EVALUATION, key))
        return np.where(_finite(stacked), found, np.nan)[: len(policies)]

    def tables(self) -> Float[np.ndarray, "run S A"]:
        """No tables: networks are judged by what they earn, and have none."""
        return np.zeros((len(self._found[0]), 0, 0))

    def values(self) -> Values:
        """The mean return of every policy, without discount."""
        return np.array(self._found).T


def _finite(stacked: Any) -> np.ndarray:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(stacked)]
    return np.all([np.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in leaves], axis=0)

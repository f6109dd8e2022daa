"""Performance of policies during training: exact utilities of tables, returns of networks."""

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

EPISODES = 40
"""Episodes of an evaluation of a network."""
TABLES_AT_ONCE = 100
"""Number of tables in one evaluation: dense matrices of the lake for more take much memory."""
NETWORKS_AT_ONCE = 5

Values = Float[np.ndarray, "run record"]


class RecordEvaluator(ABC):
    """Evaluator of the policies of all runs at every record."""

    @abstractmethod
    def record(self, policies: Sequence[Policy]) -> None:
        """Store or evaluate the policies of all runs at one record."""

    @abstractmethod
    def values(self) -> Values:
        """Return the performance of every policy."""

    @abstractmethod
    def tables(self) -> Float[np.ndarray, "run S A"]:
        """Return the action probabilities of the last policies, empty for networks."""


class ExactEvaluator(RecordEvaluator):
    """Exact utilities of tables, and of mixtures of them."""

    def __init__(self, problem: Problem):
        self._evaluator = Evaluator(problem)
        self._logits: list[np.ndarray] = []

    def record(self, policies: Sequence[Policy]) -> None:
        """Take the tables of a record."""
        tables = [cast("Tabular", policy).table for policy in policies]
        self._logits.append(np.array(tables, float))

    def tables(self) -> Float[np.ndarray, "run S A"]:
        """Return the action probabilities of the last policies."""
        return softmax(self._logits[-1], axis=2)

    def values(self) -> Values:
        """Return the utility of every policy."""
        return self._utilities(self._occupancies)

    def mixtures(self, weights: Callable[[int], Float[np.ndarray, " run"]]) -> Values:
        """Return the utility of the mixture u <- (1 - w) u + w u_k after each iteration k."""
        mixture = self._occupancies[0]
        mixtures = [mixture]
        for k, occupancies in enumerate(self._occupancies[:-1]):
            weight = weights(k)[:, None]
            mixture = (1 - weight) * mixture + weight * occupancies
            mixtures.append(mixture)
        return self._utilities(np.array(mixtures))

    @cached_property
    def _occupancies(self) -> Float[np.ndarray, "record run d"]:
        logits = np.array(self._logits)
        flat = logits.reshape(-1, *logits.shape[2:])
        occupancies: list[np.ndarray] = []
        for start in range(0, len(flat), TABLES_AT_ONCE):
            probs = softmax(flat[start : start + TABLES_AT_ONCE], axis=2)
            occupancies.append(self._evaluator.occupancies(probs))
        return np.concatenate(occupancies).reshape(*logits.shape[:2], -1)

    def _utilities(self, occupancies: Float[np.ndarray, "record run d"]) -> Values:
        records, runs, size = occupancies.shape
        utilities = self._evaluator.utilities(occupancies.reshape(-1, size))
        return utilities.reshape(records, runs).T


class EpisodeEvaluator(RecordEvaluator):
    """Mean returns of networks over `EPISODES` new episodes at every record."""

    def __init__(self, problem: Problem, seed: int):
        self._problem = problem
        self._key = jax.random.fold_in(jax.random.key(seed), 2**31)
        self._returns: list[np.ndarray] = []

    def record(self, policies: Sequence[Policy]) -> None:
        """Evaluate the policies of a record."""
        key = jax.random.fold_in(self._key, len(self._returns) + 1)
        returns: list[np.ndarray] = []
        for start in range(0, len(policies), NETWORKS_AT_ONCE):
            group_key = jax.random.fold_in(key, len(returns))
            group = policies[start : start + NETWORKS_AT_ONCE]
            returns.append(self._group_returns(group, group_key))
        self._returns.append(np.concatenate(returns))

    def _group_returns(self, policies: Sequence[Policy], key: Key[Array, ""]) -> np.ndarray:
        """Return mean returns, NaN for non-finite policies."""
        # one program is compiled for groups of all sizes
        padding = [policies[-1]] * (NETWORKS_AT_ONCE - len(policies))
        pairs = [eqx.partition(policy, eqx.is_array) for policy in (*policies, *padding)]
        static = pairs[0][1]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(arrays for arrays, _ in pairs))
        returns = np.array(mean_returns(self._problem, stacked, static, EPISODES, key))
        returns = np.where(_are_finite(stacked), returns, np.nan)
        return returns[: len(policies)]

    def tables(self) -> Float[np.ndarray, "run S A"]:
        """Return empty tables, because networks have none."""
        return np.zeros((len(self._returns[0]), 0, 0))

    def values(self) -> Values:
        """Return the undiscounted mean return of every policy."""
        return np.array(self._returns).T


def _are_finite(stacked: Any) -> np.ndarray:
    finite: list[np.ndarray] = []
    for leaf in jax.tree.leaves(stacked):
        flat = np.asarray(leaf).reshape(len(leaf), -1)
        finite.append(np.asarray(np.isfinite(flat).all(1)))
    return np.all(finite, axis=0)

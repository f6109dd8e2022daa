"""Batches that cache their answers, for the engine of training."""

from operator import is_
from typing import Any, TypeVar, final

import jax
from jaxtyping import Array, Float

from occupax.baselines import Fit, read_baseline
from occupax.batches.batch import Batch
from occupax.batches.queries import Gradient, Query, TargetQuery
from occupax.policies import Policy
from occupax.problem import Problem

Answer = TypeVar("Answer")


def is_same(one: Any, other: Any) -> bool:
    """Return whether two trees have the same structure and hold the same objects.

    The values of arrays are not compared.
    """
    leaves, structure = jax.tree.flatten(one)
    other_leaves, other_structure = jax.tree.flatten(other)
    return structure == other_structure and all(map(is_, leaves, other_leaves))


class TreeCache:
    """Values by tree, compared by `is_same`. Meant for a few trees."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, Any]] = []

    def find(self, tree: Any) -> Any:
        """Return the value of a tree, or None."""
        for known, value in self._entries:
            if is_same(known, tree):
                return value
        return None

    def add(self, tree: Any, value: Any) -> None:
        """Store the value of a tree."""
        self._entries.append((tree, value))


@final
class CachingBatch(Batch):
    """A batch that computes each answer once and records all queries.

    Args:
        batch: the batch that computes the answers.
        problem: the problem that algorithms see: with constraints, its Lagrangian.
        fit: the linear baseline, fitted to earlier batches, if there is one.
        queries: the list that all queries are appended to; the halves share it with the whole.
    """

    def __init__(
        self,
        batch: Batch,
        problem: Problem,
        fit: Fit | None = None,
        queries: list[Query[Any]] | None = None,
    ):
        if queries is None:
            queries = []
        self.problem = problem
        self.queries = queries
        self._batch = batch
        self._fit = fit
        self._answers = TreeCache()

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self._batch.size

    @property
    def parts(self) -> int:
        """Number of parts of the batch that computes the answers."""
        return self._batch.parts

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the cached answer, or compute and cache it."""
        self.queries.append(query)
        answer = self._answers.find(query)
        if answer is None:
            answer = self._batch.answer(self._with_fit(query))
            self._answers.add(query, answer)
        return answer

    def halves(self) -> tuple[Batch, Batch]:
        """Return two caching batches of half the trajectories each."""
        first, second = self._batch.halves()
        return self._caching(first), self._caching(second)

    def _caching(self, half: Batch) -> "CachingBatch":
        return CachingBatch(half, self.problem, self._fit, self.queries)

    @property
    def targets(self) -> list[Policy]:
        """Target policies of the queries, without the behaviour policy."""
        targets: list[Policy] = []
        for query in self.queries:
            if not isinstance(query, TargetQuery) or query.target is None:
                continue
            if not any(is_same(query.target, target) for target in targets):
                targets.append(query.target)
        return targets

    @property
    def last_quasi_reward(self) -> Float[Array, " d"] | None:
        """Quasi-reward of the last gradient. None without one."""
        for query in reversed(self.queries):
            if isinstance(query, Gradient):
                return query.quasi_reward
        return None

    def _with_fit(self, query: Query[Answer]) -> Query[Any]:
        """Return the query with the fit for the baseline "linear"."""
        if self._fit is None or not isinstance(query, Gradient) or query.baseline.name != "linear":
            return query
        return Gradient(query.quasi_reward, read_baseline(self._fit), target=query.target)

"""A batch that remembers its queries and their answers, for the engine of training."""

from operator import is_
from typing import Any, TypeVar, final

import jax
from jaxtyping import Array, Float

from occupax.baselines import Fit, read_baseline
from occupax.batches.batch import Batch
from occupax.batches.queries import Gradient
from occupax.batches.query import Query, TargetQuery
from occupax.policies import Policy
from occupax.problem import Problem

Answer = TypeVar("Answer")


class Known:
    """Values by tree. A tree is known if one of the same structure holds the same objects; no numbers are compared."""

    def __init__(self):
        self._by_structure: dict[Any, list[tuple[list[Any], Any]]] = {}

    def find(self, tree: Any) -> Any:
        """Return the value of a tree, or None."""
        leaves, structure = jax.tree.flatten(tree)
        for known, value in self._by_structure.get(structure, []):
            if all(map(is_, known, leaves)):
                return value
        return None

    def add(self, tree: Any, value: Any) -> None:
        """Remember the value of a tree."""
        leaves, structure = jax.tree.flatten(tree)
        self._by_structure.setdefault(structure, []).append((leaves, value))


@final
class CachingBatch(Batch):
    """A batch that computes each answer once, and knows which policies were weighted.

    Args:
        batch: the batch that answers.
        problem: the problem that algorithms see: with constraints, its Lagrangian.
        fit: the linear baseline, fitted to earlier batches, if there is one.
        queries: the list that all queries are added to; halves share it with the whole.
    """

    def __init__(
        self,
        batch: Batch,
        problem: Problem,
        fit: Fit | None = None,
        queries: list[Query[Any]] | None = None,
    ):
        self.problem = problem
        self.queries: list[Query[Any]] = [] if queries is None else queries
        self._batch = batch
        self._fit = fit
        self._answers = Known()

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self._batch.size

    @property
    def parts(self) -> int:
        """Number of parts of the batch that answers."""
        return self._batch.parts

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the known answer, or ask the batch."""
        self.queries.append(query)
        answer = self._answers.find(query)
        if answer is None:
            answer = self._batch.answer(self._with_fit(query))
            self._answers.add(query, answer)
        return answer

    def halves(self) -> tuple[Batch, Batch]:
        """Return two batches of half the trajectories each, whose queries are remembered together."""
        first, second = self._batch.halves()
        second = CachingBatch(second, self.problem, self._fit, self.queries)
        return CachingBatch(first, self.problem, self._fit, self.queries), second

    @property
    def targets(self) -> list[Policy]:
        """The target policies other than the behaviour policy that were weighted."""
        known = Known()
        targets: list[Policy] = []
        for query in self.queries:
            target = query.target if isinstance(query, TargetQuery) else None
            if target is not None and known.find(target) is None:
                known.add(target, True)
                targets.append(target)
        return targets

    @property
    def last_quasi_reward(self) -> Float[Array, " d"] | None:
        """The quasi-reward of the last gradient, if there was one."""
        for query in reversed(self.queries):
            if isinstance(query, Gradient):
                return query.quasi_reward
        return None

    def _with_fit(self, query: Query[Answer]) -> Query[Any]:
        """Return the query with the fit for the baseline "linear"."""
        if self._fit is None or not isinstance(query, Gradient) or query.baseline.name != "linear":
            return query
        return Gradient(query.quasi_reward, read_baseline(self._fit), target=query.target)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two trees have the same structure and hold the same objects; their values are not compared."""
    leaves, structure = jax.tree.flatten(one)
    other_leaves, other_structure = jax.tree.flatten(other)
    if structure != other_structure:
        return False
    return all(map(is_, leaves, other_leaves))

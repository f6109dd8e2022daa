"""Batches of trajectories in memory."""

from dataclasses import replace
from typing import TypeVar, final

import equinox as eqx
import jax

from occupax.batches.batch import Batch, half_of
from occupax.batches.queries import Query, Target
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.scoring import PolicyScorer, Scored, Scorer
from occupax.trajectories import Trajectories

Answer = TypeVar("Answer")


@final
class SampledBatch(Batch, eqx.Module):
    """Trajectories of a problem in memory, with their behaviour policy.

    Args:
        problem: the problem that the trajectories were drawn from.
        trajectories: the trajectories.
        policy: the behaviour policy.
        scorer: the log-probabilities of the trajectories; by default those of the policies
            themselves.
    """

    problem: Problem
    trajectories: Trajectories
    policy: Policy
    scorer: Scorer = eqx.field(default_factory=PolicyScorer)

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return len(self.trajectories.actions)

    @property
    def parts(self) -> int:
        """Number of parts, 1: all trajectories are in memory."""
        return 1

    def scored(self, target: Target = None) -> Scored[Policy]:
        """Return the trajectories with the log-ratios and importance weights of a target.

        Args:
            target: the target policy; None is the behaviour policy.
        """
        if target is None:
            return Scored(self.trajectories, self.policy, self.scorer, on_policy=True)
        return Scored(self.trajectories, target, self.scorer)

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answer that the query computes, by one compiled program."""
        return _compute(query, self)

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the trajectories."""
        half = half_of(self.size)
        return self._slice(slice(None, half)), self._slice(slice(half, None))

    def _slice(self, rows: slice) -> "SampledBatch":
        arrays = (self.trajectories, self.scorer)
        trajectories, scorer = jax.tree.map(lambda leaf: leaf[rows], arrays)
        return replace(self, trajectories=trajectories, scorer=scorer)


@eqx.filter_jit
def _compute(query: Query[Answer], batch: SampledBatch) -> Answer:
    return query.compute(batch)

"""Queries as users write them, outside of the package: proof that every batch answers them.

They are classes of a module, so that other processes find them.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from occupax.batches import Query, TargetQuery


class WeightedReturn(TargetQuery[Any]):
    """Mean of the return of an episode, weighted by the importance weight of its last step."""

    def compute(self, batch):
        weights = batch.scored(self.target).weights()
        return jnp.mean(weights[:, -1] * batch.trajectories.rewards.sum(1))


class Extremes(Query[Any]):
    """Shortest and longest episode among those that took a step, and their number."""

    is_sum: ClassVar[bool] = True

    def compute(self, batch):
        lengths = batch.trajectories.lengths
        shortest = jnp.where(lengths > 0, lengths, jnp.iinfo(lengths.dtype).max).min()
        return shortest, lengths.max(), (lengths > 0).sum()

    def merge(self, one, other):
        return jnp.minimum(one[0], other[0]), jnp.maximum(one[1], other[1]), one[2] + other[2]


class LongestReturn(Query[Any]):
    """Largest sum of rewards plus lengths, merged by a method of its own and by nothing else."""

    def compute(self, batch):
        trajectories = batch.trajectories
        return jnp.max(trajectories.rewards.sum(1) + trajectories.lengths)

    def merge(self, one, other):
        return jnp.maximum(one, other)


class FirstRewards(Query[Any]):
    """Rewards of the first steps, one row for each trajectory."""

    is_concatenation: ClassVar[bool] = True

    def compute(self, batch):
        trajectories = batch.trajectories
        return trajectories.rewards[:, 0] + trajectories.lengths


class LengthVariance(Query[Any]):
    """Variance of the lengths of the episodes, around the mean of the whole batch."""

    mean: Any = None

    def compute(self, batch):
        lengths = batch.trajectories.lengths
        mean = lengths.mean() if self.mean is None else self.mean
        return jnp.mean(jnp.where(lengths > 0, (lengths - mean) ** 2, 0.0))

    def complete(self, whole):
        return replace(self, mean=whole.answer(MeanLength()))


class MeanLength(Query[Any]):
    """Mean length of the episodes."""

    def compute(self, batch):
        return batch.trajectories.lengths.mean()


class ScaledPolicy(TargetQuery[Any]):
    """Parameters of the target times the mean of its log-ratios and a number."""

    scale: Any = 1.0

    def compute(self, batch):
        scored = batch.scored(self.target)
        factor = self.scale * jnp.mean(jnp.sum(scored.log_ratios(), 1))
        return jax.tree.map(
            lambda leaf: factor * leaf, eqx.filter(scored.target, eqx.is_inexact_array)
        )

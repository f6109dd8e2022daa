"""The abstract query about a batch of trajectories."""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp

from occupax.policies import Policy

if TYPE_CHECKING:
    from occupax.batches.batch import Batch
    from occupax.batches.sampled import SampledBatch

Answer = TypeVar("Answer")
Target = Policy | None
"""The target policy of a query; None is the behaviour policy, which drew the batch."""


class Query(eqx.Module, Generic[Answer]):
    """A query about a batch of trajectories. Subclass it to define a new one: every sampler answers it.

    A query is sent to wherever the trajectories are: it consists of arrays, policies and static
    values.
    """

    is_sum: ClassVar[bool] = False
    """Whether the answer is a sum over the trajectories; otherwise it is a mean."""
    is_complete: bool = eqx.field(static=True, default=False, kw_only=True)
    """Whether `complete` was called already: parts of a batch may consist of parts themselves."""

    @abstractmethod
    def compute(self, batch: "SampledBatch") -> Answer:
        """Return the answer from trajectories in memory; the function may be traced by JAX.

        Trajectories without a live step may be there to fill up a part of a batch. A mean is over
        all of them, and their contribution must be zero.
        """

    def merge(self, one: Answer, other: Answer) -> Answer:
        """Return the answer of two parts of a batch together; by default the sum of both answers."""
        return jax.tree.map(jnp.add, one, other)

    def complete(self, whole: "Batch") -> "Query[Answer]":
        """Return the query with all that each part must know of the whole batch, which it may query."""
        del whole
        return self

    @final
    def completed(self, whole: "Batch") -> "Query[Answer]":
        """Return the complete query; a query that is complete already is returned unchanged."""
        if self.is_complete:
            return self
        return replace(self.complete(whole), is_complete=True)


class TargetQuery(Query[Answer]):
    """A query about a target policy, whose importance weights the answer depends on."""

    target: Target = eqx.field(default=None, kw_only=True)

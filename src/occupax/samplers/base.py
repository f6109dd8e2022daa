"""The abstract sampler, and the source of batches that it opens."""

from abc import ABC, abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from occupax.batches.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem


class Source(eqx.Module):
    """A source of batches of one problem, for policies of one structure.

    A sampler opens the source, and training closes it.
    """

    problem: eqx.AbstractVar[Problem]

    @abstractmethod
    def draw(self, policy: Policy, n: int, key: Key[Array, ""]) -> Batch:
        """Draw a batch.

        The same policy and key must give the same trajectories at any time and on any machine, so
        that an interrupted run resumes to the same result.

        Args:
            policy: the behaviour policy.
            n: the number of trajectories.
            key: the random key.

        Returns:
            The batch, such as an `occupax.SampledBatch` of trajectories in memory.
        """

    @property
    def runs_at_once(self) -> int:
        """Number of runs that may draw at the same time, each in a thread of its own."""
        return 1

    def close(self) -> None:
        """Stop everything that was started for the source, such as processes."""


class Sampler(ABC):
    """The settings of sampling, from which a source of batches is opened for each training run.

    Subclasses define `open`. With a `ProgramSource`, training is one compiled program. With any
    other source, the algorithm runs outside of the compiled program.
    """

    @abstractmethod
    def open(self, problem: Problem, policy: Policy) -> Source:
        """Open a source of batches.

        Args:
            problem: the problem to sample.
            policy: a policy with the structure and shapes of all behaviour policies.

        Returns:
            The source.
        """

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Return a name that samplers share if they draw the same trajectories for a key.

        A run is resumed only with a sampler of the same name.

        Args:
            problem: the problem to sample.
            policy: a policy with the structure of all behaviour policies.
        """
        kind: Any = type(self)
        return f"{kind.__module__}.{kind.__qualname__}"

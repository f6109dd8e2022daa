"""What draws trajectories."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from occupax.batches.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem

Number = int | Int[Array, ""]


class Source(eqx.Module):
    """Draws batches of one problem, for policies of one form; a sampler opens it, and training closes it."""

    problem: eqx.AbstractVar[Problem]

    @abstractmethod
    def draw(self, policy: Policy, n: int, key: Key[Array, ""]) -> Batch:
        """Draw a batch.

        Args:
            policy: the policy that acts.
            n: how many trajectories.
            key: of the random numbers. The same policy and key give the same trajectories, whenever
                and wherever they are drawn: this is what makes a run that was interrupted go on to
                the same result.

        Returns:
            The batch; `occupax.SampledBatch` makes one of trajectories in memory.
        """

    @property
    def runs_at_once(self) -> int:
        """How many runs may draw from it at the same time, each in a thread of its own."""
        return 1

    def close(self) -> None:
        """End what was started for it, such as processes."""


class ProgramSource(Source):
    """A source that is part of the compiled program of training: it draws by functions that JAX can trace.

    Trajectory i of a key depends on (key, i) and the policy alone.
    """

    block_steps: ClassVar[int] = 50_000
    """How many steps are held in memory at once, if all trajectories are as long as the horizon."""

    @property
    def block_size(self) -> int:
        """How many trajectories are held in memory at once."""
        return max(1, self.block_steps // self.problem.sampling_horizon())

    @abstractmethod
    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> Batch:
        """Draw trajectories number `first` to `first + n`; those from number `stop` on are empty."""

    @final
    def draw(
        self, policy: Policy, n: int, key: Key[Array, ""], wanted: bool | Bool[Array, ""] = True
    ) -> Batch:
        """Draw a batch, which is streamed if it is large; if it is not wanted, all of its trajectories are empty."""
        from occupax.samplers.blocks import Numbered  # which needs this module

        return Numbered(self, policy, key, 0, jnp.where(wanted, n, 0), n).draw()


class Sampler(ABC):
    """How trajectories are sampled: settings, from which a source of batches is opened for each training.

    A sampler of your own defines `open`. If its source is a `ProgramSource`, training is one
    compiled program; otherwise the algorithm runs outside of it, on batches that answer when they
    are asked.
    """

    @abstractmethod
    def open(self, problem: Problem, policy: Policy) -> Source:
        """Open a source of batches.

        Args:
            problem: what to sample.
            policy: the policies to be sampled have the same structure and shapes as this one.

        Returns:
            The source.
        """

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """A name that samplers share if they draw the same trajectories for a key; a run is resumed under the same."""
        kind: Any = type(self)
        return f"{kind.__module__}.{kind.__qualname__}"

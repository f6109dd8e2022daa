"""What draws trajectories, and sums over them."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax.batch import Batch, Statistics
from occupax.policies import Policy
from occupax.problem import Problem


class Tally(eqx.Module):
    """Sums over trajectories; those of two parts of a batch add up to those of the whole."""

    returns: Float[Array, ""]
    discounted_returns: Float[Array, ""]
    steps: Int[Array, ""]
    weights: Float[Array, ""]
    squared_weights: Float[Array, ""]
    largest_weight: Float[Array, ""]

    def __add__(self, other: "Tally") -> "Tally":
        total = jax.tree.map(jnp.add, self, other)
        largest = jnp.maximum(self.largest_weight, other.largest_weight)
        return eqx.tree_at(lambda it: it.largest_weight, total, largest)

    def statistics(self, n: int) -> Statistics:
        """The averages over `n` trajectories."""
        return Statistics(
            undiscounted_return=self.returns / n,
            discounted_return=self.discounted_returns / n,
            steps=self.steps,
            episode_length=self.steps / n,
            largest_weight=self.largest_weight,
            effective_sample_size=self.weights**2 / jnp.maximum(self.squared_weights, 1e-30),
        )


LARGEST_SQUARED = 1e9
"""Weights beyond it count as this in the effective sample size, whose squares must stay finite."""


class Block(Batch):
    """A batch of consecutive trajectories, which may be part of a larger one."""

    @abstractmethod
    def tally(self, target: Policy | None = None) -> Tally:
        """Sums over the trajectories that took a step; the weights are those of `target`."""


class Sampler(eqx.Module):
    """Draws trajectories of a problem. Trajectory i of a key depends on (key, i) and the policy alone."""

    problem: eqx.AbstractVar[Problem]

    @property
    @abstractmethod
    def block_size(self) -> int:
        """How many trajectories are held in memory at once."""

    @abstractmethod
    def block(
        self, policy: Policy, key: Key[Array, ""], first: int | Int[Array, ""], stop: int | Int[Array, ""], n: int
    ) -> Block:
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""


def half_of(n: int) -> int:
    """Half of an even number of trajectories."""
    if n % 2:
        raise ValueError(f"a batch must have an even number of trajectories to be halved, got {n}.")
    return n // 2

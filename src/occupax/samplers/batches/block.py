"""What the batches of all samplers have in common."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from occupax.baselines import Fit, Regression
from occupax.batch import AnyBaseline, Batch, Earnings, Statistics, Target, Transitions
from occupax.policies import Observed, Policy

ARGUMENTS = {
    "transitions": (),
    **dict.fromkeys(("occupancy", "tally", "fisher_vector", "observed"), ("target",)),
    **dict.fromkeys(("earnings", "gradient", "hessian_vector"), ("target", "quasi_reward", "baseline")),
    "regression": ("quasi_reward",),
}
"""What each kind of request takes."""
ABOUT_VECTORS = ("fisher_vector", "hessian_vector")
"""The kinds of request that have a vector in the shape of a policy in the place of the target."""
LARGEST_SQUARED = 1e9
"""Weights beyond it count as this in the effective sample size, whose squares must stay finite."""


class Tally(eqx.Module):
    """Sums over trajectories; those of two parts of a batch add up to those of the whole."""

    returns: Float[Array, ""]
    discounted_returns: Float[Array, ""]
    steps: Int[Array, ""]
    weights: Float[Array, ""]
    squared_weights: Float[Array, ""]
    largest_weight: Float[Array, ""]
    clipped: Int[Array, ""]
    """How many steps had an action outside of the bounds of the environment."""
    saturated: Int[Array, " n"]
    """Number of steps with each entry of the action saturated; empty without bounds."""

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
            actions_clipped=self.clipped / jnp.maximum(self.steps, 1),
            saturated=self.saturated / jnp.maximum(self.steps, 1),
        )


class Request(NamedTuple):
    """What is asked of a batch, so that it can be passed on to its parts."""

    kind: Literal[
        "occupancy",
        "gradient",
        "earnings",
        "tally",
        "fisher_vector",
        "regression",
        "transitions",
        "hessian_vector",
        "observed",
    ]
    target: Target = None
    """The policy asked about; for the kinds of `ABOUT_VECTORS`, the vector."""
    quasi_reward: Float[Array, " d"] | None = None
    baseline: AnyBaseline = "none"
    half: int | None = None
    """Whether it is about the first (0) or the second half (1) of the trajectories alone."""


class Block(Batch):
    """A batch of consecutive trajectories, which may be part of a larger one; some at its end may be empty."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many trajectories there are, the empty ones included: means are over all of them."""

    @abstractmethod
    def gradient(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Policy:
        """The mean gradient estimate; a part of a batch is given the earnings of the whole of it as its baseline."""

    @abstractmethod
    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """The derivatives of both estimates along a vector; the baseline is that of `gradient`."""

    @abstractmethod
    def earnings(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Earnings:
        """Sums over the trajectories of what they still earn from each step on; see `estimators.earnings`.

        If `baseline` is a fit, of what it leaves.
        """

    @abstractmethod
    def tally(self, target: Target = None) -> Tally:
        """Sums over the trajectories that took a step; the weights are those of `target`."""

    @final
    def statistics(self, target: Target = None) -> Statistics:
        """Averages over the trajectories; the weights are those of `target`."""
        return self.tally(target).statistics(self.size)

    @final
    def answer(self, request: Request) -> Any:
        """The answer to a request: an occupancy, a gradient, sums."""
        if request.half is not None:
            half: Any = self.halves()[request.half]
            return half.answer(request._replace(half=None))
        return getattr(self, request.kind)(*(getattr(request, name) for name in ARGUMENTS[request.kind]))


class PartedBatch(Block):
    """A batch in parts of equal size, of which the last may have empty trajectories at its end.

    Subclasses say how requests reach the parts, and how answers are added up.
    """

    @property
    @abstractmethod
    def part_size(self) -> int:
        """How many trajectories the mean of each part is over."""

    @abstractmethod
    def total(self, request: Request) -> Any:
        """The sum over the parts of their answers to a request."""

    @final
    def occupancy(self, target: Target = None) -> Float[Array, " d"]:
        """The mean over all parts."""
        return self._mean(Request("occupancy", target))

    @final
    def gradient(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Policy:
        """The mean over all parts; a mean baseline is over all of them, too."""
        if isinstance(baseline, Fit) or baseline == "mean":
            whole = self.earnings(target, quasi_reward, baseline)
            baseline = replace(whole, fit=baseline) if isinstance(baseline, Fit) else whole
        return self._mean(Request("gradient", target, quasi_reward, baseline))

    @final
    def earnings(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Earnings:
        """The sum over all parts."""
        return self.total(Request("earnings", target, quasi_reward, baseline))

    @final
    def regression(self, quasi_reward: Float[Array, " d"]) -> Regression:
        """The sum over all parts."""
        return self.total(Request("regression", quasi_reward=quasi_reward))

    @final
    def observed(self, target: Policy) -> Observed:
        """The sum over all parts."""
        return self.total(Request("observed", target))

    @final
    def tally(self, target: Target = None) -> Tally:
        """The sum over all parts."""
        return self.total(Request("tally", target))

    @final
    def fisher_vector(self, vector: Policy) -> Policy:
        """The mean over all parts."""
        return self._mean(Request("fisher_vector", vector))

    @final
    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """The means over all parts; a mean baseline is over all of them, too."""
        if isinstance(baseline, str) and baseline == "mean":
            baseline = self.earnings(None, quasi_reward)
        return self._mean(Request("hessian_vector", vector, quasi_reward, baseline))

    @final
    def transitions(self) -> Transitions:
        """The sum over all parts."""
        return self.total(Request("transitions"))

    def _mean(self, request: Request) -> Any:
        share, total = self.part_size / self.size, self.total(request)
        return total if share == 1 else jax.tree.map(lambda leaf: leaf * share, total)


def add(left: Any, right: Any) -> Any:
    """The sum of two answers to one request."""
    return left + right if isinstance(left, Tally) else jax.tree.map(jnp.add, left, right)


def half_of(n: int) -> int:
    """Half of an even number of trajectories."""
    if n % 2:
        raise ValueError(f"a batch must have an even number of trajectories to be halved, got {n}.")
    return n // 2

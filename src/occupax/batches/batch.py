"""The abstract batch, which answers queries."""

from abc import ABC, abstractmethod
from typing import TypeVar, final

from jaxtyping import Array, Float

from occupax.baselines import AnyBaseline, Regression, read_baseline
from occupax.batches.queries import (
    FisherVector,
    Gradient,
    HessianVector,
    ObservationSums,
    Occupancy,
    RegressionSums,
    Statistics,
    Tally,
    TransitionCounts,
    Transitions,
)
from occupax.batches.query import Query, Target
from occupax.policies import ObservationMoments, Policy
from occupax.problem import Problem

Answer = TypeVar("Answer")


class Batch(ABC):
    """The trajectories of one iteration, wherever they are.

    A backend implements `answer` and `halves`. The methods that algorithms call build a query each.
    None as the target is the behaviour policy, whose importance weights are 1.
    """

    problem: Problem
    """The problem that the trajectories were drawn from."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of trajectories; means are over all of them."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """Number of parts that answer one by one; 1 for trajectories in memory."""

    @abstractmethod
    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answer to a query."""

    @abstractmethod
    def halves(self) -> "tuple[Batch, Batch]":
        """Return two independent batches of half the trajectories each."""

    @final
    def occupancy(self, target: Target = None) -> Float[Array, " d"]:
        """Return the mean occupancy estimate, u_hat(target)."""
        return self.answer(Occupancy(target=target))

    @final
    def gradient(
        self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> Policy:
        """Return the mean gradient estimate, g_hat(target, quasi_reward), in the shape of a policy."""
        return self.answer(Gradient(quasi_reward, read_baseline(baseline), target=target))

    @final
    def statistics(self, target: Target = None) -> Statistics:
        """Return averages to log; the weights are those of `target`."""
        return self.answer(Tally(target=target)).averages(self.size)

    @final
    def regression(self, quasi_reward: Float[Array, " d"]) -> Regression:
        """Return the sums of the linear baseline of *later* batches, for the behaviour policy."""
        return self.answer(RegressionSums(quasi_reward))

    @final
    def observed(self, policy: Policy | None = None) -> ObservationMoments:
        """Return sums over the observations, around the running mean of a policy; see `policies.normalising`."""
        return self.answer(ObservationSums(policy))

    @final
    def fisher_vector(self, vector: Policy) -> Policy:
        """Return the Fisher information of the behaviour policy times a vector in the shape of a policy."""
        return self.answer(FisherVector(vector))

    @final
    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """Return the derivatives of both estimates, of occupancy and gradient, at the behaviour policy."""
        return self.answer(HessianVector(vector, quasi_reward, read_baseline(baseline)))

    @final
    def transitions(self) -> Transitions:
        """Return counts of the transitions, where observations and actions are discrete."""
        return self.answer(TransitionCounts())

    @final
    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of the utility at an occupancy; see `Problem.quasi_reward`."""
        return self.problem.quasi_reward(occupancy)

    @final
    def utility(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the utility of an occupancy; see `Problem.estimated_utility`."""
        return self.problem.estimated_utility(occupancy)


def half_of(n: int) -> int:
    """Return half of an even number of trajectories."""
    if n % 2:
        raise ValueError(f"a batch must have an even number of trajectories to be halved, got {n}.")
    return n // 2

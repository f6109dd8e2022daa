"""Abstract batch of trajectories."""

from abc import ABC, abstractmethod
from typing import TypeVar, final

from jaxtyping import Array, Float

from occupax.baselines import AnyBaseline, Regression, read_baseline
from occupax.batches.queries import (
    AllSteps,
    FisherVector,
    Gradient,
    HessianVector,
    ObservationSums,
    Occupancy,
    Query,
    RegressionSums,
    Statistics,
    Steps,
    Tally,
    Target,
    TransitionCounts,
    Transitions,
    without_padding,
)
from occupax.policies import ObservationMoments, Policy
from occupax.problem import Problem

Answer = TypeVar("Answer")


class Batch(ABC):
    """Trajectories of one iteration, in memory or on the workers of a sampler.

    A backend implements `answer` and `halves`. Each of the final methods builds a query. None as
    the target is the behaviour policy, whose importance weights are 1.
    """

    problem: Problem
    """Problem that the trajectories were drawn from."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of trajectories, which means are over."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """Number of parts with answers to merge, 1 for trajectories in memory."""

    @abstractmethod
    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answer to a query.

        Args:
            query: the query, of this package or user-defined.

        Returns:
            The answer, of the type that the query computes.
        """

    @abstractmethod
    def halves(self) -> "tuple[Batch, Batch]":
        """Return two independent batches of half the trajectories each."""

    @final
    def occupancy(self, target: Target = None) -> Float[Array, " d"]:
        """Return the mean occupancy estimate, u_hat(target).

        Args:
            target: the target policy.

        Returns:
            One number for each feature.
        """
        return self.answer(Occupancy(target=target))

    @final
    def gradient(
        self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> Policy:
        """Return the mean gradient estimate, g_hat(target, quasi_reward).

        Args:
            target: the target policy.
            quasi_reward: one number for each feature.
            baseline: the baseline; see `estimators.gradient`.

        Returns:
            The estimate, in the shape of a policy.
        """
        return self.answer(Gradient(quasi_reward, read_baseline(baseline), target=target))

    @final
    def statistics(self, target: Target = None) -> Statistics:
        """Return averages to log.

        Args:
            target: the policy whose importance weights are averaged.

        Returns:
            The averages.
        """
        return self.answer(Tally(target=target)).averages(self.size)

    @final
    def regression(self, quasi_reward: Float[Array, " d"]) -> Regression:
        """Return the sums of the linear baseline of *later* batches, for the behaviour policy.

        Args:
            quasi_reward: one number for each feature.

        Returns:
            The sums.
        """
        return self.answer(RegressionSums(quasi_reward))

    @final
    def observed(self, policy: Policy | None = None) -> ObservationMoments:
        """Return sums over the observations, around the running mean of a policy.

        Args:
            policy: the policy with the running mean; None is the behaviour policy.

        Returns:
            The sums.
        """
        return self.answer(ObservationSums(policy))

    @final
    def fisher_vector(self, vector: Policy) -> Policy:
        """Return the product of the Fisher information of the behaviour policy with a vector.

        Args:
            vector: the vector, in the shape of a policy.

        Returns:
            The product, in the shape of a policy.
        """
        return self.answer(FisherVector(vector))

    @final
    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """Return the derivatives of the occupancy and gradient estimates at the behaviour policy.

        Args:
            vector: the direction of the derivatives, in the shape of a policy.
            quasi_reward: one number for each feature.
            baseline: "none" or "mean".

        Returns:
            Both derivatives, the second in the shape of a policy.
        """
        return self.answer(HessianVector(vector, quasi_reward, read_baseline(baseline)))

    @final
    def transitions(self) -> Transitions:
        """Return counts of the transitions, where observations and actions are discrete."""
        return self.answer(TransitionCounts())

    @final
    def steps(self) -> Steps:
        """Return all steps of the trajectories, which are the same for every number of parts."""
        return without_padding(self.answer(AllSteps()), self.size)

    @final
    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of the utility at an occupancy. See `Problem.quasi_reward`.

        Args:
            occupancy: the occupancy.

        Returns:
            One number for each feature.
        """
        return self.problem.quasi_reward(occupancy)

    @final
    def utility(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the utility of an occupancy. See `Problem.estimated_utility`.

        Args:
            occupancy: the occupancy.

        Returns:
            The utility.
        """
        return self.problem.estimated_utility(occupancy)


def half_of(n: int) -> int:
    """Return half of an even number of trajectories."""
    if n % 2:
        raise ValueError(f"a batch must have an even number of trajectories to be halved, got {n}.")
    return n // 2

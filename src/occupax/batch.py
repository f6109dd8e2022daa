"""Sampled trajectories, and what algorithms ask of them."""

from abc import abstractmethod
from typing import Any, Literal, final

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Num

from occupax.baselines import Fit, Regression
from occupax.envs.actions import Kind
from occupax.policies import Observed, Policy
from occupax.problem import Problem

Baseline = Literal["none", "mean", "linear"]
Target = Policy | None
"""The policy that a batch is asked about; None is the one that acted."""


class Trajectories(eqx.Module):
    """A batch of B trajectories of H steps under a behaviour policy. Steps after the end are there but not `live`."""

    observations: Any
    """What was seen before each action, [B, H, ...]; after the end, what is seen there."""
    actions: Num[Array, "B H *n"]
    """As the policy drew them: before they are clipped to the bounds of the environment; 0 after the end."""
    log_probs: Float[Array, "B H"]
    """Log-probability of each action under the behaviour policy, recorded and constant; 0 after the end."""
    rewards: Float[Array, "B H"]
    live: Bool[Array, "B H"]
    """Whether the step was taken before the episode ended."""
    terminated: Bool[Array, " B"]
    """Whether the episode ended by itself, as opposed to being cut at the horizon or a time limit."""
    final_observations: Any
    """What is seen after the last live step, [B, ...]."""
    info: Float[Array, "B H k"] | None = None
    """The values that a simulator was asked to record at each step, if any; 0 after the end."""
    action_space: Kind = eqx.field(static=True, default="discrete")
    """That of the policy that acted, and of those that can be asked about."""

    @property
    def lengths(self) -> Int[Array, " B"]:
        """Number of live steps of each trajectory."""
        return self.live.sum(1)


class Earnings(eqx.Module):
    """What the trajectories of a batch still earn from each step on, weighted and discounted, summed over them.

    The mean baseline needs the sums over all of a batch, however many parts it is drawn in.
    """

    to_go: Float[Array, " H"]
    live: Int[Array, " H"]
    """How many trajectories take the step."""
    fit: Fit | None = None
    """What was taken off before, if anything; see `baselines`."""


AnyBaseline = Baseline | Fit | Earnings
"""Training makes a fit to earlier batches of "linear"; a part of a batch is given the earnings of the whole of it."""


class Statistics(eqx.Module):
    """What a batch says about its trajectories, on average unless stated otherwise."""

    undiscounted_return: Float[Array, ""]
    discounted_return: Float[Array, ""]
    steps: Int[Array, ""]
    """How many steps were taken in all."""
    episode_length: Float[Array, ""]
    largest_weight: Float[Array, ""]
    """The largest importance weight of the target policy at any step."""
    effective_sample_size: Float[Array, ""]
    """(sum w)^2 / sum w^2 over the weights of whole trajectories: as many on-policy ones would tell as much."""
    actions_clipped: Float[Array, ""]
    """The share of the steps whose action was outside of the bounds of the environment."""
    saturated: Float[Array, " n"]
    """Fraction of the steps with each entry of the action saturated; empty without bounds."""


class Transitions(eqx.Module):
    """What happened in the trajectories of a batch, where states and actions are numbered; sums over all of them."""

    initial: Float[Array, " S"]
    """How many trajectories began in each state."""
    counts: Float[Array, "S A S"]
    """How often an action in a state led to each state."""
    rewards: Float[Array, "S A"]
    """The sum of the rewards of each state and action."""
    ends: Float[Array, " S"]
    """How many trajectories ended by themselves in each state; one that is cut at the horizon does not."""
    info: Float[Array, "S A k"] | None = None
    """The sums of the values that a simulator was asked to record, if any."""


class Batch(eqx.Module):
    """What an algorithm asks of the trajectories of one iteration.

    Whoever sampled them answers, from arrays in memory or from sums computed elsewhere.
    """

    problem: eqx.AbstractVar[Problem]
    """What the trajectories were drawn from."""

    @abstractmethod
    def occupancy(self, target: Target = None) -> Float[Array, " d"]:
        """The mean occupancy estimate, u_hat(target)."""

    @abstractmethod
    def gradient(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Policy:
        """The mean gradient estimate, g_hat(target, quasi_reward), in the shape of a policy."""

    @abstractmethod
    def regression(self, quasi_reward: Float[Array, " d"]) -> Regression:
        """The sums of which the linear baseline of *later* batches is made, for the policy that acted."""

    @abstractmethod
    def observed(self, target: Policy) -> Observed:
        """Sums over what was seen, around the running mean that a policy has; see `policies.normalising`."""

    @abstractmethod
    def statistics(self, target: Target = None) -> Statistics:
        """Averages to record; the weights are those of `target`."""

    @abstractmethod
    def fisher_vector(self, vector: Policy) -> Policy:
        """The product of the Fisher information of the policy that acted with a vector in the shape of a policy."""

    @abstractmethod
    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: Baseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """The derivatives of both estimates, of occupancy and gradient, at the policy that acted, along a vector."""

    @abstractmethod
    def transitions(self) -> Transitions:
        """What led where, counted, where observations and actions are discrete."""

    @abstractmethod
    def halves(self) -> "tuple[Batch, Batch]":
        """Two independent batches of half the trajectories each."""

    @final
    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient of the utility at an occupancy; see `Problem.quasi_reward`."""
        return self.problem.quasi_reward(occupancy)

    @final
    def utility(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The utility of an occupancy; see `Problem.estimated_utility`."""
        return self.problem.estimated_utility(occupancy)

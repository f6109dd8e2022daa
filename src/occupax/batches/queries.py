"""The queries that the algorithms of this package need.

Each class has the formula for trajectories in memory; `estimators` has the mathematics.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from occupax import estimators
from occupax.baselines import Baseline, Regression, ReturnSums
from occupax.batches.query import Query, TargetQuery
from occupax.envs.actions import BoxActions
from occupax.envs.base import number_of_states
from occupax.policies import ObservationMoments, Policy, observation_moments
from occupax.policies.saturation import FLAT

if TYPE_CHECKING:
    from occupax.batches.batch import Batch
    from occupax.batches.sampled import SampledBatch

LARGEST_SQUARED = 1e9
"""Weights beyond it count as this in the effective sample size, whose squares must stay finite."""


class Occupancy(TargetQuery[Float[Array, " d"]]):
    """Mean occupancy of the target; see `estimators.occupancy`."""

    def compute(self, batch: "SampledBatch") -> Float[Array, " d"]:
        """Return the mean occupancy."""
        return estimators.occupancy_of(batch.problem, batch.scored(self.target))


class ReturnsToGo(TargetQuery[ReturnSums]):
    """Sums of the returns-to-go of the target, minus the fit of the baseline, which a mean baseline needs."""

    is_sum: ClassVar[bool] = True
    quasi_reward: Float[Array, " d"]
    baseline: Baseline

    def compute(self, batch: "SampledBatch") -> ReturnSums:
        """Return the sums over the trajectories."""
        return estimators.return_sums_of(
            batch.problem, batch.scored(self.target), self.quasi_reward, self.baseline
        )


class Gradient(TargetQuery[Policy]):
    """Mean gradient of <occupancy of the target, quasi_reward>; see `estimators.gradient`."""

    quasi_reward: Float[Array, " d"]
    baseline: Baseline

    def compute(self, batch: "SampledBatch") -> Policy:
        """Return the mean gradient, in the shape of a policy."""
        return estimators.gradient_of(
            batch.problem, batch.scored(self.target), self.quasi_reward, self.baseline
        )

    def complete(self, whole: "Batch") -> "Gradient":
        """Return the query with the returns-to-go of the whole batch, which a mean baseline is made of."""
        if self.baseline.name == "none":
            return self
        sums = whole.answer(ReturnsToGo(self.quasi_reward, self.baseline, target=self.target))
        return replace(self, baseline=replace(self.baseline, whole=sums))


class RegressionSums(Query[Regression]):
    """Sums of the linear baseline of later batches, under the behaviour policy; see `estimators.regression`."""

    is_sum: ClassVar[bool] = True
    quasi_reward: Float[Array, " d"]

    def compute(self, batch: "SampledBatch") -> Regression:
        """Return the sums over the trajectories."""
        return estimators.regression_of(batch.problem, batch.scored(None), self.quasi_reward)


class ObservationSums(Query[ObservationMoments]):
    """Sums over the observations, around the running mean of a policy; see `policies.normalising`."""

    is_sum: ClassVar[bool] = True
    policy: Policy | None = None
    """The policy with the running mean; None is the behaviour policy."""

    def compute(self, batch: "SampledBatch") -> ObservationMoments:
        """Return the sums over the live steps."""
        policy = batch.policy if self.policy is None else self.policy
        return observation_moments(policy, batch.trajectories.observations, batch.trajectories.live)


class FisherVector(Query[Policy]):
    """Product of the Fisher information of the behaviour policy with a vector; see `estimators.fisher_vector`."""

    vector: Policy

    def compute(self, batch: "SampledBatch") -> Policy:
        """Return the product, in the shape of a policy."""
        return estimators.fisher_vector(
            batch.problem, batch.trajectories, batch.policy, self.vector
        )


class HessianVector(Query[tuple[Float[Array, " d"], Policy]]):
    """Derivatives of both estimates at the behaviour policy along a vector; see `estimators.hessian_vector`."""

    vector: Policy
    quasi_reward: Float[Array, " d"]
    baseline: Baseline

    def compute(self, batch: "SampledBatch") -> tuple[Float[Array, " d"], Policy]:
        """Return the derivatives of the occupancy and of the gradient."""
        scored = batch.scored(None)
        return estimators.hessian_vector_of(
            batch.problem, scored, self.vector, self.quasi_reward, self.baseline
        )

    def complete(self, whole: "Batch") -> "HessianVector":
        """Return the query with the returns-to-go of the whole batch, which a mean baseline is made of."""
        if self.baseline.name != "mean":
            return self
        sums = whole.answer(ReturnsToGo(self.quasi_reward, self.baseline))
        return replace(self, baseline=replace(self.baseline, whole=sums))


class Statistics(eqx.Module):
    """Averages over the trajectories of a batch, unless stated otherwise."""

    undiscounted_return: Float[Array, ""]
    discounted_return: Float[Array, ""]
    steps: Int[Array, ""]
    """Number of steps in all."""
    episode_length: Float[Array, ""]
    largest_weight: Float[Array, ""]
    """Largest importance weight of the target policy at any step."""
    effective_sample_size: Float[Array, ""]
    """(sum w)^2 / sum w^2 over the weights of whole trajectories: as many on-policy ones would tell
    as much."""
    actions_clipped: Float[Array, ""]
    """Fraction of the steps whose action was outside of the bounds of the environment."""
    saturated: Float[Array, " n"]
    """Fraction of the steps with each entry of the action saturated; empty without bounds."""


class StatisticsSums(eqx.Module):
    """Sums over trajectories, of which `Statistics` are made."""

    returns: Float[Array, ""]
    discounted_returns: Float[Array, ""]
    steps: Int[Array, ""]
    weights: Float[Array, ""]
    squared_weights: Float[Array, ""]
    largest_weight: Float[Array, ""]
    clipped: Int[Array, ""]
    """Number of steps whose action was outside of the bounds of the environment."""
    saturated: Int[Array, " n"]
    """Number of steps with each entry of the action saturated; empty without bounds."""

    def averages(self, n: int) -> Statistics:
        """Return the averages over `n` trajectories."""
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


class Tally(TargetQuery[StatisticsSums]):
    """Sums of returns, steps and importance weights, and the largest weight."""

    is_sum: ClassVar[bool] = True

    def compute(self, batch: "SampledBatch") -> StatisticsSums:
        """Return the sums over the trajectories that took a step."""
        trajectories = batch.trajectories
        weights = jnp.where(trajectories.live, batch.scored(self.target).weights(), 0.0)
        last_step = jnp.maximum(trajectories.lengths - 1, 0)[:, None]
        last = jnp.take_along_axis(weights, last_step, 1)[:, 0]
        last = jnp.minimum(last, LARGEST_SQUARED)
        rewards = trajectories.rewards
        discounts = batch.problem.discount ** jnp.arange(rewards.shape[1], dtype=rewards.dtype)
        return StatisticsSums(
            returns=rewards.sum(),
            discounted_returns=jnp.sum(rewards * discounts),
            steps=trajectories.lengths.sum(),
            weights=last.sum(),
            squared_weights=jnp.sum(last**2),
            largest_weight=weights.max(),
            clipped=jnp.sum(_clipped(batch) & trajectories.live),
            saturated=jnp.sum(_saturated(batch) & trajectories.live[..., None], (0, 1)),
        )

    def merge(self, one: StatisticsSums, other: StatisticsSums) -> StatisticsSums:
        """Return the sums of two parts, and the larger of their largest weights."""
        total = jax.tree.map(jnp.add, one, other)
        return replace(total, largest_weight=jnp.maximum(one.largest_weight, other.largest_weight))


def _clipped(batch: "SampledBatch") -> Bool[Array, "#B #H"]:
    """Return at which steps the action was outside of the bounds of the environment."""
    space = batch.problem.env.action_space
    if not isinstance(space, BoxActions) or not space.bounded:
        return jnp.zeros((1, 1), bool)
    actions = jax.vmap(jax.vmap(batch.policy.applied))(batch.trajectories.actions)
    return jnp.any(space.clip(actions) != actions, -1)


def _saturated(batch: "SampledBatch") -> Bool[Array, "#B #H n"]:
    """Return whether each entry of each action is saturated; no entries without bounds."""
    space = batch.problem.env.action_space
    actions = batch.trajectories.actions
    if not isinstance(space, BoxActions) or not space.bounded:
        return jnp.zeros((1, 1, 0), bool)
    if batch.policy.action_space == "squashed":
        return jnp.abs(actions) > FLAT
    return space.clip(actions) != actions


class Transitions(eqx.Module):
    """Counts of the transitions between numbered states; sums over the trajectories of a batch."""

    initial: Float[Array, " S"]
    """Number of trajectories that began in each state."""
    counts: Float[Array, "S A S"]
    """How often an action in a state led to each state."""
    rewards: Float[Array, "S A"]
    """The sum of the rewards of each state and action."""
    ends: Float[Array, " S"]
    """Number of trajectories that terminated in each state; one that is truncated at the horizon
    does not."""
    info: Float[Array, "S A k"] | None = None
    """The sums of the values of the simulator's `info`, if any are recorded."""


class TransitionCounts(Query[Transitions]):
    """Counts of transitions, where observations and actions are discrete."""

    is_sum: ClassVar[bool] = True

    def compute(self, batch: "SampledBatch") -> Transitions:
        """Return the counts over the live steps."""
        trajectories = batch.trajectories
        env = batch.problem.env
        states = number_of_states(env)
        if states is None or trajectories.action_space != "discrete":
            raise ValueError(
                f"transitions are counted where observations and actions are discrete, which those of "
                f"{type(env).__name__} are not."
            )
        before = trajectories.observations
        actions = trajectories.actions
        final = trajectories.final_observations
        after = jnp.concatenate([before[:, 1:], final[:, None]], 1)
        live = trajectories.live.astype(trajectories.rewards.dtype)
        is_there = (
            trajectories.live[:, 0] | trajectories.terminated
        )  # one that begins where it ends takes no step
        by_state = jnp.zeros(states, live.dtype)
        by_pair = jnp.zeros((states, env.num_actions), live.dtype)
        by_step = jnp.zeros((*by_pair.shape, states), live.dtype)
        info = trajectories.info
        if info is not None:
            info = jnp.zeros((*by_pair.shape, info.shape[-1])).at[before, actions].add(info)
        return Transitions(
            initial=by_state.at[before[:, 0]].add(is_there),
            counts=by_step.at[before, actions, after].add(live),
            rewards=by_pair.at[before, actions].add(trajectories.rewards),
            ends=by_state.at[final].add(trajectories.terminated),
            info=info,
        )

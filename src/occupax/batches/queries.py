"""Abstract query about a batch of trajectories, and the queries of the algorithms.

Each class has the formula for trajectories in memory. `estimators` has the mathematics.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from occupax import estimators
from occupax.baselines import Baseline, Regression, ReturnSums
from occupax.envs.actions import BoxActions
from occupax.envs.base import number_of_states
from occupax.features import Count
from occupax.policies import ObservationMoments, Policy, observation_moments
from occupax.policies.saturation import FLAT

if TYPE_CHECKING:
    from occupax.batches.batch import Batch
    from occupax.batches.sampled import SampledBatch

Answer = TypeVar("Answer")
Target = Policy | None
"""Target policy of a query; None is the behaviour policy, which drew the batch."""

MAX_SQUARED_WEIGHT = 1e9
"""Upper bound of the weights in the effective sample size, whose squares must stay finite."""


class Query(eqx.Module, Generic[Answer]):
    """A query about a batch of trajectories. Subclass it to define a query for every sampler.

    A query consists of arrays, policies and static values, because it is sent to the workers that
    hold the trajectories.
    """

    is_sum: ClassVar[bool] = False
    """Whether the answer is a sum over the trajectories. See `is_mean` for other answers."""
    is_concatenation: ClassVar[bool] = False
    """Whether the arrays of the answer have one row for each trajectory. Parts are concatenated."""
    is_complete: bool = eqx.field(static=True, default=False, kw_only=True)
    """Whether `complete` was called already: parts of a batch may consist of parts themselves."""

    @abstractmethod
    def compute(self, batch: "SampledBatch") -> Answer:
        """Return the answer from trajectories in memory. JAX may trace this method.

        A part of a batch may be padded with trajectories without a live step. A mean is over all
        trajectories, and the contribution of the padding must be zero.

        Args:
            batch: the trajectories with their problem and behaviour policy.

        Returns:
            The answer: arrays, or a tree of arrays.
        """

    def merge(self, one: Answer, other: Answer) -> Answer:
        """Return the merged answer of two parts of a batch.

        By default the sum of both answers or, for a concatenation, the rows of both.

        Args:
            one: the answer of the first part.
            other: the answer of the second part.

        Returns:
            The merged answer.
        """
        if self.is_concatenation:
            return jax.tree.map(lambda rows, others: jnp.concatenate([rows, others]), one, other)
        return jax.tree.map(jnp.add, one, other)

    @property
    def is_mean(self) -> bool:
        """Whether the answer is a mean over the trajectories, and answers of parts are averaged.

        False for sums, for concatenations, and for a class with a `merge` of its own.
        """
        has_own_merge = type(self).merge is not Query.merge
        return not (self.is_sum or self.is_concatenation or has_own_merge)

    def complete(self, whole: "Batch") -> "Query[Answer]":
        """Return the query with the statistics of the whole batch that each part needs.

        Args:
            whole: the whole batch, which may be queried.

        Returns:
            The query for the parts; by default the query itself.
        """
        del whole
        return self

    @final
    def completed(self, whole: "Batch") -> "Query[Answer]":
        """Return the complete query. A complete query is returned unchanged.

        Args:
            whole: the whole batch.

        Returns:
            The complete query.
        """
        if self.is_complete:
            return self
        return replace(self.complete(whole), is_complete=True)


class TargetQuery(Query[Answer]):
    """A query with a target policy."""

    target: Target = eqx.field(default=None, kw_only=True)
    """Target policy. None is the behaviour policy."""


class Occupancy(TargetQuery[Float[Array, " d"]]):
    """Mean occupancy of the target policy. See `estimators.occupancy`."""

    def compute(self, batch: "SampledBatch") -> Float[Array, " d"]:
        """Return the mean occupancy."""
        return estimators.occupancy_of(batch.problem, batch.scored(self.target))


class ReturnsToGo(TargetQuery[ReturnSums]):
    """Sums of the returns-to-go of the target policy, minus the fit of the baseline."""

    is_sum: ClassVar[bool] = True
    quasi_reward: Float[Array, " d"]
    """One number for each feature."""
    baseline: Baseline
    """Baseline whose fit is subtracted, if there is one."""

    def compute(self, batch: "SampledBatch") -> ReturnSums:
        """Return the sums over the trajectories."""
        scored = batch.scored(self.target)
        return estimators.return_sums_of(batch.problem, scored, self.quasi_reward, self.baseline)


class Gradient(TargetQuery[Policy]):
    """Mean gradient of <occupancy of the target, quasi_reward>. See `estimators.gradient`."""

    quasi_reward: Float[Array, " d"]
    """One number for each feature."""
    baseline: Baseline
    """Baseline of the returns-to-go."""

    def compute(self, batch: "SampledBatch") -> Policy:
        """Return the mean gradient, in the shape of a policy."""
        scored = batch.scored(self.target)
        return estimators.gradient_of(batch.problem, scored, self.quasi_reward, self.baseline)

    def complete(self, whole: "Batch") -> "Gradient":
        """Return the query with the returns-to-go of the whole batch, for a mean baseline."""
        if self.baseline.name == "none":
            return self
        sums = whole.answer(ReturnsToGo(self.quasi_reward, self.baseline, target=self.target))
        return replace(self, baseline=replace(self.baseline, whole=sums))


class RegressionSums(Query[Regression]):
    """Sums of the linear baseline of later batches, under the behaviour policy."""

    is_sum: ClassVar[bool] = True
    quasi_reward: Float[Array, " d"]
    """One number for each feature."""

    def compute(self, batch: "SampledBatch") -> Regression:
        """Return the sums over the trajectories."""
        return estimators.regression_of(batch.problem, batch.scored(None), self.quasi_reward)


class ObservationSums(Query[ObservationMoments]):
    """Sums over the observations around the running mean of a policy."""

    is_sum: ClassVar[bool] = True
    policy: Policy | None = None
    """Policy with the running mean. None is the behaviour policy."""

    def compute(self, batch: "SampledBatch") -> ObservationMoments:
        """Return the sums over the live steps."""
        policy = self.policy
        if policy is None:
            policy = batch.policy
        return observation_moments(policy, batch.trajectories.observations, batch.trajectories.live)


class FisherVector(Query[Policy]):
    """Product of the Fisher information of the behaviour policy with a vector."""

    vector: Policy
    """One number for each parameter, as a policy."""

    def compute(self, batch: "SampledBatch") -> Policy:
        """Return the product, in the shape of a policy."""
        trajectories = batch.trajectories
        return estimators.fisher_vector(batch.problem, trajectories, batch.policy, self.vector)


class HessianVector(Query[tuple[Float[Array, " d"], Policy]]):
    """Derivatives of the estimates of occupancy and gradient along a vector, on-policy."""

    vector: Policy
    """One number for each parameter, as a policy."""
    quasi_reward: Float[Array, " d"]
    """One number for each feature."""
    baseline: Baseline
    """Baseline of the returns-to-go, "none" or "mean"."""

    def compute(self, batch: "SampledBatch") -> tuple[Float[Array, " d"], Policy]:
        """Return the derivatives of the occupancy and of the gradient."""
        scored = batch.scored(None)
        return estimators.hessian_vector_of(
            batch.problem, scored, self.vector, self.quasi_reward, self.baseline
        )

    def complete(self, whole: "Batch") -> "HessianVector":
        """Return the query with the returns-to-go of the whole batch, for a mean baseline."""
        if self.baseline.name != "mean":
            return self
        sums = whole.answer(ReturnsToGo(self.quasi_reward, self.baseline))
        return replace(self, baseline=replace(self.baseline, whole=sums))


class Statistics(eqx.Module):
    """Averages over the trajectories of a batch, unless stated otherwise."""

    undiscounted_return: Float[Array, ""]
    """Sum of the rewards of an episode."""
    discounted_return: Float[Array, ""]
    """Discounted sum of the rewards of an episode."""
    steps: Int[Array, ""]
    """Total number of steps."""
    episode_length: Float[Array, ""]
    """Number of steps of an episode."""
    largest_weight: Float[Array, ""]
    """Largest importance weight of the target policy at any step."""
    effective_sample_size: Float[Array, ""]
    """(sum w)^2 / sum w^2 over the weights of whole trajectories: the number of on-policy
    trajectories with the same variance."""
    actions_clipped: Float[Array, ""]
    """Fraction of the steps whose action was outside of the bounds of the environment."""
    saturated: Float[Array, " n"]
    """Fraction of the steps with each entry of the action saturated. Empty without bounds."""


class StatisticsSums(eqx.Module):
    """Sums over trajectories from which `Statistics` are computed."""

    returns: Float[Array, ""]
    discounted_returns: Float[Array, ""]
    steps: Int[Array, ""]
    weights: Float[Array, ""]
    squared_weights: Float[Array, ""]
    largest_weight: Float[Array, ""]
    clipped: Int[Array, ""]
    """Number of steps whose action was outside of the bounds of the environment."""
    saturated: Int[Array, " n"]
    """Number of steps with each entry of the action saturated. Empty without bounds."""

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
        live = trajectories.live
        weights = jnp.where(live, batch.scored(self.target).weights(), 0.0)
        last_step = jnp.maximum(trajectories.lengths - 1, 0)[:, None]
        last = jnp.take_along_axis(weights, last_step, 1)[:, 0]
        last = jnp.minimum(last, MAX_SQUARED_WEIGHT)
        rewards = trajectories.rewards
        discounts = batch.problem.discount ** jnp.arange(rewards.shape[1], dtype=rewards.dtype)
        return StatisticsSums(
            returns=rewards.sum(),
            discounted_returns=jnp.sum(rewards * discounts),
            steps=trajectories.lengths.sum(),
            weights=last.sum(),
            squared_weights=jnp.sum(last**2),
            largest_weight=weights.max(),
            clipped=jnp.sum(_clipped(batch) & live),
            saturated=jnp.sum(_saturated(batch) & live[..., None], (0, 1)),
        )

    def merge(self, one: StatisticsSums, other: StatisticsSums) -> StatisticsSums:
        """Return the sums of two parts, and the larger of their largest weights."""
        total = jax.tree.map(jnp.add, one, other)
        return replace(total, largest_weight=jnp.maximum(one.largest_weight, other.largest_weight))


def _clipped(batch: "SampledBatch") -> Bool[Array, "#B #H"]:
    """Return whether the action of each step was outside of the bounds of the environment."""
    space = batch.problem.env.action_space
    if not isinstance(space, BoxActions) or not space.bounded:
        return jnp.zeros((1, 1), bool)
    actions = jax.vmap(jax.vmap(batch.policy.applied))(batch.trajectories.actions)
    return jnp.any(space.clip(actions) != actions, -1)


def _saturated(batch: "SampledBatch") -> Bool[Array, "#B #H n"]:
    """Return whether each entry of each action is saturated. No entries without bounds."""
    space = batch.problem.env.action_space
    actions = batch.trajectories.actions
    if not isinstance(space, BoxActions) or not space.bounded:
        return jnp.zeros((1, 1, 0), bool)
    if batch.policy.action_space == "squashed":
        return jnp.abs(actions) > FLAT
    return space.clip(actions) != actions


class Transitions(eqx.Module):
    """Counts of the transitions between numbered states, summed over trajectories."""

    initial: Float[Array, " S"]
    """Number of trajectories that began in each state."""
    counts: Float[Array, "S A S"]
    """Number of transitions from a state by an action to each state."""
    rewards: Float[Array, "S A"]
    """Sum of the rewards of each state and action."""
    ends: Float[Array, " S"]
    """Number of trajectories that terminated in each state. Truncation does not count."""
    info: Float[Array, "S A k"] | None = None
    """Sums of the values of the simulator's `info`, if any are recorded."""


class TransitionCounts(Query[Transitions]):
    """Counts of transitions, where observations and actions are discrete."""

    is_sum: ClassVar[bool] = True

    def compute(self, batch: "SampledBatch") -> Transitions:
        """Return the counts over the live steps."""
        trajectories = batch.trajectories
        env = batch.problem.env
        S = number_of_states(env)
        if S is None or trajectories.action_space != "discrete":
            raise ValueError(
                "transitions are counted where observations and actions are discrete, got "
                f"{type(env).__name__}."
            )
        states = trajectories.observations
        actions = trajectories.actions
        final = trajectories.final_observations
        next_states = jnp.concatenate([states[:, 1:], final[:, None]], 1)
        live = trajectories.live.astype(trajectories.rewards.dtype)
        # a trajectory that begins in a terminal state takes no step
        exists = trajectories.live[:, 0] | trajectories.terminated
        by_state = jnp.zeros(S, live.dtype)
        by_pair = jnp.zeros((S, env.num_actions), live.dtype)
        by_transition = jnp.zeros((S, env.num_actions, S), live.dtype)
        info = trajectories.info
        if info is not None:
            info = jnp.zeros((*by_pair.shape, info.shape[-1])).at[states, actions].add(info)
        return Transitions(
            initial=by_state.at[states[:, 0]].add(exists),
            counts=by_transition.at[states, actions, next_states].add(live),
            rewards=by_pair.at[states, actions].add(trajectories.rewards),
            ends=by_state.at[final].add(trajectories.terminated),
            info=info,
        )


class Steps(eqx.Module):
    """All steps of n trajectories of at most H steps, with their features."""

    observations: Any
    """Observations before each action, and the final observation behind them, [n, H + 1, ...]."""
    actions: Num[Array, "n H *k"]
    """Actions as the policy drew them; 0 after the end."""
    log_probs: Float[Array, "n H"]
    """Log-probability of each action under the behaviour policy; 0 after the end."""
    features: Count
    """Features of each step, [n, H]; arbitrary values after the end."""
    terminal_features: Count | None
    """Expected features of the terminal state, [n]; zero for a trajectory that did not terminate.
    None unless terminal states are absorbing."""
    live: Bool[Array, "n H"]
    """Whether the step was taken before the episode ended."""
    terminated: Bool[Array, " n"]
    """Whether the episode terminated, as opposed to being truncated."""


class AllSteps(Query[Steps]):
    """All steps of the trajectories, for algorithms that go through them repeatedly."""

    is_sum: ClassVar[bool] = True
    is_concatenation: ClassVar[bool] = True

    def compute(self, batch: "SampledBatch") -> Steps:
        """Return all steps of the batch with their features."""
        problem = batch.problem
        trajectories = batch.trajectories

        def with_final(rows: Array, end: Array) -> Array:
            return jnp.concatenate([rows, end[:, None]], 1)

        final = trajectories.final_observations
        terminal_features = None
        if problem.termination == "absorbing":
            terminal_features = estimators.terminal_features(problem, trajectories, batch.policy)
        return Steps(
            observations=jax.tree.map(with_final, trajectories.observations, final),
            actions=trajectories.actions,
            log_probs=trajectories.log_probs,
            features=estimators.step_features(problem, trajectories, batch.policy),
            terminal_features=terminal_features,
            live=trajectories.live,
            terminated=trajectories.terminated,
        )


def without_padding(steps: Steps, n: int) -> Steps:
    """Return the steps of the `n` trajectories of a batch, without the padding of its parts.

    Trajectories without a live step are moved behind all others, so that the result does not depend
    on the number of parts.

    Args:
        steps: the steps of all parts.
        n: the number of trajectories of the batch.
    """
    order = jnp.argsort(~steps.live[:, 0], stable=True)[:n]
    return jax.tree.map(lambda rows: rows[order], steps)

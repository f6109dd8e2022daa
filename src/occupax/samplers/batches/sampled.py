"""A batch whose trajectories are all in memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from occupax import estimators
from occupax.baselines import Fit, Regression
from occupax.batch import AnyBaseline, Batch, Earnings, Target, Trajectories, Transitions
from occupax.envs.actions import BoxActions
from occupax.envs.base import number_of_states
from occupax.estimators import LogProbs, LogProbsAlong
from occupax.policies import Observed, Policy, observed
from occupax.policies.saturation import FLAT
from occupax.problem import Problem
from occupax.samplers.batches.block import LARGEST_SQUARED, Block, Tally, half_of


class SampledBatch(Block):
    """Trajectories of a problem, with the policy that acted in them."""

    problem: Problem
    trajectories: Trajectories
    policy: Policy

    @property
    def size(self) -> int:
        """How many trajectories there are."""
        return len(self.trajectories.actions)

    def log_probs_of(self, target: Target) -> LogProbs:
        """How the log-probabilities of a target are computed."""
        return Policy.log_probs

    @property
    def log_probs_along(self) -> LogProbsAlong:
        """How the log-probabilities of the policy that acted, and their derivatives along a vector, are computed."""
        return estimators.log_probs_along

    def occupancy(self, target: Target = None) -> Float[Array, " d"]:
        """The mean occupancy estimate, by `estimators.occupancy`."""
        return estimators.occupancy(self.problem, *self._about(target))

    def gradient(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Policy:
        """The mean gradient estimate, by `estimators.gradient`."""
        trajectories, policy, log_probs, acted = self._about(target)
        return estimators.gradient(self.problem, trajectories, policy, quasi_reward, baseline, log_probs, acted)

    def earnings(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Earnings:
        """The sums that a mean baseline needs, by `estimators.earnings`."""
        trajectories, policy, log_probs, acted = self._about(target)
        fit = baseline if isinstance(baseline, Fit) else None
        return estimators.earnings(self.problem, trajectories, policy, quasi_reward, fit, log_probs, acted)

    def regression(self, quasi_reward: Float[Array, " d"]) -> Regression:
        """The sums that a linear baseline of later batches needs, by `estimators.regression`."""
        return estimators.regression(self.problem, self.trajectories, self.policy, quasi_reward)

    def observed(self, target: Policy | None) -> Observed:
        """Sums over what was seen, around the mean of the policy asked about."""
        policy = self.policy if target is None else target
        return observed(policy, self.trajectories.observations, self.trajectories.live)

    def _about(self, target: Target) -> tuple[Trajectories, Policy, LogProbs, bool]:
        """The trajectories, the target, how its log-probabilities are computed, and whether it acted."""
        acted = target is None or target is self.policy
        return self.trajectories, self.policy if target is None else target, self.log_probs_of(target), acted

    def tally(self, target: Target = None) -> Tally:
        """Sums over the trajectories that took a step."""
        taken = self.trajectories
        weight = jnp.where(taken.live, estimators.weights(*self._about(target)), 0.0)
        last = jnp.take_along_axis(weight, jnp.maximum(taken.lengths - 1, 0)[:, None], 1)[:, 0]
        last = jnp.minimum(last, LARGEST_SQUARED)
        discounts = self.problem.discount ** jnp.arange(taken.rewards.shape[1], dtype=taken.rewards.dtype)
        return Tally(
            returns=taken.rewards.sum(),
            discounted_returns=jnp.sum(taken.rewards * discounts),
            steps=taken.lengths.sum(),
            weights=last.sum(),
            squared_weights=jnp.sum(last**2),
            largest_weight=weight.max(),
            clipped=jnp.sum(self._clipped() & taken.live),
            saturated=jnp.sum(self._saturated() & taken.live[..., None], (0, 1)),
        )

    def _clipped(self) -> Bool[Array, "#B #H"]:
        """At which steps the action was outside of the bounds of the environment."""
        space = self.problem.env.action_space
        if not isinstance(space, BoxActions) or not space.bounded:
            return jnp.zeros((1, 1), bool)
        actions = jax.vmap(jax.vmap(self.policy.applied))(self.trajectories.actions)
        return jnp.any(space.clip(actions) != actions, -1)

    def _saturated(self) -> Bool[Array, "#B #H n"]:
        """Whether each entry of each action is saturated; no entries without bounds."""
        space, actions = self.problem.env.action_space, self.trajectories.actions
        if not isinstance(space, BoxActions) or not space.bounded:
            return jnp.zeros((1, 1, 0), bool)
        if self.policy.action_space == "squashed":
            return jnp.abs(actions) > FLAT
        return space.clip(actions) != actions

    def fisher_vector(self, vector: Policy) -> Policy:
        """The product with the Fisher information, by `estimators.fisher_vector`."""
        return estimators.fisher_vector(self.problem, self.trajectories, self.policy, vector)

    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """The derivatives of both estimates along a vector, by `estimators.hessian_vector`."""
        about = self.problem, self.trajectories, self.policy
        return estimators.hessian_vector(*about, vector, quasi_reward, baseline, self.log_probs_along)

    def transitions(self) -> Transitions:
        """What led where, counted."""
        taken, env = self.trajectories, self.problem.env
        states = number_of_states(env)
        if states is None or taken.action_space != "discrete":
            raise ValueError(
                f"transitions are counted where observations and actions are discrete, which those of "
                f"{type(env).__name__} are not."
            )
        seen, actions, live = taken.observations, taken.actions, taken.live.astype(taken.rewards.dtype)
        following = jnp.concatenate([seen[:, 1:], taken.final_observations[:, None]], 1)
        there = taken.live[:, 0] | taken.terminated  # one that begins where it ends takes no step
        none = jnp.zeros((states, env.num_actions), live.dtype)
        info = taken.info
        return Transitions(
            initial=none[:, 0].at[seen[:, 0]].add(there),
            counts=jnp.zeros((*none.shape, states), live.dtype).at[seen, actions, following].add(live),
            rewards=none.at[seen, actions].add(taken.rewards),
            ends=none[:, 0].at[taken.final_observations].add(taken.terminated),
            info=None if info is None else jnp.zeros((*none.shape, info.shape[-1])).at[seen, actions].add(info),
        )

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        half = half_of(self.size)
        first = jax.tree.map(lambda leaf: leaf[:half], self.trajectories)
        second = jax.tree.map(lambda leaf: leaf[half:], self.trajectories)
        return replace(self, trajectories=first), replace(self, trajectories=second)

"""Deterministic policies: the most probable action of another policy."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from occupax.envs.actions import DiscreteActions, Kind
from occupax.envs.base import DecisionProcess
from occupax.policies.base import Action, Policy
from occupax.policies.categorical import Categorical, SoftmaxProduct, action_probs
from occupax.policies.gaussian import Normal


class Greedy(Policy):
    """The most probable action of another policy. Of a Gaussian distribution, the mean."""

    policy: Policy
    num_actions: int = eqx.field(static=True)
    """Number of discrete actions; 0 for actions that are vectors."""

    @property
    def action_space(self) -> Kind:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Action space of the other policy."""
        return self.policy.action_space

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Action, Float[Array, ""]]:
        """Return the most probable action and 0, or NaN if probabilities are not finite."""
        del key
        action, scores = self._mode(observation)
        return action, _zero_or_nan(scores)

    def log_prob(self, observation: Any, action: Any) -> Float[Array, ""]:
        """Return 0 for the most probable action and minus infinity for others.

        Actions that are vectors always have 0.
        """
        mode, scores = self._mode(observation)
        log_prob = _zero_or_nan(scores)
        if self.num_actions == 0:
            return log_prob
        return jnp.where(action == mode, log_prob, -jnp.inf)

    def applied(self, sample: Action) -> Action:
        """Return the action of a sample of the other policy."""
        return self.policy.applied(sample)

    def _mode(self, observation: Any) -> tuple[Action, Array]:
        """Return the most probable sample, and the numbers that determine it."""
        if isinstance(self.policy, Categorical | SoftmaxProduct):
            logits = self.policy.logits(observation)
            return jnp.argmax(logits, -1), logits
        if isinstance(self.policy, Normal):
            means, _ = self.policy.distribution(observation)
            return self.policy.sample_of(means), means
        probs = action_probs(self.policy, observation, self.num_actions)
        return jnp.argmax(probs), probs


def _zero_or_nan(scores: Array) -> Float[Array, ""]:
    return 0.0 * jnp.max(scores)


def greedy(policy: Policy, env: DecisionProcess) -> Greedy:
    """Return the policy of the most probable actions of another one in an environment."""
    if isinstance(env.action_space, DiscreteActions):
        return Greedy(policy, env.num_actions)
    if isinstance(policy, SoftmaxProduct | Normal):
        return Greedy(policy, 0)
    raise unknown_mode_error(policy)


def unknown_mode_error(policy: Policy) -> ValueError:
    """Return the error for a policy without a known most probable action."""
    reason = f"the most probable action of {type(policy).__name__} is not known"
    return ValueError(f"deterministic must be False, because {reason}.")

"""Policies without randomness: the most probable action of another policy."""

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
    """The most probable action of another policy; of a Gaussian distribution, the mean."""

    policy: Policy
    num_actions: int = eqx.field(static=True)
    """The number of discrete actions; 0 for actions that are vectors."""

    @property
    def action_space(self) -> Kind:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kind of action of the other policy."""
        return self.policy.action_space

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Action, Float[Array, ""]]:
        """Return the most probable action and 0, or NaN if probabilities are not finite."""
        del key
        action, scores = self._mode(observation)
        return action, 0.0 * jnp.max(scores)

    def log_prob(self, observation: Any, action: Any) -> Float[Array, ""]:
        """Return 0 for the most probable action and minus infinity for others.

        Actions that are vectors always have 0.
        """
        mode, scores = self._mode(observation)
        certain = 0.0 * jnp.max(scores)
        return jnp.where(action == mode, certain, -jnp.inf) if self.num_actions else certain

    def applied(self, drawn: Action) -> Action:
        """Return the action for `drawn` as the other policy does."""
        return self.policy.applied(drawn)

    def _mode(self, observation: Any) -> tuple[Action, Array]:
        """Return the action as `draw` of the other policy would, and the numbers that decide it."""
        if isinstance(self.policy, Categorical | SoftmaxProduct):
            logits = self.policy.logits(observation)
            return jnp.argmax(logits, -1), logits
        if isinstance(self.policy, Normal):
            means = self.policy.law(observation)[0]
            return self.policy.drawn(means), means
        probs = action_probs(self.policy, observation, self.num_actions)
        return jnp.argmax(probs), probs


def greedy(policy: Policy, env: DecisionProcess) -> Greedy:
    """Return the policy that takes the most probable actions of another one in an environment."""
    discrete = isinstance(env.action_space, DiscreteActions)
    if not discrete and not isinstance(policy, SoftmaxProduct | Normal):
        kind = type(policy).__name__
        raise ValueError(
            f"deterministic must be False, because the most probable action of {kind} is not known."
        )
    return Greedy(policy, env.num_actions if discrete else 0)

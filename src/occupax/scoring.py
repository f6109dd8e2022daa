"""Log-ratios and importance weights of trajectories under a target policy."""

from abc import abstractmethod
from dataclasses import replace
from typing import Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.policies import Policy, PolicyType, check_policy
from occupax.trajectories import Trajectories


class Scorer(eqx.Module):
    """Log-probabilities of trajectories, computed by the policy or by a kernel."""

    @abstractmethod
    def log_probs(
        self, policy: Policy, trajectories: Trajectories, on_policy: bool
    ) -> Float[Array, "B H"]:
        """Return the log-probability of each action, differentiable in the parameters.

        Args:
            policy: the target policy.
            trajectories: the batch.
            on_policy: whether the target is the behaviour policy, whose log-probabilities are
                recorded.
        """

    @abstractmethod
    def log_probs_along(
        self, policy: Policy, vector: Policy, trajectories: Trajectories
    ) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
        """Return the behaviour log-probabilities and their derivatives along a vector."""


class PolicyScorer(Scorer):
    """Log-probabilities by the policy itself."""

    def log_probs(
        self, policy: Policy, trajectories: Trajectories, on_policy: bool
    ) -> Float[Array, "B H"]:
        """Return the log-probability of each action."""
        del on_policy
        return policy.log_probs(trajectories)

    def log_probs_along(
        self, policy: Policy, vector: Policy, trajectories: Trajectories
    ) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
        """Return the log-probabilities and their derivatives along a vector."""
        params, static = eqx.partition(policy, eqx.is_inexact_array)
        tangent = eqx.filter(vector, eqx.is_inexact_array)

        def log_probs(params: Policy) -> Float[Array, "B H"]:
            return eqx.combine(params, static).log_probs(trajectories)

        return jax.jvp(log_probs, (params,), (tangent,))


class Scored(eqx.Module, Generic[PolicyType]):
    """Trajectories with the log-ratios and importance weights of one target policy."""

    trajectories: Trajectories
    target: PolicyType
    scorer: Scorer = eqx.field(default_factory=PolicyScorer)
    on_policy: bool = eqx.field(static=True, default=False)
    """Whether the target is the behaviour policy, so that all weights are 1."""

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return len(self.trajectories.actions)

    def at(self, target: PolicyType) -> "Scored[PolicyType]":
        """Return the view of a target with other parameters, for derivatives."""
        return replace(self, target=target)

    def log_ratios(self) -> Float[Array, "B H"]:
        """Return log pi_target(a|s) - b at each step, 0 after the end.

        The recorded log-probability under the behaviour policy is b.
        """
        target = self.target
        trajectories = self.trajectories
        check_policy(target)
        if target.action_space != trajectories.action_space:
            got = f'{type(target).__name__}, which is "{target.action_space}"'
            raise ValueError(
                f'target must be of the kind that acted, "{trajectories.action_space}", got {got}.'
            )
        log_probs = self.scorer.log_probs(target, trajectories, self.on_policy)
        return jnp.where(trajectories.live, log_probs - trajectories.log_probs, 0.0)

    def weights(self) -> Float[Array, "B H"]:
        """Return the importance weights. See `estimators.weights`."""
        return self.weights_of(self.log_ratios())

    def weights_of(self, log_ratios: Float[Array, "B H"]) -> Float[Array, "B H"]:
        """Return the importance weights of known log-ratios."""
        if self.on_policy:
            return jnp.ones_like(log_ratios)
        cap = 0.5 * jnp.log(jnp.finfo(log_ratios.dtype).max)
        return jnp.exp(jnp.minimum(jnp.cumsum(log_ratios, 1), cap))

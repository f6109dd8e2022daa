"""A batch whose trajectories are all in memory."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from occupax import estimators
from occupax.batch import Batch, Trajectories
from occupax.policies import Policy
from occupax.problem import Problem


class SampledBatch(Batch):
    """Trajectories of a problem, with the policy that acted in them."""

    problem: Problem
    trajectories: Trajectories
    policy: Policy

    def occupancy(self, target: Policy | None = None) -> Float[Array, " d"]:
        """See `estimators.occupancy`."""
        return estimators.occupancy(self.problem, self.trajectories, self._target(target))

    def gradient(self, quasi_reward: Float[Array, " d"], target: Policy | None = None) -> Policy:
        """See `estimators.gradient`."""
        return estimators.gradient(self.problem, self.trajectories, self._target(target), quasi_reward)

    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Grad F at the projection on its domain."""
        utility = self.problem.utility
        return utility.gradient(utility.domain(occupancy))

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        n = self.trajectories.actions.shape[0]
        if n % 2:
            raise ValueError(f"a batch must have an even number of trajectories to be halved, got {n}.")
        first = jax.tree.map(lambda leaf: leaf[: n // 2], self.trajectories)
        second = jax.tree.map(lambda leaf: leaf[n // 2 :], self.trajectories)
        return eqx.tree_at(lambda it: it.trajectories, self, first), eqx.tree_at(
            lambda it: it.trajectories, self, second
        )

    def _target(self, target: Policy | None) -> Policy:
        return self.policy if target is None else target

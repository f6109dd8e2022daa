"""The recursion with two quasi-rewards, which carries estimates for any utility along from policy to policy."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax.algorithms.base import Phase, RecursiveState, WeightedAlgorithm, add, choose, no_gradient, scale, subtract
from occupax.batches import Batch
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Step


class CarriedState(RecursiveState):
    """The running estimates u_{t-1} and d_{t-1}, the policy before the last step, and the last two quasi-rewards."""

    quasi_reward: Float[Array, " d"]
    """r_{t-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """r_{t-2}."""


class CarryingAlgorithm(WeightedAlgorithm[CarriedState]):
    """An algorithm that keeps a share of the estimates it has, corrected for the last step, at every refinement.

    The quasi-rewards are one step old because r_t depends on the batch of iteration t: used there, it would bias the
    estimate.
    """

    batch: int = eqx.field(static=True, default=20)

    @property
    def phases(self) -> tuple[Phase[CarriedState], ...]:
        """N trajectories, or B."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._recursion)

    def phase(self, iteration: int | Int[Array, ""]) -> int | Int[Array, ""]:
        """The first iteration alone is large."""
        return (iteration > 0) * 1

    @abstractmethod
    def _recursion(self, state: CarriedState, batch: Batch, key: Key[Array, ""]) -> CarriedState:
        """The next state after a small batch."""

    def init(self, problem: Problem, policy: Policy) -> CarriedState:
        """No estimates yet."""
        zero, memory, fresh = jnp.zeros(problem.size), self.step().init(policy), jnp.zeros((), bool)
        return CarriedState(policy, zero, no_gradient(policy), memory, fresh, policy, zero, zero)

    def _snapshot(self, state: CarriedState, batch: Batch, key: Key[Array, ""]) -> CarriedState:
        u = batch.occupancy()
        r = batch.quasi_reward(u)  # r_t, and r_{t-1} as well
        d = batch.gradient(None, r, self.baseline)
        policy, memory = self.step()(state.policy, d, state.memory, batch)
        return CarriedState(policy, u, d, memory, jnp.zeros((), bool), state.policy, r, r)

    def _carry(self, state: CarriedState, batch: Batch, kept: Number, step: Step) -> CarriedState:
        """d_t = kept d_{t-1} + mean[ g_hat(theta_t, r_{t-1}) - kept g_hat(theta_{t-1}, r_{t-2}) ], and u_t likewise."""
        then, now = state.previous, state.policy
        trusted, fresh_u = self.trusts(batch, then), batch.occupancy()
        u = choose(trusted, kept * state.occupancy + fresh_u - kept * batch.occupancy(then), fresh_u)
        new = batch.gradient(None, state.quasi_reward, self.baseline)
        old = batch.gradient(then, state.previous_quasi_reward, self.baseline)
        d = choose(trusted, add(scale(kept, state.gradient), subtract(new, scale(kept, old))), new)
        policy, memory = step(now, d, state.memory, batch)
        return CarriedState(policy, u, d, memory, ~trusted, now, batch.quasi_reward(u), state.quasi_reward)

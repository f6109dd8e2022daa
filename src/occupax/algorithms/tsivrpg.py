"""TSIVR-PG, Algorithm 1 of the paper."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from occupax.algorithms.base import EpochAlgorithm, Phase, RecursiveState, add, choose, no_gradient, subtract
from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem


class TSIVRPGState(RecursiveState):
    """The running estimates u_{j-1} and g_{j-1}, the policy before the last step, and the last two quasi-rewards."""

    quasi_reward: Float[Array, " d"]
    """r_{j-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """r_{j-2}."""


class TSIVRPG(EpochAlgorithm[TSIVRPGState]):
    """Truncated stochastic incremental variance-reduced policy gradient.

    g_j = g_{j-1} + mean[ g_hat(theta_j, r_{j-1}) - g_hat(theta_{j-1}, r_{j-2}) ], where u_j is carried along likewise
    and r_j = grad F(u_j). The quasi-rewards are one step old because r_j depends on the batch of iteration j: used
    there, it would bias the estimate.

    Args:
        snapshot_batch, batch, epoch_length: N, B and m; see `EpochAlgorithm`.
        weight_guard: see `EpochAlgorithm`; the fresh estimate of the gradient has r_{j-1}, too.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    @property
    def phases(self) -> tuple[Phase[TSIVRPGState], ...]:
        """N trajectories, then B each time."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._recursion)

    def init(self, problem: Problem, policy: Policy) -> TSIVRPGState:
        """No estimates yet."""
        zero = jnp.zeros(problem.size)
        memory, fresh = self.step().init(policy), jnp.zeros((), bool)
        return TSIVRPGState(policy, zero, no_gradient(policy), memory, fresh, policy, zero, zero)

    def _snapshot(self, state: TSIVRPGState, batch: Batch, key: Key[Array, ""]) -> TSIVRPGState:
        u = batch.occupancy()
        r = batch.quasi_reward(u)  # r_0, and r_{-1} as well
        g = batch.gradient(None, r, self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return TSIVRPGState(policy, u, g, memory, jnp.zeros((), bool), state.policy, r, r)

    def _recursion(self, state: TSIVRPGState, batch: Batch, key: Key[Array, ""]) -> TSIVRPGState:
        then, now = state.previous, state.policy
        trusted, fresh_u = self.trusts(batch, then), batch.occupancy(now)
        u = choose(trusted, state.occupancy + fresh_u - batch.occupancy(then), fresh_u)
        new = batch.gradient(now, state.quasi_reward, self.baseline)
        old = batch.gradient(then, state.previous_quasi_reward, self.baseline)
        g = choose(trusted, add(state.gradient, subtract(new, old)), new)
        policy, memory = self.step()(now, g, state.memory, batch)
        return TSIVRPGState(policy, u, g, memory, ~trusted, now, batch.quasi_reward(u), state.quasi_reward)

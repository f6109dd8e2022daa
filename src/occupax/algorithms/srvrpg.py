"""SRVR-PG: recursive variance reduction (Xu, Gao and Gu, 2019)."""

import jax.numpy as jnp
from jaxtyping import Array, Key

from occupax.algorithms.base import AlgorithmState, EpochAlgorithm, Phase, add, no_gradient, subtract
from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem


class SRVRPGState(AlgorithmState):
    """The running estimates, and the policy before the last step."""

    previous: Policy
    """theta_{j-1}."""


class SRVRPG(EpochAlgorithm[SRVRPGState]):
    """Carries the estimate along: g_j = g_{j-1} + mean[ g_hat(theta_j, r) - g_hat(theta_{j-1}, r) ].

    For a utility that is not linear, r is grad F at the occupancy carried along in the same way.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each refinement (B).
        epoch_length: iterations in an epoch, the snapshot included (m).
        step_size, radius, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    @property
    def phases(self) -> tuple[Phase[SRVRPGState], ...]:
        """N trajectories, then B each time."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._recursion)

    def init(self, problem: Problem, policy: Policy) -> SRVRPGState:
        """No estimates yet."""
        return SRVRPGState(policy, jnp.zeros(problem.size), no_gradient(policy), self.step().init(policy), policy)

    def _snapshot(self, state: SRVRPGState, batch: Batch, key: Key[Array, ""]) -> SRVRPGState:
        u = batch.occupancy()
        g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return SRVRPGState(policy, u, g, memory, state.policy)

    def _recursion(self, state: SRVRPGState, batch: Batch, key: Key[Array, ""]) -> SRVRPGState:
        then, now = state.previous, state.policy
        u = state.occupancy + batch.occupancy(now) - batch.occupancy(then)
        r = batch.quasi_reward(u)
        new, old = batch.gradient(now, r, self.baseline), batch.gradient(then, r, self.baseline)
        g = add(state.gradient, subtract(new, old))
        policy, memory = self.step()(now, g, state.memory, batch)
        return SRVRPGState(policy, u, g, memory, now)

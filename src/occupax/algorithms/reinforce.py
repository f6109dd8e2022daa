"""REINFORCE with quasi-rewards (Williams, 1992)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Phase, chosen, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem


class REINFORCE(Algorithm[AlgorithmState]):
    """Ascent along a fresh estimate: g = mean g_hat(theta, grad F(u)) with u = mean u_hat(theta).

    Args:
        batch: trajectories an iteration (N); by default that of `default_batch`.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    batch: int | None = eqx.field(static=True, default=None)

    @property
    def phases(self) -> tuple[Phase[AlgorithmState], ...]:
        """A fresh batch every time."""
        return (Phase(chosen(self.batch), self._ascend),)

    def init(self, problem: Problem, policy: Policy) -> AlgorithmState:
        """No estimates yet."""
        return AlgorithmState(policy, jnp.zeros(problem.size), no_gradient(policy), self.step().init(policy))

    def _ascend(self, state: AlgorithmState, batch: Batch, key: Key[Array, ""]) -> AlgorithmState:
        u = batch.occupancy()
        g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return AlgorithmState(policy, u, g, memory)

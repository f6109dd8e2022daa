"""REINFORCE with quasi-rewards (Williams, 1992)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from occupax._errors import check_share
from occupax.algorithms.base import Algorithm, AlgorithmState, Phase, chosen, no_gradient
from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number


class REINFORCE(Algorithm[AlgorithmState]):
    """Ascent along a fresh estimate: g = mean g_hat(theta, grad F(u)).

    The occupancy is u <- (1 - alpha) u + alpha mean u_hat(theta). For a reward, grad F is the same everywhere, so that
    alpha changes nothing.

    Args:
        batch: trajectories an iteration (N); by default that of `default_batch`.
        mixing: alpha, the share of the newest batch in the occupancy; 1 is a fresh estimate, whose noise biases grad F
            where F is curved. By default that of `default_mixing`.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    batch: int | None = eqx.field(static=True, default=None)
    mixing: Number | None = eqx.field(kw_only=True, default=None)

    def __check_init__(self) -> None:
        if self.mixing is not None:
            check_share("mixing", self.mixing)

    @property
    def phases(self) -> tuple[Phase[AlgorithmState], ...]:
        """A fresh batch every time."""
        return (Phase(chosen("batch", self.batch), self._ascend),)

    def init(self, problem: Problem, policy: Policy) -> AlgorithmState:
        """No estimates yet."""
        return AlgorithmState(policy, jnp.zeros(problem.size), no_gradient(policy), self.step().init(policy))

    def _ascend(self, state: AlgorithmState, batch: Batch, key: Key[Array, ""]) -> AlgorithmState:
        alpha = jnp.where(state.memory.steps == 0, 1.0, chosen("mixing", self.mixing))
        u = (1 - alpha) * state.occupancy + alpha * batch.occupancy()
        g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return AlgorithmState(policy, u, g, memory)

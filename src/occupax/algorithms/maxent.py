"""MaxEnt with one gradient step as its planner (Hazan et al., 2019)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax._errors import check_share
from occupax.algorithms.base import Algorithm, AlgorithmState, Phase, chosen, no_gradient
from occupax.batches import Batch
from occupax.policies import Policy
from occupax.problem import Problem


class MaxEntState(AlgorithmState):
    """The estimates, and the mixture of all policies so far."""

    mixture: Float[Array, " d"]
    """u_mix, the occupancy of the mixture."""
    mixture_utility: Float[Array, ""]
    """F(u_mix)."""
    iterations: Int[Array, ""]


class MaxEnt(Algorithm[MaxEntState]):
    """Improves the policy for the quasi-reward of a mixture: u_mix <- (1 - alpha) u_mix + alpha mean u_hat(theta_k).

    Args:
        batch: trajectories an iteration (N); by default that of `default_batch`.
        mixing: alpha, the share of the newest policy in the mixture; the first one has all of it.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    batch: int | None = eqx.field(static=True, default=None)
    mixing: Float[Array, ""] | float = 0.1

    def __check_init__(self) -> None:
        check_share("mixing", self.mixing)

    @property
    def phases(self) -> tuple[Phase[MaxEntState], ...]:
        """A fresh batch every time."""
        return (Phase(chosen("batch", self.batch), self._mix),)

    def init(self, problem: Problem, policy: Policy) -> MaxEntState:
        """An empty mixture."""
        u, memory = jnp.zeros(problem.size), self.step().init(policy)
        return MaxEntState(policy, u, no_gradient(policy), memory, u, jnp.zeros((), u.dtype), jnp.zeros((), jnp.int32))

    def metrics(self, state: MaxEntState) -> dict[str, Float[Array, ""]]:
        """What the mixture is worth."""
        return {"mixture_utility": state.mixture_utility}

    def _mix(self, state: MaxEntState, batch: Batch, key: Key[Array, ""]) -> MaxEntState:
        alpha = jnp.where(state.iterations == 0, 1.0, self.mixing)
        u = batch.occupancy()
        u_mix = (1 - alpha) * state.mixture + alpha * u
        g = batch.gradient(None, batch.quasi_reward(u_mix), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return MaxEntState(policy, u, g, memory, u_mix, batch.utility(u_mix), state.iterations + 1)

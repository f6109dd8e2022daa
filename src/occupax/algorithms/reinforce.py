"""REINFORCE with quasi-rewards (Williams, 1992)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from occupax._errors import check_share
from occupax.algorithms.base import Algorithm, AlgorithmState, Phase, choose, chosen, no_gradient
from occupax.batches import Batch
from occupax.policies import Policy
from occupax.policies.redrawing import can_be_redrawn, redraw
from occupax.problem import Problem
from occupax.steps import Number, global_norm


class FreshState(AlgorithmState):
    """The fresh estimates, and what is needed to notice a policy that shows nothing."""

    lowest_utility: Float[Array, ""]
    """The lowest of all batches so far."""
    redrawn: Bool[Array, ""]
    """Whether the last batch showed nothing, so that another policy acts next."""


class REINFORCE(Algorithm[FreshState]):
    """Ascent along a fresh estimate: g = mean g_hat(theta, grad F(u)).

    The occupancy is u <- (1 - alpha) u + alpha mean u_hat(theta). For a reward, grad F is the same everywhere, so that
    alpha changes nothing.

    Args:
        batch: trajectories an iteration (N); by default that of `default_batch`.
        mixing: alpha, the share of the newest batch in the occupancy; 1 is a fresh estimate, whose noise biases grad F
            where F is curved. By default that of `default_mixing`.
        restarts: whether the last layer of a network for discrete actions is drawn anew, far from uniform, where a
            batch shows nothing: its gradient is exactly zero, because all trajectories are worth the same, and no batch
            so far was worth less. Until a goal is seen for the first time, each iteration so tries another policy.
            Under constraints, where less utility may be worth it, it never is.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    batch: int | None = eqx.field(static=True, default=None)
    mixing: Number | None = eqx.field(kw_only=True, default=None)
    restarts: bool = eqx.field(kw_only=True, static=True, default=True)

    def __check_init__(self) -> None:
        if self.mixing is not None:
            check_share("mixing", self.mixing)
        if not isinstance(self.restarts, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"restarts must be True or False, got {self.restarts!r}.")

    @property
    def phases(self) -> tuple[Phase[FreshState], ...]:
        """A fresh batch every time."""
        return (Phase(chosen("batch", self.batch), self._ascend),)

    def init(self, problem: Problem, policy: Policy) -> FreshState:
        """No estimates yet."""
        u, memory = jnp.zeros(problem.size), self.step().init(policy)
        return FreshState(policy, u, no_gradient(policy), memory, jnp.zeros((), u.dtype), jnp.zeros((), bool))

    def metrics(self, state: FreshState) -> dict[str, Float[Array, ""]]:
        """Whether another policy takes the place of one that showed nothing, where that can be."""
        can_be = self.restarts and can_be_redrawn(state.policy)
        return {"redrawn": state.redrawn.astype(state.occupancy.dtype)} if can_be else {}

    def _ascend(self, state: FreshState, batch: Batch, key: Key[Array, ""]) -> FreshState:
        is_first, fresh = state.memory.steps == 0, batch.occupancy()
        alpha = jnp.where(is_first, 1.0, chosen("mixing", self.mixing))
        u = (1 - alpha) * state.occupancy + alpha * fresh
        g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        worth = batch.utility(fresh)
        lowest = jnp.where(is_first, worth, jnp.minimum(worth, state.lowest_utility))
        redrawn = jnp.zeros((), bool)
        if self.restarts and can_be_redrawn(policy) and not batch.problem.constraints:
            policy, redrawn = _another(policy, g, worth <= lowest, key)
        return FreshState(policy, u, g, memory, lowest, redrawn)


@eqx.filter_jit  # outside of a compiled program, each operation by itself would take longer
def _another(policy: Policy, g: Policy, is_lowest: Bool[Array, ""], key: Key[Array, ""]) -> tuple[Policy, Array]:
    """Another policy, where the gradient is exactly zero and nothing is lost with the present one."""
    redrawn = is_lowest & (global_norm(g) == 0)
    return choose(redrawn, redraw(policy, key), policy), redrawn

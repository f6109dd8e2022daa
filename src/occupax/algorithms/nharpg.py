"""N-HARPG: estimates carried along by Hessian-vector products (Fatkhullin, Barakat, Kireeva and He, 2023)."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax._errors import check_share
from occupax.algorithms.base import Algorithm, AlgorithmState, Phase, add, no_gradient, scale, subtract
from occupax.batches import Batch
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Memory, Number


class NHARPGState(AlgorithmState):
    """The running estimates u and d, the policy before the last step, and the last two quasi-rewards."""

    previous: Policy
    """theta_{t-1}."""
    quasi_reward: Float[Array, " d"]
    """r_{t-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """r_{t-2}."""


class NHARPG(Algorithm[NHARPGState]):
    """Normalised Hessian-aided recursive policy gradient, without importance weights.

    Trajectories of a point theta^ between the last two policies, drawn uniformly, give the change of the estimates
    along the last step: v = d/d eps g_hat(theta^ + eps (theta_t - theta_{t-1}), r_{t-2}), and that of u likewise. Then
    trajectories of theta_t turn the estimate to the newer quasi-reward, and refresh a share h_t = (2 / (t + 1))^p:

        d_t = (1 - h_t)(d_{t-1} + v + g_hat(theta_t, r_{t-1} - r_{t-2})) + h_t g_hat(theta_t, r_{t-1})
        theta_{t+1} = theta_t + alpha_t d_t / ||d_t||   with alpha_t = eta (2 / (t + 1))^q

    An iteration is one of these batches, so that a step takes two of them.

    Args:
        snapshot_batch: trajectories of the first iteration (N).
        batch: trajectories of each later one (B).
        decay: the power with which the share of the fresh estimate falls (p), in (0, 1].
        step_decay: the power with which the length of the steps falls (q), in (0, 1].
        step_size: eta, the length of the first steps; by default 0.3 for tables and 0.03 for other policies.
        rule: "normalised", unless told otherwise.
        radius, baseline, output: see `Algorithm`.
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=10)
    decay: Number = 0.5
    step_decay: Number = 1 / 3
    rule: Any = eqx.field(kw_only=True, static=True, default="normalised")

    def __check_init__(self) -> None:
        check_share("decay", self.decay)
        check_share("step_decay", self.step_decay)

    def step_size_for(self, policy: Policy) -> Number:
        """The step size eta or, if none was given, that for this kind of policy."""
        if self.step_size is None and self.rule == "normalised":
            return 0.3 if isinstance(policy, Tabular) else 0.03
        return super().step_size_for(policy)

    @property
    def phases(self) -> tuple[Phase[NHARPGState], ...]:
        """N trajectories once, then B of a point between the policies and B of the present one in turn."""
        carry = Phase(self.batch, self._carry, self._point_between)
        return Phase(self.snapshot_batch, self._snapshot), carry, Phase(self.batch, self._refresh)

    def phase(self, iteration: int | Int[Array, ""]) -> int | Int[Array, ""]:
        """The first iteration alone is large."""
        return (iteration > 0) * (2 - iteration % 2)

    def init(self, problem: Problem, policy: Policy) -> NHARPGState:
        """No estimates yet."""
        zero, memory = jnp.zeros(problem.size), self.step().init(policy)
        return NHARPGState(policy, zero, no_gradient(policy), memory, policy, zero, zero)

    def _snapshot(self, state: NHARPGState, batch: Batch, key: Key[Array, ""]) -> NHARPGState:
        u = batch.occupancy()
        r = batch.quasi_reward(u)  # r_t, and r_{t-1} as well
        d = batch.gradient(None, r, self.baseline)
        policy, memory = self._ascend(state, d, batch)
        return NHARPGState(policy, u, d, memory, state.policy, r, r)

    def _point_between(self, state: NHARPGState, key: Key[Array, ""]) -> Policy:
        q = jax.random.uniform(key)
        now, fixed = eqx.partition(state.policy, eqx.is_inexact_array)
        then = eqx.filter(state.previous, eqx.is_inexact_array)
        return eqx.combine(add(scale(q, now), scale(1 - q, then)), fixed)

    def _carry(self, state: NHARPGState, batch: Batch, key: Key[Array, ""]) -> NHARPGState:
        now, then = (eqx.filter(it, eqx.is_inexact_array) for it in (state.policy, state.previous))
        u, v = batch.hessian_vector(subtract(now, then), state.previous_quasi_reward, self.baseline)
        still = replace(state.memory, length=jnp.zeros_like(state.memory.length), clipped=jnp.zeros((), bool))
        return replace(state, occupancy=state.occupancy + u, gradient=add(state.gradient, v), memory=still)

    def _refresh(self, state: NHARPGState, batch: Batch, key: Key[Array, ""]) -> NHARPGState:
        share = 2 / (state.memory.steps.astype(state.occupancy.dtype) + 1)
        kept = 1 - share**self.decay
        u = kept * state.occupancy + (1 - kept) * batch.occupancy()
        r, old = state.quasi_reward, state.previous_quasi_reward
        fresh = batch.gradient(None, r - kept * old, self.baseline)  # both terms at once: g_hat is linear in r
        d = add(scale(kept, state.gradient), fresh)
        policy, memory = self._ascend(state, d, batch, share**self.step_decay)
        return NHARPGState(policy, u, d, memory, state.policy, batch.quasi_reward(u), r)

    def _ascend(self, state: NHARPGState, d: Policy, batch: Batch, share: Number = 1.0) -> tuple[Policy, Memory]:
        step = replace(self.step(), size=share * self.step_size_for(state.policy))
        return step(state.policy, d, state.memory, batch)

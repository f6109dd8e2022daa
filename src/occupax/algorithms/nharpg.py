"""N-HARPG: normalised Hessian-aided recursive policy gradient (Fatkhullin et al., 2023)."""

from dataclasses import KW_ONLY, replace
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase
from occupax.algorithms.updates import add, scale, subtract, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.errors import check_share
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Number, Radius, StepState


class NHARPGState(AlgorithmState):
    """Recursive estimates u_t and g_t, the previous policy and the last two quasi-rewards."""

    previous: Policy
    """Policy before the last step, theta_{t-1}."""
    quasi_reward: Float[Array, " d"]
    """Quasi-reward of the last iteration, r_{t-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """Quasi-reward of the iteration before that, r_{t-2}."""


class NHARPG(Algorithm[NHARPGState]):
    """Normalised Hessian-aided recursive policy gradient, without importance weights.

        sample N trajectories under theta_0
        u_0 = mean u_hat(theta_0),  r_0 = grad F(u_0),  r_{-1} = r_0
        g_0 = mean g_hat(theta_0, r_0)
        theta_1 = theta_0 + eta g_0 / ||g_0||
        for t = 1, 2, ...:
            a uniform on [0, 1],  theta^ = a theta_t + (1 - a) theta_{t-1},  h_t = (2 / (t + 1))^p
            sample B trajectories under theta^                                  (one iteration)
            w   = d/d eps mean u_hat(theta^ + eps (theta_t - theta_{t-1}))
            v   = d/d eps mean g_hat(theta^ + eps (theta_t - theta_{t-1}), r_{t-2})
            sample B trajectories under theta_t                            (the next iteration)
            u_t = (1 - h_t) (u_{t-1} + w) + h_t mean u_hat(theta_t)
            g_t = (1 - h_t) (g_{t-1} + v + mean g_hat(theta_t, r_{t-1} - r_{t-2}))
                  + h_t mean g_hat(theta_t, r_{t-1})
            r_t = grad F(u_t)
            theta_{t+1} = theta_t + eta (2 / (t + 1))^q g_t / ||g_t||

    An iteration samples one batch. A step therefore takes two iterations.

    Args:
        snapshot_batch: number of trajectories of the first iteration (N). Default: 20.
        batch: number of trajectories of each later iteration (B). Default: 10.
        decay: exponent of the weight of the fresh estimate (p), in (0, 1]. Default: 0.5.
        step_decay: exponent of the decay of the step size (q), in (0, 1]. Default: 1/3.
        step_size: norm of the first displacement (eta). Default: 0.3 for tables, otherwise 0.03.
        decay_after: number of steps k_0 in a further decay, 1 / sqrt(1 + k / k_0). Default: none.
        radius: bound of the norm of a displacement (delta), or "theory". Default: inf.
        rule: step rule: "adam", "natural", "gradient", "normalised" or an optax transformation.
            Default: "normalised".
        baseline: baseline of the gradient estimate: "none", "mean" or "linear". Default: "mean".
        output: policy that training returns: "last", "uniform", "best" or "average". Default:
            "average" under constraints, otherwise "last".
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=10)
    decay: Number = 0.5
    step_decay: Number = 1 / 3
    _: KW_ONLY
    step_size: Number | None = None
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="normalised")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_share("decay", self.decay)
        check_share("step_decay", self.step_decay)

    @property
    def phases(self) -> tuple[Phase[NHARPGState], ...]:
        """N trajectories once, then B between the last two policies and B of the last in turn."""
        first = Phase(self.snapshot_batch, self._snapshot)
        transport = Phase(self.batch, self._transport, self._point_between)
        return first, transport, Phase(self.batch, self._refresh)

    def phase(self, iteration: int) -> int:
        """Return 0, the large batch, for the first iteration, then 1 and 2 in turn."""
        if iteration == 0:
            return 0
        return 2 - iteration % 2

    def step_size_for(self, policy: Policy) -> Number:
        """Return the step size or, if it was left open, the step size for this kind of policy."""
        if self.step_size is not None or self.rule != "normalised":
            return super().step_size_for(policy)
        if isinstance(policy, Tabular):
            return 0.3
        return 0.03

    def init(self, problem: Problem, policy: Policy) -> NHARPGState:
        """Return the state before the first iteration, without estimates."""
        zero = jnp.zeros(problem.size)
        return NHARPGState(
            policy=policy,
            occupancy=zero,
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            previous=policy,
            quasi_reward=zero,
            previous_quasi_reward=zero,
        )

    def _snapshot(self, state: NHARPGState, batch: Batch, key: Key[Array, ""]) -> NHARPGState:
        occupancy = batch.occupancy()
        quasi_reward = batch.quasi_reward(occupancy)
        gradient = batch.gradient(None, quasi_reward, self.baseline)
        policy, memory = self._ascend(state, gradient, batch, 1.0)
        return NHARPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            previous=state.policy,
            quasi_reward=quasi_reward,
            previous_quasi_reward=quasi_reward,  # r_{-1} := r_0
        )

    def _point_between(self, state: NHARPGState, key: Key[Array, ""]) -> Policy:
        weight = jax.random.uniform(key)
        params, static = eqx.partition(state.policy, eqx.is_inexact_array)
        previous_params = eqx.filter(state.previous, eqx.is_inexact_array)
        point = add(scale(weight, params), scale(1 - weight, previous_params))
        return eqx.combine(point, static)

    def _transport(self, state: NHARPGState, batch: Batch, key: Key[Array, ""]) -> NHARPGState:
        params = eqx.filter(state.policy, eqx.is_inexact_array)
        previous_params = eqx.filter(state.previous, eqx.is_inexact_array)
        displacement = subtract(params, previous_params)
        change = batch.hessian_vector(displacement, state.previous_quasi_reward, self.baseline)
        occupancy_change, gradient_change = change
        return replace(
            state,
            occupancy=state.occupancy + occupancy_change,
            gradient=add(state.gradient, gradient_change),
            memory=state.memory.without_step(),
        )

    def _refresh(self, state: NHARPGState, batch: Batch, key: Key[Array, ""]) -> NHARPGState:
        fraction = 2 / (state.memory.steps.astype(state.occupancy.dtype) + 1)
        momentum = 1 - fraction**self.decay
        occupancy = momentum * state.occupancy + (1 - momentum) * batch.occupancy()
        # g_hat is linear in r, so that the terms in r_{t-1} - r_{t-2} and r_{t-1} are one gradient
        quasi_reward = state.quasi_reward - momentum * state.previous_quasi_reward
        fresh_gradient = batch.gradient(None, quasi_reward, self.baseline)
        gradient = add(scale(momentum, state.gradient), fresh_gradient)
        policy, memory = self._ascend(state, gradient, batch, fraction**self.step_decay)
        return NHARPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            previous=state.policy,
            quasi_reward=batch.quasi_reward(occupancy),
            previous_quasi_reward=state.quasi_reward,
        )

    def _ascend(
        self, state: NHARPGState, gradient: Policy, batch: Batch, factor: Number
    ) -> tuple[Policy, StepState]:
        step_size = factor * self.step_size_for(state.policy)
        step = replace(self.step(), size=step_size)
        return step(state.policy, gradient, state.memory, batch)

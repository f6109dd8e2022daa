"""N-VR-PG: normalised steps along recursive estimates (Barakat, Fatkhullin and He, 2023)."""

from dataclasses import KW_ONLY, replace
from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase
from occupax.algorithms.updates import (
    add,
    check_sizes,
    check_weight_guard,
    choose,
    scale,
    subtract,
    weights_are_trusted,
    zero_gradient,
)
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.errors import check_share
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Radius


class NVRPGState(AlgorithmState):
    """Recursive estimates u_t and g_t, the previous policy and the last two quasi-rewards."""

    restarted: Bool[Array, ""]
    """Whether the importance weights of the last refinement were not trusted."""
    previous: Policy
    """Policy before the last step, theta_{t-1}."""
    quasi_reward: Float[Array, " d"]
    """Quasi-reward of the last iteration, r_{t-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """Quasi-reward of the iteration before that, r_{t-2}."""


class NVRPG(Algorithm[NVRPGState]):
    """Normalised variance-reduced policy gradient: STORM with decaying weight and steps.

        sample N trajectories under theta_0
        u_0 = mean u_hat(theta_0),  r_0 = grad F(u_0),  r_{-1} = r_0
        g_0 = mean g_hat(theta_0, r_0)
        theta_1 = theta_0 + eta g_0 / ||g_0||
        for t = 1, 2, ...:
            sample B trajectories under theta_t,  h_t = (2 / (t + 1))^p
            u_t = mean u_hat(theta_t) + (1 - h_t) (u_{t-1} - mean u_hat(theta_{t-1}))
            g_t = mean g_hat(theta_t, r_{t-1})
                  + (1 - h_t) (g_{t-1} - mean g_hat(theta_{t-1}, r_{t-2}))
            r_t = grad F(u_t)
            theta_{t+1} = theta_t + eta (2 / (t + 1))^q g_t / ||g_t||

    Args:
        snapshot_batch: number of trajectories of the first iteration (N). Default: 20.
        batch: number of trajectories of each later iteration (B). Default: 20.
        decay: exponent of the weight of the fresh estimate (p), in (0, 1]. Default: 0.5; 2/3 in the
            paper.
        step_decay: exponent of the decay of the step size (q), in (0, 1]. Default: 1/3.
        weight_guard: smallest effective sample size of the importance weights, as a fraction of the
            on-policy one. Below it, the estimate of the batch itself replaces the recursive one.
            None trusts all weights, as in the paper. Default: 0.5.
        weight_bound: largest importance weight of a trusted refinement, above 1. Default: 4.
        step_size: norm of the first displacement (eta). Default: 0.3.
        decay_after: number of steps k_0 in a further decay, 1 / sqrt(1 + k / k_0). Default: none.
        radius: bound of the norm of a displacement (delta), or "theory". Default: inf.
        rule: step rule: "adam", "natural", "gradient", "normalised" or an optax transformation.
            Default: "normalised".
        baseline: baseline of the gradient estimate: "none", "mean" or "linear". Default: "mean".
        output: policy that training returns: "last", "uniform", "best" or "average". Default:
            "average" under constraints, otherwise "last".
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=20)
    decay: Number = 0.5
    step_decay: Number = 1 / 3
    _: KW_ONLY
    weight_guard: Number | None = 0.5
    weight_bound: Number = 4.0
    step_size: Number | None = 0.3
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="normalised")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_sizes(self, "snapshot_batch", "batch")
        check_weight_guard(self.weight_guard, self.weight_bound)
        check_share("decay", self.decay)
        check_share("step_decay", self.step_decay)

    @property
    def phases(self) -> tuple[Phase[NVRPGState], ...]:
        """N trajectories of the first iteration, B of a refinement."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._refine)

    def phase(self, iteration: int) -> int:
        """Return 0, the large batch, for the first iteration, else 1."""
        return int(iteration > 0)

    def init(self, problem: Problem, policy: Policy) -> NVRPGState:
        """Return the state before the first iteration, without estimates."""
        zero = jnp.zeros(problem.size)
        return NVRPGState(
            policy=policy,
            occupancy=zero,
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            restarted=jnp.zeros((), bool),
            previous=policy,
            quasi_reward=zero,
            previous_quasi_reward=zero,
        )

    def metrics(self, state: NVRPGState) -> dict[str, Float[Array, ""]]:
        """Return the metric `restarted`, 1 if weights were not trusted. Empty without a guard."""
        if self.weight_guard is None:
            return {}
        return {"restarted": state.restarted.astype(state.occupancy.dtype)}

    def _snapshot(self, state: NVRPGState, batch: Batch, key: Key[Array, ""]) -> NVRPGState:
        occupancy = batch.occupancy()
        quasi_reward = batch.quasi_reward(occupancy)
        gradient = batch.gradient(None, quasi_reward, self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return NVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=jnp.zeros((), bool),
            previous=state.policy,
            quasi_reward=quasi_reward,
            previous_quasi_reward=quasi_reward,  # r_{-1} := r_0
        )

    def _refine(self, state: NVRPGState, batch: Batch, key: Key[Array, ""]) -> NVRPGState:
        trusted = weights_are_trusted(batch, state.previous, self.weight_guard, self.weight_bound)
        fresh_occupancy = batch.occupancy()
        fraction = 2 / (state.memory.steps.astype(state.occupancy.dtype) + 1)
        step_size = fraction**self.step_decay * self.step_size_for(state.policy)
        step = replace(self.step(), size=step_size)
        momentum = 1 - fraction**self.decay
        old_occupancy = batch.occupancy(state.previous)
        recursive_occupancy = (
            momentum * state.occupancy + fresh_occupancy - momentum * old_occupancy
        )
        occupancy = choose(trusted, recursive_occupancy, fresh_occupancy)
        fresh_gradient = batch.gradient(None, state.quasi_reward, self.baseline)
        old_gradient = batch.gradient(state.previous, state.previous_quasi_reward, self.baseline)
        correction = subtract(fresh_gradient, scale(momentum, old_gradient))
        recursive_gradient = add(scale(momentum, state.gradient), correction)
        gradient = choose(trusted, recursive_gradient, fresh_gradient)
        policy, memory = step(state.policy, gradient, state.memory, batch)
        return NVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=~trusted,
            previous=state.policy,
            quasi_reward=batch.quasi_reward(occupancy),
            previous_quasi_reward=state.quasi_reward,
        )

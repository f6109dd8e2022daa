"""SVRPG: variance reduction around a snapshot (Papini et al., 2018)."""

from dataclasses import KW_ONLY
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
    subtract,
    weights_are_trusted,
    zero_gradient,
)
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Radius


class SVRPGState(AlgorithmState):
    """Estimates of the last iteration and of the last snapshot."""

    restarted: Bool[Array, ""]
    """Whether the importance weights of the last correction were not trusted."""
    snapshot: Policy
    """Policy of the last snapshot, theta~."""
    snapshot_occupancy: Float[Array, " d"]
    """Occupancy estimate of the last snapshot, u_0."""
    snapshot_gradient: Policy
    """Gradient estimate of the last snapshot, g_0."""


class SVRPG(Algorithm[SVRPGState]):
    """Variance-reduced policy gradient: small batches correct the estimates of a snapshot.

        each epoch:
            theta~ = theta_0, sample N trajectories under theta~
            u_0 = mean u_hat(theta~)
            g_0 = mean g_hat(theta~, grad F(u_0))
            theta_1 = theta_0 + step(g_0)
            for j = 1, ..., m - 1:
                sample B trajectories under theta_j
                u_j = u_0 + mean[ u_hat(theta_j) - u_hat(theta~) ]
                r_j = grad F(u_j)
                g_j = g_0 + mean[ g_hat(theta_j, r_j) - g_hat(theta~, r_j) ]
                theta_{j+1} = theta_j + step(g_j)

    Args:
        snapshot_batch: number of trajectories of a snapshot (N). Default: 20.
        batch: number of trajectories of a correction (B). Default: 10.
        epoch_length: number of iterations of an epoch, the snapshot included (m). Default: 2.
        weight_guard: smallest effective sample size of the importance weights, as a fraction of the
            on-policy one. Below it, the estimate of the batch itself replaces the corrected one.
            None trusts all weights, as in the paper. Default: 0.5.
        weight_bound: largest importance weight of a trusted correction, above 1. Default: 4.
        step_size: step size (eta). Default: by rule and policy, see `steps.default_size`.
        decay_after: number of steps k_0 in the decay eta / sqrt(1 + k / k_0). Default: constant if
            `step_size` is set, otherwise by rule and policy, see `steps.default_decay`.
        radius: bound of the norm of a displacement (delta), or "theory". Default: inf.
        rule: step rule: "adam", "natural", "gradient", "normalised" or an optax transformation.
            Default: "adam".
        baseline: baseline of the gradient estimate: "none", "mean" or "linear". Default: "mean".
        output: policy that training returns: "last", "uniform", "best" or "average". Default:
            "average" under constraints, otherwise "last".
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=10)
    epoch_length: int = eqx.field(static=True, default=2)
    _: KW_ONLY
    weight_guard: Number | None = 0.5
    weight_bound: Number = 4.0
    step_size: Number | None = None
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="adam")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_sizes(self, "snapshot_batch", "batch", "epoch_length")
        check_weight_guard(self.weight_guard, self.weight_bound)

    @property
    def phases(self) -> tuple[Phase[SVRPGState], ...]:
        """N trajectories of a snapshot, B of a correction."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._correct)

    def phase(self, iteration: int) -> int:
        """Return 0, the snapshot, at the start of each epoch, else 1."""
        return int(iteration % self.epoch_length != 0)

    def init(self, problem: Problem, policy: Policy) -> SVRPGState:
        """Return the state before the first iteration, without estimates."""
        occupancy = jnp.zeros(problem.size)
        gradient = zero_gradient(policy)
        return SVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=self.step().init(policy),
            restarted=jnp.zeros((), bool),
            snapshot=policy,
            snapshot_occupancy=occupancy,
            snapshot_gradient=gradient,
        )

    def metrics(self, state: SVRPGState) -> dict[str, Float[Array, ""]]:
        """Return the metric `restarted`, 1 if weights were not trusted. Empty without a guard."""
        if self.weight_guard is None:
            return {}
        return {"restarted": state.restarted.astype(state.occupancy.dtype)}

    def _snapshot(self, state: SVRPGState, batch: Batch, key: Key[Array, ""]) -> SVRPGState:
        occupancy = batch.occupancy()
        gradient = batch.gradient(None, batch.quasi_reward(occupancy), self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return SVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=jnp.zeros((), bool),
            snapshot=state.policy,
            snapshot_occupancy=occupancy,
            snapshot_gradient=gradient,
        )

    def _correct(self, state: SVRPGState, batch: Batch, key: Key[Array, ""]) -> SVRPGState:
        trusted = weights_are_trusted(batch, state.snapshot, self.weight_guard, self.weight_bound)
        fresh_occupancy = batch.occupancy()
        corrected_occupancy = (
            state.snapshot_occupancy + fresh_occupancy - batch.occupancy(state.snapshot)
        )
        occupancy = choose(trusted, corrected_occupancy, fresh_occupancy)
        quasi_reward = batch.quasi_reward(occupancy)
        fresh_gradient = batch.gradient(None, quasi_reward, self.baseline)
        old_gradient = batch.gradient(state.snapshot, quasi_reward, self.baseline)
        corrected_gradient = add(state.snapshot_gradient, subtract(fresh_gradient, old_gradient))
        gradient = choose(trusted, corrected_gradient, fresh_gradient)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return SVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=~trusted,
            snapshot=state.snapshot,
            snapshot_occupancy=state.snapshot_occupancy,
            snapshot_gradient=state.snapshot_gradient,
        )

"""SVRPG: variance reduction around a snapshot (Papini et al., 2018)."""

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
    """Estimates of the last iteration, and those of the last snapshot."""

    restarted: Bool[Array, ""]
    """Whether the weights of the last correction were not trusted, so that its fresh estimate was
    used."""
    snapshot: Policy
    """theta~, the policy of the snapshot."""
    snapshot_occupancy: Float[Array, " d"]
    snapshot_gradient: Policy


class SVRPG(Algorithm[SVRPGState]):
    """Estimates of a snapshot theta~ that small batches correct.

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
        snapshot_batch: trajectories of a snapshot (N).
        batch: trajectories of a correction (B).
        epoch_length: iterations of an epoch, the snapshot included (m).
        weight_guard: smallest effective sample size, as a fraction of the trajectories that took a
            step, at which the importance weights of a correction are trusted; otherwise the fresh
            estimate of its own batch replaces the corrected one. None trusts all weights, as the
            paper does.
        weight_bound: largest importance weight that is trusted.
        step_size, decay_after, radius, rule, baseline, output: see `Algorithm`.
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=10)
    epoch_length: int = eqx.field(static=True, default=2)
    weight_guard: Number | None = eqx.field(kw_only=True, default=0.5)
    weight_bound: Number = eqx.field(kw_only=True, default=4.0)
    step_size: Number | None = eqx.field(kw_only=True, default=None)
    decay_after: Number | None = eqx.field(kw_only=True, default=None)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="adam")
    baseline: BaselineName = eqx.field(kw_only=True, static=True, default="mean")
    output: Output | None = eqx.field(kw_only=True, static=True, default=None)

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
        """Return the metric `restarted`: 1 if the importance weights were not trusted. Empty without a guard."""
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

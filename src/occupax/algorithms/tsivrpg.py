"""TSIVR-PG, Algorithm 1 of Zhang, Ni, Yu, Szepesvari and Wang (2021)."""

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


class TSIVRPGState(AlgorithmState):
    """Recursive estimates u_j and g_j, the previous policy and the last two quasi-rewards."""

    restarted: Bool[Array, ""]
    """Whether the importance weights of the last refinement were not trusted."""
    previous: Policy
    """Policy before the last step, theta_{j-1}."""
    quasi_reward: Float[Array, " d"]
    """Quasi-reward of the last iteration, r_{j-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """Quasi-reward of the iteration before that, r_{j-2}."""


class TSIVRPG(Algorithm[TSIVRPGState]):
    """Truncated stochastic incremental variance-reduced policy gradient.

        each epoch:
            sample N trajectories under theta_0
            u_0 = mean u_hat(theta_0)
            r_0 = grad F(u_0),  r_{-1} = r_0
            g_0 = mean g_hat(theta_0, r_0)
            theta_1 = theta_0 + step(g_0)
            for j = 1, ..., m - 1:
                sample B trajectories under theta_j
                u_j = u_{j-1} + mean[ u_hat(theta_j) - u_hat(theta_{j-1}) ]
                g_j = g_{j-1} + mean[ g_hat(theta_j, r_{j-1}) - g_hat(theta_{j-1}, r_{j-2}) ]
                r_j = grad F(u_j)
                theta_{j+1} = theta_j + step(g_j)

    The quasi-reward r_j depends on the batch of iteration j and would bias g_j. The estimate g_j
    therefore uses the quasi-rewards of earlier iterations. The truncated step of the paper is
    `rule="gradient"` with a finite `radius`.

    Args:
        snapshot_batch: number of trajectories of a snapshot (N). Default: 20.
        batch: number of trajectories of a refinement (B). Default: 10.
        epoch_length: number of iterations of an epoch, the snapshot included (m). Default: 2.
        weight_guard: smallest effective sample size of the importance weights, as a fraction of the
            on-policy one. Below it, the estimate of the batch itself replaces the recursive one.
            None trusts all weights, as in the paper. Default: 0.5.
        weight_bound: largest importance weight of a trusted refinement, above 1. Default: 4.
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
    def phases(self) -> tuple[Phase[TSIVRPGState], ...]:
        """N trajectories of a snapshot, B of a refinement."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._refine)

    def phase(self, iteration: int) -> int:
        """Return 0, the snapshot, at the start of each epoch, else 1."""
        return int(iteration % self.epoch_length != 0)

    def init(self, problem: Problem, policy: Policy) -> TSIVRPGState:
        """Return the state before the first iteration, without estimates."""
        zero = jnp.zeros(problem.size)
        return TSIVRPGState(
            policy=policy,
            occupancy=zero,
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            restarted=jnp.zeros((), bool),
            previous=policy,
            quasi_reward=zero,
            previous_quasi_reward=zero,
        )

    def metrics(self, state: TSIVRPGState) -> dict[str, Float[Array, ""]]:
        """Return the metric `restarted`, 1 if weights were not trusted. Empty without a guard."""
        if self.weight_guard is None:
            return {}
        return {"restarted": state.restarted.astype(state.occupancy.dtype)}

    def _snapshot(self, state: TSIVRPGState, batch: Batch, key: Key[Array, ""]) -> TSIVRPGState:
        occupancy = batch.occupancy()
        quasi_reward = batch.quasi_reward(occupancy)
        gradient = batch.gradient(None, quasi_reward, self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return TSIVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=jnp.zeros((), bool),
            previous=state.policy,
            quasi_reward=quasi_reward,
            previous_quasi_reward=quasi_reward,  # r_{-1} := r_0
        )

    def _refine(self, state: TSIVRPGState, batch: Batch, key: Key[Array, ""]) -> TSIVRPGState:
        trusted = weights_are_trusted(batch, state.previous, self.weight_guard, self.weight_bound)
        fresh_occupancy = batch.occupancy()
        recursive_occupancy = state.occupancy + fresh_occupancy - batch.occupancy(state.previous)
        occupancy = choose(trusted, recursive_occupancy, fresh_occupancy)
        fresh_gradient = batch.gradient(None, state.quasi_reward, self.baseline)
        old_gradient = batch.gradient(state.previous, state.previous_quasi_reward, self.baseline)
        recursive_gradient = add(state.gradient, subtract(fresh_gradient, old_gradient))
        gradient = choose(trusted, recursive_gradient, fresh_gradient)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return TSIVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=~trusted,
            previous=state.policy,
            quasi_reward=batch.quasi_reward(occupancy),
            previous_quasi_reward=state.quasi_reward,
        )

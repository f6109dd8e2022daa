"""HSPGA: mixture of recursive and fresh estimates (Pham et al., 2020)."""

from dataclasses import KW_ONLY
from math import inf, sqrt
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
from occupax.errors import check_number, is_traced
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Radius


class HSPGAState(AlgorithmState):
    """Hybrid estimates u_j and g_j and the previous policy."""

    restarted: Bool[Array, ""]
    """Whether the importance weights of the last refinement were not trusted."""
    previous: Policy
    """Policy before the last step, theta_{j-1}."""


class HSPGA(Algorithm[HSPGAState]):
    """Hybrid stochastic policy gradient: a mixture of recursive and fresh estimates.

        each epoch:
            sample N trajectories under theta_0
            u_0 = mean u_hat(theta_0)
            g_0 = mean g_hat(theta_0, grad F(u_0))
            theta_1 = theta_0 + step(g_0)
            for j = 1, ..., m - 1:
                sample 2 B trajectories under theta_j, with means mean_1 and mean_2 of the halves
                v_j = u_{j-1} + mean_1[ u_hat(theta_j) - u_hat(theta_{j-1}) ],  r_j = grad F(v_j)
                w_j = mean_2 u_hat(theta_j)
                u_j = beta v_j + (1 - beta) w_j
                g_j = beta (g_{j-1} + mean_1[ g_hat(theta_j, r_j) - g_hat(theta_{j-1}, r_j) ])
                      + (1 - beta) mean_2 g_hat(theta_j, grad F(w_j))
                theta_{j+1} = theta_j + step(g_j)

    Args:
        snapshot_batch: number of trajectories of a snapshot (N). Default: 20.
        batch: number of trajectories of each half of a refinement (B). Default: 10.
        epoch_length: number of iterations of an epoch, the snapshot included (m). Default: 2.
        mixing: weight of the recursive estimate (beta), in [0, 1]. Default:
            1 - sqrt(B / (N (m + 1))).
        weight_guard: smallest effective sample size of the importance weights, as a fraction of the
            on-policy one. Below it, the estimate of the batch itself replaces the hybrid one.
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
    mixing: Number | None = None
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
        if self.mixing is None or is_traced(self.mixing):
            return
        if check_number("mixing", self.mixing, low=0.0) > 1:
            raise ValueError(f"mixing must be in [0, 1], got {self.mixing!r}.")

    @property
    def phases(self) -> tuple[Phase[HSPGAState], ...]:
        """N trajectories of a snapshot, twice B of a refinement."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(2 * self.batch, self._refine)

    def phase(self, iteration: int) -> int:
        """Return 0, the snapshot, at the start of each epoch, else 1."""
        return int(iteration % self.epoch_length != 0)

    def init(self, problem: Problem, policy: Policy) -> HSPGAState:
        """Return the state before the first iteration, without estimates."""
        return HSPGAState(
            policy=policy,
            occupancy=jnp.zeros(problem.size),
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            restarted=jnp.zeros((), bool),
            previous=policy,
        )

    def metrics(self, state: HSPGAState) -> dict[str, Float[Array, ""]]:
        """Return the metric `restarted`, 1 if weights were not trusted. Empty without a guard."""
        if self.weight_guard is None:
            return {}
        return {"restarted": state.restarted.astype(state.occupancy.dtype)}

    def _snapshot(self, state: HSPGAState, batch: Batch, key: Key[Array, ""]) -> HSPGAState:
        occupancy = batch.occupancy()
        gradient = batch.gradient(None, batch.quasi_reward(occupancy), self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return HSPGAState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=jnp.zeros((), bool),
            previous=state.policy,
        )

    def _refine(self, state: HSPGAState, batch: Batch, key: Key[Array, ""]) -> HSPGAState:
        beta = self._mixing()
        trusted = weights_are_trusted(batch, state.previous, self.weight_guard, self.weight_bound)
        first, second = batch.halves()
        recursive_occupancy = state.occupancy + first.occupancy() - first.occupancy(state.previous)
        quasi_reward = batch.quasi_reward(recursive_occupancy)
        new_gradient = first.gradient(None, quasi_reward, self.baseline)
        old_gradient = first.gradient(state.previous, quasi_reward, self.baseline)
        recursive_gradient = add(state.gradient, subtract(new_gradient, old_gradient))
        fresh_occupancy = second.occupancy()
        fresh_gradient = second.gradient(None, batch.quasi_reward(fresh_occupancy), self.baseline)
        hybrid_occupancy = beta * recursive_occupancy + (1 - beta) * fresh_occupancy
        occupancy = choose(trusted, hybrid_occupancy, fresh_occupancy)
        hybrid_gradient = add(scale(beta, recursive_gradient), scale(1 - beta, fresh_gradient))
        gradient = choose(trusted, hybrid_gradient, fresh_gradient)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return HSPGAState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=~trusted,
            previous=state.policy,
        )

    def _mixing(self) -> Number:
        if self.mixing is not None:
            return self.mixing
        ratio = self.batch / (self.snapshot_batch * (self.epoch_length + 1))
        return 1 - sqrt(min(1.0, ratio))

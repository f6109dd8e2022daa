"""PAGE-PG: random choice between a large batch and a recursion (Gargiani et al., 2022)."""

from dataclasses import KW_ONLY
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

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
from occupax.errors import check_integer
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Radius


class PAGEState(AlgorithmState):
    """Recursive estimates u_t and g_t, the previous policy and the last two quasi-rewards."""

    restarted: Bool[Array, ""]
    """Whether the importance weights of the last refinement were not trusted."""
    previous: Policy
    """Policy before the last step, theta_{t-1}."""
    quasi_reward: Float[Array, " d"]
    """Quasi-reward of the last iteration, r_{t-1}."""
    previous_quasi_reward: Float[Array, " d"]
    """Quasi-reward of the iteration before that, r_{t-2}."""


class PAGE(Algorithm[PAGEState]):
    """Probabilistic gradient estimator: a large batch or a recursion, chosen at random.

    A large batch has the probability p = B / (N + B).

        for t = 0, 1, ...:
            if t = 0 or with probability p:
                sample N trajectories under theta_t
                u_t = mean u_hat(theta_t),  r_t = grad F(u_t),  r_{t-1} = r_t
                g_t = mean g_hat(theta_t, r_t)
            else:
                sample B trajectories under theta_t
                u_t = u_{t-1} + mean[ u_hat(theta_t) - u_hat(theta_{t-1}) ]
                g_t = g_{t-1} + mean[ g_hat(theta_t, r_{t-1}) - g_hat(theta_{t-1}, r_{t-2}) ]
                r_t = grad F(u_t)
            theta_{t+1} = theta_t + step(g_t)

    The random choice depends on `coin` and the number of the iteration only. All runs of a program
    share it, and the number of episodes is known before training.

    Args:
        snapshot_batch: number of trajectories of a large batch (N). Default: 20.
        batch: number of trajectories of a refinement (B). Default: 20.
        coin: seed of the random choice. Default: 0.
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
    batch: int = eqx.field(static=True, default=20)
    coin: int = eqx.field(static=True, default=0)
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
        check_sizes(self, "snapshot_batch", "batch")
        check_weight_guard(self.weight_guard, self.weight_bound)
        check_integer("coin", self.coin, minimum=0)

    @property
    def phases(self) -> tuple[Phase[PAGEState], ...]:
        """N trajectories of a large batch, B of a refinement."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._refine)

    def phase(self, iteration: int) -> int:
        """Return 0 for a large batch, as in the first iteration, and 1 for a refinement."""
        return int(self.phases_of(iteration, 1)[0])

    def phases_of(self, first: int, count: int) -> Int[np.ndarray, " count"]:
        """Return the phases of `count` iterations from number `first` on, computed together."""
        iterations = jnp.arange(first, first + count)
        tosses = np.asarray(_toss(self, iterations))
        return np.where(iterations == 0, 0, tosses)

    def init(self, problem: Problem, policy: Policy) -> PAGEState:
        """Return the state before the first iteration, without estimates."""
        zero = jnp.zeros(problem.size)
        return PAGEState(
            policy=policy,
            occupancy=zero,
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            restarted=jnp.zeros((), bool),
            previous=policy,
            quasi_reward=zero,
            previous_quasi_reward=zero,
        )

    def metrics(self, state: PAGEState) -> dict[str, Float[Array, ""]]:
        """Return the metric `restarted`, 1 if weights were not trusted. Empty without a guard."""
        if self.weight_guard is None:
            return {}
        return {"restarted": state.restarted.astype(state.occupancy.dtype)}

    def _snapshot(self, state: PAGEState, batch: Batch, key: Key[Array, ""]) -> PAGEState:
        occupancy = batch.occupancy()
        quasi_reward = batch.quasi_reward(occupancy)
        gradient = batch.gradient(None, quasi_reward, self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return PAGEState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=jnp.zeros((), bool),
            previous=state.policy,
            quasi_reward=quasi_reward,
            previous_quasi_reward=quasi_reward,  # r_{-1} := r_0
        )

    def _refine(self, state: PAGEState, batch: Batch, key: Key[Array, ""]) -> PAGEState:
        trusted = weights_are_trusted(batch, state.previous, self.weight_guard, self.weight_bound)
        fresh_occupancy = batch.occupancy()
        recursive_occupancy = state.occupancy + fresh_occupancy - batch.occupancy(state.previous)
        occupancy = choose(trusted, recursive_occupancy, fresh_occupancy)
        fresh_gradient = batch.gradient(None, state.quasi_reward, self.baseline)
        old_gradient = batch.gradient(state.previous, state.previous_quasi_reward, self.baseline)
        recursive_gradient = add(state.gradient, subtract(fresh_gradient, old_gradient))
        gradient = choose(trusted, recursive_gradient, fresh_gradient)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return PAGEState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=~trusted,
            previous=state.policy,
            quasi_reward=batch.quasi_reward(occupancy),
            previous_quasi_reward=state.quasi_reward,
        )


@eqx.filter_jit
def _toss(algorithm: PAGE, iterations: Int[Array, " count"]) -> Int[Array, " count"]:
    """Return 0 for each iteration with a large batch, else 1."""
    seed_key = jax.random.key(algorithm.coin)

    def toss(iteration: Int[Array, ""]) -> Float[Array, ""]:
        key = jax.random.fold_in(seed_key, iteration)
        return jax.random.uniform(key, (), jnp.float32)  # the same draw in every precision

    probability = algorithm.batch / (algorithm.snapshot_batch + algorithm.batch)
    is_large = jax.vmap(toss)(iterations) < probability
    return jnp.where(is_large, 0, 1)

"""PAGE-PG: a coin decides between a large batch and a recursive estimate (Gargiani et al., 2022)."""

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
    """Recursive estimates u_t and g_t, the policy before the last step, and the last two quasi-rewards."""

    restarted: Bool[Array, ""]
    """Whether the weights of the last refinement were not trusted, so that its fresh estimate was
    used."""
    previous: Policy
    """theta_{j-1}, the policy before the last step."""
    quasi_reward: Float[Array, " d"]
    """r_{j-1}, the quasi-reward of the last iteration."""
    previous_quasi_reward: Float[Array, " d"]
    """r_{j-2}."""


class PAGE(Algorithm[PAGEState]):
    """A fresh batch of N with probability p = B / (N + B), otherwise the recursion of TSIVR-PG with B.

        for t = 0, 1, ...:
            if t = 0 or the coin of iteration t shows p:
                sample N trajectories under theta_t
                u_t = mean u_hat(theta_t),  r_t = grad F(u_t),  r_{t-1} = r_t
                g_t = mean g_hat(theta_t, r_t)
            else:
                sample B trajectories under theta_t
                u_t = u_{t-1} + mean[ u_hat(theta_t) - u_hat(theta_{t-1}) ]
                g_t = g_{t-1} + mean[ g_hat(theta_t, r_{t-1}) - g_hat(theta_{t-1}, r_{t-2}) ]
                r_t = grad F(u_t)
            theta_{t+1} = theta_t + step(g_t)

    The coin depends on the number of the iteration only, so that all runs toss alike and the number
    of episodes is known beforehand.

    Args:
        snapshot_batch: trajectories of a large batch (N).
        batch: trajectories of a refinement (B).
        coin: seed of the coin.
        weight_guard: smallest effective sample size, as a fraction of the trajectories that took a
            step, at which the importance weights of a refinement are trusted; otherwise the fresh
            estimate of its own batch replaces the recursive one. None trusts all weights, as the
            paper does.
        weight_bound: largest importance weight that is trusted.
        step_size, decay_after, radius, rule, baseline, output: see `Algorithm`.
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=20)
    coin: int = eqx.field(static=True, default=0)
    weight_guard: Number | None = eqx.field(kw_only=True, default=0.5)
    weight_bound: Number = eqx.field(kw_only=True, default=4.0)
    step_size: Number | None = eqx.field(kw_only=True, default=None)
    decay_after: Number | None = eqx.field(kw_only=True, default=None)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="adam")
    baseline: BaselineName = eqx.field(kw_only=True, static=True, default="mean")
    output: Output | None = eqx.field(kw_only=True, static=True, default=None)

    def __check_init__(self) -> None:
        check_sizes(self, "snapshot_batch", "batch")
        check_weight_guard(self.weight_guard, self.weight_bound)
        check_integer("coin", self.coin, minimum=0)

    @property
    def phases(self) -> tuple[Phase[PAGEState], ...]:
        """N trajectories of a large batch, B of a refinement."""
        return Phase(self.snapshot_batch, self._snapshot), Phase(self.batch, self._refine)

    def phase(self, iteration: int) -> int:
        """Return 0, the large batch, for the first iteration and where the coin says so, else 1."""
        return int(self.phases_of(iteration, 1)[0])

    def phases_of(self, first: int, count: int) -> Int[np.ndarray, " count"]:
        """Return the phases of `count` iterations from number `first` on, tossed together."""
        iterations = jnp.arange(first, first + count)
        return np.where(iterations == 0, 0, np.asarray(_toss(self, iterations)))

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
        """Return the metric `restarted`: 1 if the importance weights were not trusted. Empty without a guard."""
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
    """Return 0 where the coin of an iteration shows a large batch, else 1."""
    keys = jax.vmap(
        lambda iteration: jax.random.fold_in(jax.random.key(algorithm.coin), iteration)
    )(iterations)
    tosses = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32))(
        keys
    )  # alike in every precision
    is_large = tosses < algorithm.batch / (algorithm.snapshot_batch + algorithm.batch)
    return jnp.where(is_large, 0, 1)

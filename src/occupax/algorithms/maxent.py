"""MaxEnt with one gradient step as its planner (Hazan et al., 2019)."""

from dataclasses import replace
from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase, default_batch
from occupax.algorithms.updates import resolved, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.errors import check_share
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Radius


class MaxEntState(AlgorithmState):
    """Estimates of the last batch, and the mixture of all policies so far."""

    mixture: Float[Array, " d"]
    """u_mix, the occupancy of the mixture."""
    mixture_utility: Float[Array, ""]
    """F(u_mix)."""
    iterations: Int[Array, ""]


class MaxEnt(Algorithm[MaxEntState]):
    """Ascent along the quasi-reward of the mixture of all policies so far.

        for k = 0, 1, ...:
            sample N trajectories under theta_k
            u_mix       = (1 - alpha) u_mix + alpha mean u_hat(theta_k)        with alpha = 1 for k = 0
            g_k         = mean g_hat(theta_k, grad F(u_mix))
            theta_{k+1} = theta_k + step(g_k)

    Args:
        batch: trajectories of an iteration (N); by default `default_batch`.
        mixing: weight of the newest policy in the mixture (alpha).
        step_size, decay_after, radius, rule, baseline, output: see `Algorithm`.
    """

    batch: int | None = eqx.field(static=True, default=None)
    mixing: Number = 0.1
    step_size: Number | None = eqx.field(kw_only=True, default=None)
    decay_after: Number | None = eqx.field(kw_only=True, default=None)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="adam")
    baseline: BaselineName = eqx.field(kw_only=True, static=True, default="mean")
    output: Output | None = eqx.field(kw_only=True, static=True, default=None)

    def __check_init__(self) -> None:
        check_share("mixing", self.mixing)

    @property
    def phases(self) -> tuple[Phase[MaxEntState], ...]:
        """N trajectories in every iteration."""
        return (Phase(resolved("batch", self.batch), self._mix),)

    def resolve(self, problem: Problem, policy: Policy) -> Algorithm[MaxEntState]:
        """Return the algorithm with numbers for the hyperparameters that were left open."""
        algorithm = self
        if self.batch is None:
            algorithm = replace(algorithm, batch=default_batch(problem, policy))
        return Algorithm.resolve(algorithm, problem, policy)

    def init(self, problem: Problem, policy: Policy) -> MaxEntState:
        """Return the state before the first iteration, with an empty mixture."""
        zero = jnp.zeros(problem.size)
        return MaxEntState(
            policy=policy,
            occupancy=zero,
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            mixture=zero,
            mixture_utility=jnp.zeros((), zero.dtype),
            iterations=jnp.zeros((), jnp.int32),
        )

    def metrics(self, state: MaxEntState) -> dict[str, Float[Array, ""]]:
        """Return the metric `mixture_utility`, F(u_mix)."""
        return {"mixture_utility": state.mixture_utility}

    def _mix(self, state: MaxEntState, batch: Batch, key: Key[Array, ""]) -> MaxEntState:
        alpha = jnp.where(state.iterations == 0, 1.0, self.mixing)
        occupancy = batch.occupancy()
        mixture = (1 - alpha) * state.mixture + alpha * occupancy
        gradient = batch.gradient(None, batch.quasi_reward(mixture), self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return MaxEntState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            mixture=mixture,
            mixture_utility=batch.utility(mixture),
            iterations=state.iterations + 1,
        )

"""MaxEnt with one gradient step as its planner (Hazan et al., 2019)."""

from dataclasses import KW_ONLY, replace
from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase, default_batch
from occupax.algorithms.updates import require_resolved, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.errors import check_share
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.steps import Number, Radius


class MaxEntState(AlgorithmState):
    """Estimates of the last batch, and the mixture of all policies so far."""

    mixture: Float[Array, " d"]
    """Occupancy of the mixture, u_mix."""
    mixture_utility: Float[Array, ""]
    """Utility of the mixture, F(u_mix)."""
    iterations: Int[Array, ""]
    """Number of iterations so far, k."""


class MaxEnt(Algorithm[MaxEntState]):
    """Ascent along the quasi-reward of the mixture of all policies so far.

        for k = 0, 1, ...:
            sample N trajectories under theta_k
            u_mix       = (1 - alpha) u_mix + alpha mean u_hat(theta_k),  alpha = 1 for k = 0
            g_k         = mean g_hat(theta_k, grad F(u_mix))
            theta_{k+1} = theta_k + step(g_k)

    Args:
        batch: number of trajectories of an iteration (N). Default: by policy, see
            `base.default_batch`.
        mixing: weight of the newest policy in the mixture (alpha), in (0, 1]. Default: 0.1.
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

    batch: int | None = eqx.field(static=True, default=None)
    mixing: Number = 0.1
    _: KW_ONLY
    step_size: Number | None = None
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="adam")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_share("mixing", self.mixing)

    @property
    def phases(self) -> tuple[Phase[MaxEntState], ...]:
        """N trajectories in every iteration."""
        return (Phase(require_resolved("batch", self.batch), self._mix),)

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

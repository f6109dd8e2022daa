"""REINFORCE with quasi-rewards (Williams, 1992)."""

from dataclasses import KW_ONLY, replace
from math import inf
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase, default_batch
from occupax.algorithms.updates import choose, require_resolved, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.errors import check_share
from occupax.policies import Policy, Tabular
from occupax.policies.restarts import can_restart, restart_policy
from occupax.problem import Problem
from occupax.steps import Number, Radius, global_norm


class REINFORCEState(AlgorithmState):
    """Estimates of the last batch and state of the restarts."""

    lowest_utility: Float[Array, ""]
    """Lowest utility of all batches so far."""
    redrawn: Bool[Array, ""]
    """Whether the last batch had zero gradient and the output layer was re-initialised."""


class REINFORCE(Algorithm[REINFORCEState]):
    """Ascent along a fresh estimate of the gradient.

        for k = 0, 1, ...:
            sample N trajectories under theta_k
            u_k         = (1 - alpha) u_{k-1} + alpha mean u_hat(theta_k),  alpha = 1 for k = 0
            g_k         = mean g_hat(theta_k, grad F(u_k))
            theta_{k+1} = theta_k + step(g_k)

    For a linear utility grad F is constant, and alpha has no effect.

    Args:
        batch: number of trajectories of an iteration (N). Default: by policy, see
            `base.default_batch`.
        mixing: weight of the newest batch in the occupancy (alpha), in (0, 1]. 1 is a fresh
            estimate, whose noise biases grad F where F is curved. Default: 0.5 for tables,
            otherwise 1.
        restarts: whether the output layer of a network for discrete actions is re-initialised after
            a batch with zero gradient and the lowest utility so far. Each iteration thus tries
            another policy until it observes a goal for the first time. No effect under constraints,
            where a lower utility may be the price of satisfying them. Default: True.
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
    _: KW_ONLY
    mixing: Number | None = None
    restarts: bool = eqx.field(static=True, default=True)
    step_size: Number | None = None
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="adam")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.mixing is not None:
            check_share("mixing", self.mixing)
        if not isinstance(self.restarts, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"restarts must be True or False, got {self.restarts!r}.")

    @property
    def phases(self) -> tuple[Phase[REINFORCEState], ...]:
        """N trajectories in every iteration."""
        return (Phase(require_resolved("batch", self.batch), self._ascend),)

    def resolve(self, problem: Problem, policy: Policy) -> Algorithm[REINFORCEState]:
        """Return the algorithm with numbers for the hyperparameters that were left open."""
        algorithm = self
        if self.batch is None:
            algorithm = replace(algorithm, batch=default_batch(problem, policy))
        if self.mixing is None:
            algorithm = replace(algorithm, mixing=default_mixing(policy))
        return Algorithm.resolve(algorithm, problem, policy)

    def init(self, problem: Problem, policy: Policy) -> REINFORCEState:
        """Return the state before the first iteration, without estimates."""
        zero = jnp.zeros(problem.size)
        return REINFORCEState(
            policy=policy,
            occupancy=zero,
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            lowest_utility=jnp.zeros((), zero.dtype),
            redrawn=jnp.zeros((), bool),
        )

    def metrics(self, state: REINFORCEState) -> dict[str, Float[Array, ""]]:
        """Return the metric `redrawn`, 1 after a re-initialisation. Empty without restarts."""
        if not self.restarts or not can_restart(state.policy):
            return {}
        return {"redrawn": state.redrawn.astype(state.occupancy.dtype)}

    def _ascend(self, state: REINFORCEState, batch: Batch, key: Key[Array, ""]) -> REINFORCEState:
        is_first = state.memory.steps == 0
        fresh_occupancy = batch.occupancy()
        alpha = jnp.where(is_first, 1.0, require_resolved("mixing", self.mixing))
        occupancy = (1 - alpha) * state.occupancy + alpha * fresh_occupancy
        gradient = batch.gradient(None, batch.quasi_reward(occupancy), self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        utility = batch.utility(fresh_occupancy)
        lowest_utility = jnp.where(is_first, utility, jnp.minimum(utility, state.lowest_utility))
        redrawn = jnp.zeros((), bool)
        if self.restarts and can_restart(policy) and not batch.problem.constraints:
            policy, redrawn = _restart(policy, gradient, utility <= lowest_utility, key)
        return REINFORCEState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            lowest_utility=lowest_utility,
            redrawn=redrawn,
        )


def default_mixing(policy: Policy) -> float:
    """Return the default of `mixing`.

    The occupancy of a network changes too much between batches to be mixed.
    """
    if isinstance(policy, Tabular):
        return 0.5
    return 1.0


@eqx.filter_jit  # outside a compiled program, separate operations would take longer
def _restart(
    policy: Policy, gradient: Policy, is_lowest: Bool[Array, ""], key: Key[Array, ""]
) -> tuple[Policy, Array]:
    """Return the policy, re-initialised if needed, and whether that was the case."""
    redrawn = is_lowest & (global_norm(gradient) == 0)
    policy = choose(redrawn, restart_policy(policy, key), policy)
    return policy, redrawn

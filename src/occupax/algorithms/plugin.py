"""Plug-in planning: repeatedly count transitions and plan in the estimated model."""

from dataclasses import KW_ONLY, replace
from math import floor, inf, log
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from occupax.algorithms import exploration
from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase, default_batch
from occupax.algorithms.planning import MIN_LOGIT, Model, greedy_plan, plan, posterior
from occupax.algorithms.updates import choose, require_resolved, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch, Transitions
from occupax.errors import check_integer, check_number, is_traced
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Number, Radius

MAX_COUNTS = 30_000_000
"""Largest number S * A * S of counts, which take 120 MB in each of five runs."""


class PlugInState(AlgorithmState):
    """Policy, its occupancy in the model and the counts of all transitions."""

    transitions: Transitions
    """Counts n of all transitions so far."""
    explorer: Policy
    """Optimistic policy, which explores for a return."""
    outlook: Float[Array, " S"]
    """Values of the optimistic policy, see `exploration.improve_values`."""


class PlugIn(Algorithm[PlugInState]):
    """Planning in the posterior mean of a model, from counts n(s, a, s') of all transitions so far.

        for k = 0, 1, ...:
            sample N trajectories under the policy and add their transitions to the counts
            if the number of trajectories has passed a power of `growth`:
                P(s'|s, a) = (n(s, a, s') + c / S) / (n(s, a) + c)
                improve the current policy for F in the model with transition P
                mix the improved policy with uniform actions, with probability explore / k

    Under the prior, an untried action leads to every state with equal probability. The prior of the
    rewards is optimistic and makes the policy explore untried pairs. For a return of the
    environment's reward, half of the batches, drawn at random, follow another policy: the best one
    of the model with optimistic local transitions, where eta imagined visits of each pair lead to
    the best state (see `exploration`). The prior of the rewards is then the lowest reward.
    Observations and actions must
    be discrete and the policy a table. The occupancy of the state is that of the plan in the model.
    The gradient of the state is the displacement from the policy to the plan.

    Args:
        batch: number of trajectories of an iteration (N). Default: 1 for a return, otherwise by
            policy, see `base.default_batch`.
        prior: weight of the prior of each pair of state and action, as a number of observations
            (c). Default: 0.1.
        explore: fraction of uniform actions after the first iteration, divided by k after k
            iterations; in [0, 1]. Default: 0.3.
        growth: factor by which the number of trajectories grows between two plans, above 1.
            Default: 1.1.
        plan_steps: number of steps of planning, see `planning.plan`. Default: 20.
        optimism: number of imagined visits of each pair of state and action (eta), for a return. 0
            explores as for other utilities. Default: 0.3.
        step_size: step size towards the plan (eta). Default: 1, the whole displacement.
        decay_after: number of steps k_0 in the decay eta / sqrt(1 + k / k_0). Default: none.
        radius: bound of the norm of a displacement (delta), or "theory". Default: inf.
        rule: step rule: "adam", "natural", "gradient", "normalised" or an optax transformation.
            Default: "gradient".
        baseline: no effect, because no gradient is estimated. Default: "mean".
        output: policy that training returns: "last", "uniform", "best" or "average". Default:
            "average" under constraints, otherwise "last".
    """

    estimates_gradient: ClassVar[bool] = False

    batch: int | None = eqx.field(static=True, default=None)
    prior: Number = 0.1
    explore: Number = 0.3
    growth: float = eqx.field(static=True, default=1.1)
    plan_steps: int = eqx.field(static=True, default=20)
    optimism: float = eqx.field(static=True, default=0.3)
    _: KW_ONLY
    step_size: Number | None = 1.0
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="gradient")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not is_traced(self.prior):
            check_number("prior", self.prior, low=0.0, open_low=True)
        check_number("growth", self.growth, low=1.0, open_low=True)
        check_integer("plan_steps", self.plan_steps)
        check_number("optimism", self.optimism, low=0.0)
        if is_traced(self.explore):
            return
        if check_number("explore", self.explore, low=0.0) > 1:
            raise ValueError(f"explore must be in [0, 1], got {self.explore!r}.")

    @property
    def phases(self) -> tuple[Phase[PlugInState], ...]:
        """N trajectories with a new plan, and N without one."""
        batch = require_resolved("batch", self.batch)
        return Phase(batch, self._plan, self._behaviour), Phase(batch, self._count, self._behaviour)

    def phase(self, iteration: int) -> int:
        """Return 0, a new plan, if the iteration passes a power of `growth`, else 1."""
        if iteration == 0:
            return 0
        power = floor(log(iteration, self.growth))
        next_power = floor(log(iteration + 1, self.growth))
        return int(next_power <= power)

    def resolve(self, problem: Problem, policy: Policy) -> Algorithm[PlugInState]:
        """Return the algorithm with numbers for the hyperparameters that were left open."""
        algorithm = self
        if self.batch is None:
            batch = default_batch(problem, policy)
            if self._is_optimistic(problem):
                batch = 1
            algorithm = replace(algorithm, batch=batch)
        return Algorithm.resolve(algorithm, problem, policy)

    def init(self, problem: Problem, policy: Policy) -> PlugInState:
        """Return the state before the first iteration, without counts."""
        if not isinstance(policy, Tabular):
            raise ValueError(
                "policy must be a table for PlugIn, which needs discrete observations and actions, "
                f"got {type(policy).__name__} in {type(problem.env).__name__}. Use REINFORCE."
            )
        S, A = policy.table.shape
        if S * A * S > MAX_COUNTS:
            raise ValueError(
                f"S * A * S must be at most {MAX_COUNTS:,} for PlugIn, got {S:,} states and {A:,} "
                "actions. Use REINFORCE."
            )
        k = len(getattr(problem.env, "info", ()))
        info = None
        if k:
            info = jnp.zeros((S, A, k))
        transitions = Transitions(
            initial=jnp.zeros(S),
            counts=jnp.zeros((S, A, S)),
            rewards=jnp.zeros((S, A)),
            ends=jnp.zeros(S),
            info=info,
        )
        return PlugInState(
            policy=policy,
            occupancy=jnp.zeros(problem.size),
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            transitions=transitions,
            explorer=policy,
            outlook=exploration.initial_values(problem, S),
        )

    def metrics(self, state: PlugInState) -> dict[str, Float[Array, ""]]:
        """Return the metric `tried`, the fraction of tried pairs of state and action."""
        tried = state.transitions.counts.sum(2) > 0
        return {"tried": jnp.mean(tried, dtype=state.occupancy.dtype)}

    def model(self, problem: Problem, state: PlugInState) -> Model:
        """Return the posterior mean of the model, with the counts."""
        is_optimistic = not self._is_optimistic(problem)
        return posterior(problem, state.transitions, self.prior, is_optimistic)

    def _is_optimistic(self, problem: Problem) -> bool:
        """Return whether another policy explores."""
        return self.optimism > 0 and exploration.is_return(problem)

    def _behaviour(self, state: PlugInState, key: Key[Array, ""]) -> Policy:
        """Return the explorer or the policy. For most utilities they are the same."""
        explores = jax.random.bernoulli(key)
        return choose(explores, state.explorer, state.policy)

    def _count(self, state: PlugInState, batch: Batch, key: Key[Array, ""]) -> PlugInState:
        transitions = jax.tree.map(jnp.add, state.transitions, batch.transitions())
        memory = state.memory.without_step()
        state = replace(state, transitions=transitions, memory=memory)
        if not self._is_optimistic(batch.problem):
            return state
        outlook, action_values = exploration.improve_values(
            batch.problem, transitions, state.outlook, self.optimism
        )
        logits = exploration.greedy_logits(action_values, MIN_LOGIT)
        explorer = eqx.tree_at(_table, state.explorer, logits)
        return replace(state, explorer=explorer, outlook=outlook)

    def _plan(self, state: PlugInState, batch: Batch, key: Key[Array, ""]) -> PlugInState:
        state = self._count(state, batch, key)
        model = self.model(batch.problem, state)
        table = _table(state.policy)
        start = table
        if self._is_optimistic(batch.problem):
            start = greedy_plan(batch.problem, model, table)
        logits, occupancy = plan(batch.problem, model, start, self.plan_steps)
        iterations = state.transitions.initial.sum() / require_resolved("batch", self.batch)
        explore = self.explore / jnp.maximum(iterations, 1.0)
        probs = (1 - explore) * jax.nn.softmax(logits) + explore / logits.shape[1]
        displacement = Tabular(jnp.log(probs) - table)
        policy, memory = self.step()(state.policy, displacement, state.memory, batch)
        explorer = state.explorer
        if not self._is_optimistic(batch.problem):
            explorer = policy
        return replace(
            state,
            policy=policy,
            memory=memory,
            occupancy=occupancy,
            gradient=displacement,
            explorer=explorer,
        )


def _table(policy: Any) -> Float[Array, "S A"]:
    return policy.table

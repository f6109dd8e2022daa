"""Plug-in planning: count transitions, plan in the model that follows from the counts, act, repeat."""

from dataclasses import replace
from math import floor, inf, log
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from occupax.algorithms.base import Algorithm, AlgorithmState, Output, Phase, default_batch
from occupax.algorithms.planning import Model, plan, posterior
from occupax.algorithms.updates import resolved, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch, Transitions
from occupax.errors import check_integer, check_number, is_traced
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Number, Radius

MAX_COUNTS = 30_000_000
"""Largest number S * A * S of counts; they take 120 MB in each of five runs."""


class PlugInState(AlgorithmState):
    """The policy, its occupancy in the model, and the counts of all transitions."""

    seen: Transitions


class PlugIn(Algorithm[PlugInState]):
    """Planning for the utility in the posterior mean of a model, from counts n(s, a, s') of all transitions so far.

        for k = 0, 1, ...:
            sample N trajectories under the policy and add their transitions to the counts
            if the number of trajectories has passed a power of `growth`:
                P(s'|s, a) = (n(s, a, s') + c / S) / (n(s, a) + c)
                plan: improve the policy for F in the model with transition P, from the current
                    policy on
                act as planned, but uniformly with probability explore / k

    The prior believes that an action which was not tried may lead anywhere. Rewards have an
    optimistic prior, so that unknown pairs are worth a visit. Observations and actions are discrete
    and the policy is a table. The state's occupancy is that of the plan in the model, and its
    gradient the displacement from the policy to the plan.

    Args:
        batch: trajectories of an iteration (N); by default `default_batch`.
        prior: number of observations that the prior counts as, for every pair of state and action
            (c).
        explore: fraction of uniform actions after the first plan; after k iterations it is this
            over k.
        growth: factor by which the number of trajectories grows between two plans.
        plan_steps: steps of planning; see `planning.plan`.
        step_size, radius, rule: step towards the plan, by default all the way; see `Algorithm`.
        baseline: no effect, because no gradient is estimated.
        decay_after, output: see `Algorithm`.
    """

    estimates_gradient: ClassVar[bool] = False

    batch: int | None = eqx.field(static=True, default=None)
    prior: Number = 0.1
    explore: Number = 0.3
    growth: float = eqx.field(static=True, default=1.1)
    plan_steps: int = eqx.field(static=True, default=20)
    step_size: Number | None = eqx.field(kw_only=True, default=1.0)
    decay_after: Number | None = eqx.field(kw_only=True, default=None)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="gradient")
    baseline: BaselineName = eqx.field(kw_only=True, static=True, default="mean")
    output: Output | None = eqx.field(kw_only=True, static=True, default=None)

    def __check_init__(self) -> None:
        if not is_traced(self.prior):
            check_number("prior", self.prior, low=0.0, open_low=True)
        if not is_traced(self.explore) and check_number("explore", self.explore, low=0.0) > 1:
            raise ValueError(
                f"explore must be a fraction of the actions, at most 1, got {self.explore!r}."
            )
        check_number("growth", self.growth, low=1.0, open_low=True)
        check_integer("plan_steps", self.plan_steps)

    @property
    def phases(self) -> tuple[Phase[PlugInState], ...]:
        """N trajectories, with and without a new plan."""
        batch = resolved("batch", self.batch)
        return Phase(batch, self._plan), Phase(batch, self._count)

    def phase(self, iteration: int) -> int:
        """Return 0, a new plan, if the number of trajectories has passed a power of `growth`, else 1."""
        if iteration == 0:
            return 0
        power = floor(log(iteration, self.growth))
        next_power = floor(log(iteration + 1, self.growth))
        return int(next_power <= power)

    def resolve(self, problem: Problem, policy: Policy) -> Algorithm[PlugInState]:
        """Return the algorithm with numbers for the hyperparameters that were left open."""
        algorithm = self
        if self.batch is None:
            algorithm = replace(algorithm, batch=default_batch(problem, policy))
        return Algorithm.resolve(algorithm, problem, policy)

    def init(self, problem: Problem, policy: Policy) -> PlugInState:
        """Return the state before the first iteration, without counts."""
        if not isinstance(policy, Tabular):
            got = f"{type(problem.env).__name__} with a policy that is {type(policy).__name__}"
            raise ValueError(
                f"PlugIn needs discrete observations and actions, and a table as its policy; got {got}."
            )
        S, A = policy.table.shape
        if S * A * S > MAX_COUNTS:
            raise ValueError(
                f"PlugIn counts S * A * S transitions, at most {MAX_COUNTS:,}; got {S:,} states."
            )
        k = len(getattr(problem.env, "info", ()))
        seen = Transitions(
            initial=jnp.zeros(S),
            counts=jnp.zeros((S, A, S)),
            rewards=jnp.zeros((S, A)),
            ends=jnp.zeros(S),
            info=jnp.zeros((S, A, k)) if k else None,
        )
        return PlugInState(
            policy=policy,
            occupancy=jnp.zeros(problem.size),
            gradient=zero_gradient(policy),
            memory=self.step().init(policy),
            seen=seen,
        )

    def metrics(self, state: PlugInState) -> dict[str, Float[Array, ""]]:
        """Return the metric `tried`: the fraction of all pairs of state and action that were tried."""
        return {"tried": jnp.mean(state.seen.counts.sum(2) > 0, dtype=state.occupancy.dtype)}

    def model(self, problem: Problem, state: PlugInState) -> Model:
        """Return the posterior mean of the model, with the counts."""
        return posterior(problem, state.seen, self.prior)

    def _count(self, state: PlugInState, batch: Batch, key: Key[Array, ""]) -> PlugInState:
        seen = jax.tree.map(jnp.add, state.seen, batch.transitions())
        return replace(state, seen=seen, memory=state.memory.without_step())

    def _plan(self, state: PlugInState, batch: Batch, key: Key[Array, ""]) -> PlugInState:
        state = self._count(state, batch, key)
        model = self.model(batch.problem, state)
        table = _table(state.policy)
        logits, occupancy = plan(batch.problem, model, table, self.plan_steps)
        iterations = state.seen.initial.sum() / resolved("batch", self.batch)
        explore = self.explore / jnp.maximum(iterations, 1.0)
        probs = (1 - explore) * jax.nn.softmax(logits) + explore / logits.shape[1]
        displacement = Tabular(jnp.log(probs) - table)
        policy, memory = self.step()(state.policy, displacement, state.memory, batch)
        return replace(
            state, policy=policy, memory=memory, occupancy=occupancy, gradient=displacement
        )


def _table(policy: Any) -> Float[Array, "S A"]:
    return policy.table

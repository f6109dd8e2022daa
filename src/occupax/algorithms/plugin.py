"""Plug-in planning: count what leads where, plan in the model that follows from it, act, repeat."""

from dataclasses import replace
from math import floor, log
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from occupax._errors import check_integer, check_number, is_traced
from occupax.algorithms.base import Algorithm, AlgorithmState, Phase, chosen, no_gradient
from occupax.algorithms.planning import Model, plan, posterior
from occupax.batches import Batch, Transitions
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Number

MOST_COUNTS = 30_000_000
"""How many counts S * A * S there may be; they take 120 MB in each of five runs."""


class PlugInState(AlgorithmState):
    """The policy, what the model says of it, and all that was seen."""

    seen: Transitions


class PlugIn(Algorithm[PlugInState]):
    """Plans for the utility in the posterior mean of a model, exactly, and acts as planned.

    P(s'|s, a) = (n(s, a, s') + c / S) / (n(s, a) + c), which believes of what was not tried that it may lead anywhere;
    rewards are learned likewise, and hoped to be high where nothing was tried. So what is not known is worth a visit.
    States and actions must be discrete, and the policy a table. The state's occupancy is that of the model, and its
    gradient the way to the plan.

    Args:
        batch: trajectories an iteration (N); by default that of `default_batch`.
        prior: how many observations the prior counts as, in every state and for every action (c).
        explore: the share of the actions that are drawn uniformly after the first iteration, so that no belief stays
            untested; after t iterations it is this over t.
        growth: a new plan is made whenever there are this many times as many trajectories as at the last one.
        plan_steps: steps of planning, from the present policy on; see `planning.plan`.
        step_size, radius, rule: how far to go towards the plan: all the way, by default; see `Algorithm`.
        baseline: has no effect, because no gradient is estimated.
        output: see `Algorithm`.
    """

    tuned_setting: ClassVar[str] = "prior"

    batch: int | None = eqx.field(static=True, default=None)
    prior: Number = 0.1
    explore: Number = 0.3
    growth: float = eqx.field(static=True, default=1.1)
    plan_steps: int = eqx.field(static=True, default=20)
    step_size: Number | None = eqx.field(kw_only=True, default=1.0)
    rule: Any = eqx.field(kw_only=True, static=True, default="gradient")

    def __check_init__(self) -> None:
        if not is_traced(self.prior):
            check_number("prior", self.prior, low=0.0, open_low=True)
        if not is_traced(self.explore) and check_number("explore", self.explore, low=0.0) > 1:
            raise ValueError(f"explore must be a share of the actions, at most 1, got {self.explore!r}.")
        check_number("growth", self.growth, low=1.0, open_low=True)
        check_integer("plan_steps", self.plan_steps)

    @property
    def phases(self) -> tuple[Phase[PlugInState], ...]:
        """With a new plan, and without."""
        return Phase(chosen("batch", self.batch), self._plan), Phase(chosen("batch", self.batch), self._look)

    def phase(self, iteration: int | Int[Array, ""]) -> int:
        """A plan, if the number of trajectories has passed a power of `growth`."""
        before, after = int(iteration), int(iteration) + 1
        grown = before == 0 or floor(log(after, self.growth)) > floor(log(before, self.growth))
        return 0 if grown else 1

    def init(self, problem: Problem, policy: Policy) -> PlugInState:
        """Nothing was seen yet."""
        if not isinstance(policy, Tabular):
            got = f"{type(problem.env).__name__} with a policy that is {type(policy).__name__}"
            raise ValueError(f"PlugIn needs discrete observations and actions, and a table as its policy; got {got}.")
        S, A = policy.table.shape
        if S * A * S > MOST_COUNTS:
            raise ValueError(f"PlugIn counts S * A * S transitions, at most {MOST_COUNTS:,}; got {S:,} states.")
        k = len(getattr(problem.env, "info", ()))
        zeros = jnp.zeros
        seen = Transitions(zeros(S), zeros((S, A, S)), zeros((S, A)), zeros(S), zeros((S, A, k)) if k else None)
        return PlugInState(policy, zeros(problem.size), no_gradient(policy), self.step().init(policy), seen)

    def metrics(self, state: PlugInState) -> dict[str, Float[Array, ""]]:
        """The share of all pairs of state and action that were tried."""
        return {"tried": jnp.mean(state.seen.counts.sum(2) > 0, dtype=state.occupancy.dtype)}

    def model(self, problem: Problem, state: PlugInState) -> Model:
        """The posterior mean, with what it was counted from."""
        return posterior(problem, state.seen, self.prior)

    def _look(self, state: PlugInState, batch: Batch, key: Key[Array, ""]) -> PlugInState:
        still = replace(state.memory, length=jnp.zeros_like(state.memory.length), clipped=jnp.zeros((), bool))
        return replace(state, seen=jax.tree.map(jnp.add, state.seen, batch.transitions()), memory=still)

    def _plan(self, state: PlugInState, batch: Batch, key: Key[Array, ""]) -> PlugInState:
        state, table = self._look(state, batch, key), _table(state.policy)
        logits, u = plan(batch.problem, self.model(batch.problem, state), table, self.plan_steps)
        iterations = state.seen.initial.sum() / chosen("batch", self.batch)
        explore = self.explore / jnp.maximum(iterations, 1.0)
        probs = (1 - explore) * jax.nn.softmax(logits) + explore / logits.shape[1]
        way = Tabular(jnp.log(probs) - table)
        policy, memory = self.step()(state.policy, way, state.memory, batch)
        return replace(state, policy=policy, memory=memory, occupancy=u, gradient=way)


def _table(policy: Any) -> Float[Array, "S A"]:
    return policy.table

"""Model of a tabular environment, learned from counts, and planning in the model."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float

from occupax.algorithms.exploration import greedy_logits
from occupax.algorithms.updates import choose
from occupax.batches import Transitions
from occupax.problem import Problem
from occupax.steps import Number

MIN_LOGIT = -12.0
"""Lowest logit relative to the highest of a state. A few steps can restore every action."""
SIZE_GROWTH = 1.5
"""Factor of the step size of planning after a step that raises the utility."""
SIZE_DECAY = 0.3
"""Factor of the step size of planning after a step that would lower the utility."""
MIN_SEQUENTIAL_STATES = 256
"""Smallest number of states with which runs plan one after the other.

The cache of a core does not hold the matrices of several such runs.
"""


class Model(eqx.Module):
    """Posterior mean of an environment, and the counts it is computed from."""

    transition: Float[Array, "S A S"]
    reward: Float[Array, "S A"]
    initial: Float[Array, " S"]
    terminal: Bool[Array, " S"]
    """States in which an episode has terminated."""
    info: Float[Array, "S A k"] | None
    counts: Float[Array, "S A S"]
    """Number of transitions from each state and action to each state."""


@eqx.filter_jit
def posterior(
    problem: Problem, transitions: Transitions, prior: Number, optimistic: bool = True
) -> Model:
    """Return the posterior mean under a Dirichlet prior that is uniform over the next states.

    The optimistic reward prior is the highest mean reward so far plus its distance from the lowest,
    or plus 1 if all are equal. The prior of other values is zero.

    Args:
        problem: problem of the training run.
        transitions: counts of all transitions so far.
        prior: weight of the prior, as a number of observations of each state and action.
        optimistic: whether the reward prior is optimistic. Otherwise it is the lowest mean reward
            so far, at most 0.
    """
    tried = transitions.counts.sum(2)
    states = len(transitions.initial)
    weight = tried + prior
    transition = (transitions.counts + prior / states) / weight[..., None]
    mean = transitions.rewards / jnp.maximum(tried, 1)
    highest = jnp.max(mean, where=tried > 0, initial=-jnp.inf)
    lowest = jnp.min(mean, where=tried > 0, initial=jnp.inf)
    spread = jnp.where(highest > lowest, highest - lowest, 1.0)
    untried = jnp.where(jnp.isfinite(highest), highest + spread, 0.0)
    if not optimistic:
        untried = jnp.where(jnp.isfinite(lowest), jnp.minimum(lowest, 0.0), 0.0)
    reward = (transitions.rewards + prior * untried) / weight
    info = transitions.info
    if info is not None:
        info = info / weight[..., None]
    terminal = transitions.ends > 0
    if problem.termination == "absorbing":
        pairs = jnp.indices(tried.shape)
        reward_after_end = jax.vmap(jax.vmap(problem.reward_after_end))(*pairs)
        reward = jnp.where(terminal[:, None], reward_after_end.astype(reward.dtype), reward)
        transition = jnp.where(terminal[:, None, None], jnp.eye(states)[:, None], transition)
        if info is not None:
            info = jnp.where(terminal[:, None, None], 0.0, info)
    initial = transitions.initial / jnp.maximum(transitions.initial.sum(), 1)
    return Model(transition, reward, initial, terminal, info, transitions.counts)


def greedy_plan(problem: Problem, model: Model, logits: Float[Array, "S A"]) -> Array:
    """Return logits of the best policy for a return, if it is better in the model than `logits`.

    The policy is greedy for the values of backward induction over the horizon. In each state it
    takes tried actions only, if there are any.

    Args:
        problem: problem whose utility is a return of the environment's reward.
        model: model of the environment.
        logits: logits of the current policy.
    """
    is_end = model.terminal & (problem.termination == "episodic")
    continues = jnp.where(is_end, 0.0, jnp.ones_like(model.initial))
    reward = problem.quasi_reward(jnp.zeros(1))[0] * model.reward
    is_tried = model.counts.sum(2) > 0
    is_allowed = is_tried | ~is_tried.any(1, keepdims=True)

    def action_values(values: Array) -> Array:
        following = model.transition @ (continues * values)
        return jnp.where(is_allowed, reward + problem.discount * following, -jnp.inf)

    def sweep(_: int, values: Array) -> Array:
        return action_values(values).max(1)

    horizon = problem.sampling_horizon()
    values = jax.lax.fori_loop(0, horizon - 1, sweep, jnp.zeros_like(model.initial))
    greedy = greedy_logits(action_values(values), MIN_LOGIT)
    is_better = (
        make_plan(problem, model, greedy).utility >= make_plan(problem, model, logits).utility
    )
    return jnp.where(is_better, greedy, logits)


class Plan(NamedTuple):
    """Logits of a policy, and the exact evaluation of the policy in a model."""

    logits: Float[Array, "S A"]
    utility: Float[Array, ""]
    occupancy: Float[Array, " d"]
    """Occupancy of the features."""
    advantages: Float[Array, "S A"]
    """Derivative of the utility by the probability of an action, for each visit of its state."""


def make_plan(problem: Problem, model: Model, logits: Float[Array, "S A"]) -> Plan:
    """Return the exact evaluation of a softmax policy in a model.

    The derivative of the utility is sum_t m_t(s) Q_t(s, a), for the masses m_t of the states and
    the action values Q_t of the quasi-reward.
    """
    probs = jax.nn.softmax(logits)
    is_end = model.terminal & (problem.termination == "episodic")
    continues = jnp.where(is_end, 0.0, jnp.ones_like(model.initial))
    discounted = problem.discount * model.transition * continues
    chain = jnp.einsum("sa,sax->sx", probs, discounted)
    horizon = problem.sampling_horizon()

    def next_mass(mass: Array, _: None) -> tuple[Array, Array]:
        return mass @ chain, mass

    masses = jax.lax.scan(next_mass, model.initial * continues, None, length=horizon)[1]
    visits = masses.sum(0)
    step = [*jnp.indices(probs.shape), model.reward]
    if model.info is not None:
        step.append(model.info)
    counts = jax.vmap(jax.vmap(problem.count))(*step)
    occupancy = counts.total(visits[:, None] * probs, problem.size)
    reward = counts.inner(problem.quasi_reward(occupancy))
    state_reward = jnp.sum(probs * reward, 1)

    def previous_value(value: Array, _: None) -> tuple[Array, Array]:
        return state_reward + chain @ value, value

    last_value = jnp.zeros_like(state_reward)
    values = jax.lax.scan(previous_value, last_value, None, length=horizon)[1]
    future = jnp.einsum("sax,sx->sa", discounted, masses.T @ values[::-1])
    gain = reward * visits[:, None] + future
    visited = visits > 0
    divisor = jnp.where(visited, visits, 1.0)
    gain = jnp.where(visited[:, None], gain / divisor[:, None], 0.0)
    advantages = gain - jnp.sum(probs * gain, 1, keepdims=True)
    return Plan(logits, problem.estimated_utility(occupancy), occupancy, advantages)


@eqx.filter_jit  # outside a compiled program, each step would be compiled again
def plan(
    problem: Problem, model: Model, logits: Float[Array, "S A"], steps: int
) -> tuple[Float[Array, "S A"], Float[Array, " d"]]:
    """Return improved logits for the utility in a model, and their occupancy.

    Each step moves the logits along the exact advantages of the quasi-reward, the natural gradient
    of a table. A step that lowers the utility is rejected. The step size grows after each accepted
    step, so that the iterates approach those of policy iteration for a linear utility.

    Args:
        problem: problem of the training run.
        model: model of the environment.
        logits: logits of the current policy.
        steps: number of steps.
    """
    arrays, static = eqx.partition((problem, model, logits), eqx.is_array)

    def improve(arrays: Any) -> tuple[Array, Array]:
        problem, model, logits = eqx.combine(arrays, static)
        return _improve(problem, model, logits, steps)

    if len(model.initial) >= MIN_SEQUENTIAL_STATES:
        improve = sequential_vmap(improve)
    return improve(arrays)


def _improve(
    problem: Problem, model: Model, logits: Float[Array, "S A"], steps: int
) -> tuple[Array, Array]:
    def improve_once(carry: tuple[Plan, Array], _: None) -> tuple[tuple[Plan, Array], None]:
        current, size = carry
        largest = jnp.max(jnp.abs(current.advantages))
        scale = jnp.where(largest > 0, largest, 1.0)
        logits = current.logits + size * current.advantages / scale
        logits = jnp.maximum(logits - logits.max(1, keepdims=True), MIN_LOGIT)
        candidate = make_plan(problem, model, logits)
        is_better = candidate.utility >= current.utility
        factor = jnp.where(is_better, SIZE_GROWTH, SIZE_DECAY)
        return (choose(is_better, candidate, current), size * factor), None

    first = make_plan(problem, model, logits)
    first_size = jnp.ones((), logits.dtype)
    (best, _), _ = jax.lax.scan(improve_once, (first, first_size), None, length=steps)
    return best.logits, best.occupancy

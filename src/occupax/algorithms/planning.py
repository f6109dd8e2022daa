"""A model of a process with numbered states and actions, learned from counts, and the best stationary policy in it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float

from occupax.batches import Transitions
from occupax.problem import Problem
from occupax.steps import Number

LOWEST = -12.0
"""How far a logit is at most below the highest of its state, so that no action is out of reach of a
few steps."""
GROW, SHRINK = 1.5, 0.3
"""What a step of planning is multiplied by after one that helped, and after one that did not."""
MANY_STATES = 256
"""From here on the runs of a program plan one after the other: a core's cache does not hold the
matrices of several."""


class Model(eqx.Module):
    """What is believed about a process: the posterior mean of its transitions, and what they were counted from."""

    transition: Float[Array, "S A S"]
    reward: Float[Array, "S A"]
    initial: Float[Array, " S"]
    terminal: Bool[Array, " S"]
    """The states in which an episode was seen to end."""
    info: Float[Array, "S A k"] | None
    counts: Float[Array, "S A S"]
    """How often an action in a state led to each state."""


@eqx.filter_jit
def posterior(problem: Problem, seen: Transitions, prior: Number) -> Model:
    """The posterior mean under a Dirichlet prior that spreads `prior` observations evenly over all states.

    The reward of what was not tried is optimistic: above the highest mean so far by as much as that
    is above the lowest, or by 1 if all are alike; it counts as `prior` observations, too. Other
    values begin at zero.
    """
    tried = seen.counts.sum(2)
    states = len(seen.initial)
    transition = (seen.counts + prior / states) / (tried + prior)[..., None]
    mean = seen.rewards / jnp.maximum(tried, 1)
    highest, lowest = (
        jnp.max(mean, where=tried > 0, initial=-jnp.inf),
        jnp.min(mean, where=tried > 0, initial=jnp.inf),
    )
    spread = jnp.where(highest > lowest, highest - lowest, 1.0)
    hoped = jnp.where(jnp.isfinite(highest), highest + spread, 0.0)
    reward = (seen.rewards + prior * hoped) / (tried + prior)
    info = None if seen.info is None else seen.info / (tried + prior)[..., None]
    terminal = seen.ends > 0
    if problem.termination == "absorbing":
        pairs = jnp.indices(tried.shape)
        after_end = jax.vmap(jax.vmap(problem.reward_after_end))(*pairs).astype(reward.dtype)
        reward = jnp.where(terminal[:, None], after_end, reward)
        transition = jnp.where(terminal[:, None, None], jnp.eye(states)[:, None], transition)
        info = None if info is None else jnp.where(terminal[:, None, None], 0.0, info)
    initial = seen.initial / jnp.maximum(seen.initial.sum(), 1)
    return Model(transition, reward, initial, terminal, info, seen.counts)


def evaluate(
    problem: Problem, model: Model, probs: Float[Array, "S A"]
) -> tuple[Float[Array, ""], Float[Array, " d"], Float[Array, "S A"]]:
    """The utility, the occupancy of the features and the advantages of a table of probabilities, exact in a model.

    The advantage of an action is what it adds to the utility, for a visit of its state, at all
    times together: the derivative is sum_t m_t(s) Q_t(s, a), for the masses m_t of the states and
    Q_t of the quasi-reward.
    """
    going_on = jnp.where(
        model.terminal & (problem.termination == "episodic"), 0.0, jnp.ones_like(model.initial)
    )
    onward = problem.discount * model.transition * going_on
    moving = jnp.einsum("sa,sax->sx", probs, onward)
    horizon = problem.sampling_horizon()
    masses = jax.lax.scan(
        lambda mass, _: (mass @ moving, mass), model.initial * going_on, None, length=horizon
    )[1]
    visits = masses.sum(0)
    pairs = jnp.indices(probs.shape)
    step = [*pairs, model.reward] if model.info is None else [*pairs, model.reward, model.info]
    counts = jax.vmap(jax.vmap(problem.count))(*step)
    found = counts.total(visits[:, None] * probs, problem.size)
    reward = counts.inner(problem.quasi_reward(found))
    here = jnp.sum(probs * reward, 1)
    later = jax.lax.scan(
        lambda value, _: (here + moving @ value, value), jnp.zeros_like(here), None, length=horizon
    )[1]
    gain = reward * visits[:, None] + jnp.einsum("sax,sx->sa", onward, masses.T @ later[::-1])
    gain = jnp.where(visits[:, None] > 0, gain / jnp.where(visits > 0, visits, 1.0)[:, None], 0.0)
    return problem.estimated_utility(found), found, gain - jnp.sum(probs * gain, 1, keepdims=True)


@eqx.filter_jit  # outside of a compiled program, each step would be compiled anew
def plan(
    problem: Problem, model: Model, logits: Float[Array, "S A"], steps: int
) -> tuple[Float[Array, "S A"], Float[Array, " d"]]:
    """Improve a table of logits for the utility in a model; return it with its occupancy.

    Each step moves the logits along the advantages of the quasi-reward (the natural gradient of a
    table), exactly, and is taken only if it does not lower the utility. After steps that help the
    next is longer, so that for a linear utility this ends as policy iteration does.
    """
    arrays, rest = eqx.partition((problem, model, logits), eqx.is_array)

    def improved(arrays: Any) -> tuple[Array, Array]:
        problem, model, logits = eqx.combine(arrays, rest)
        return _improved(problem, model, logits, steps)

    one_by_one = len(model.initial) >= MANY_STATES
    return (sequential_vmap(improved) if one_by_one else improved)(arrays)


def _improved(
    problem: Problem, model: Model, logits: Float[Array, "S A"], steps: int
) -> tuple[Array, Array]:

    def improve(carry: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        logits, worth, gain, size = carry[0], carry[1], carry[3], carry[4]
        largest = jnp.max(jnp.abs(gain))
        moved = logits + size * gain / jnp.where(largest > 0, largest, 1.0)
        moved = jnp.maximum(moved - moved.max(1, keepdims=True), LOWEST)
        new = evaluate(problem, model, jax.nn.softmax(moved))
        better = new[0] >= worth
        kept = [
            jnp.where(better, one, other)
            for one, other in zip((moved, *new), carry[:-1], strict=True)
        ]
        return (*kept, size * jnp.where(better, GROW, SHRINK)), None

    first = logits, *evaluate(problem, model, jax.nn.softmax(logits)), jnp.ones((), logits.dtype)
    logits, _, found, _, _ = jax.lax.scan(improve, first, None, length=steps)[0]
    return logits, found

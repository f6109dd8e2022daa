"""Optimistic local transitions: exploration in a model learned from counts.

Araya-Lopez, Thomas and Buffet (2012): eta imagined visits of each state and action have the highest
conceivable reward and lead to the state of the highest value.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.batches import Transitions
from occupax.features import Reward
from occupax.problem import Problem
from occupax.steps import Number

SWEEPS = 10
"""Sweeps of value iteration after each batch. The values of the last batch are the start."""


def is_return(problem: Problem) -> bool:
    """Return whether the utility is a return of the environment's reward without constraints."""
    is_reward = isinstance(problem.features, Reward)
    return is_reward and problem.utility.linear and not problem.constraints


def planning_discount(problem: Problem) -> float:
    """Return the discount factor of the values, whose horizon is at most that of the problem."""
    return min(problem.discount, 1 - 1 / problem.sampling_horizon())


def initial_values(problem: Problem, states: int) -> Float[Array, " S"]:
    """Return the values of states without visits: the best reward in each step."""
    return jnp.full(states, 1 / (1 - planning_discount(problem)))


def improve_values(
    problem: Problem, transitions: Transitions, values: Float[Array, " S"], optimism: Number
) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
    """Return the values after some sweeps of value iteration, and the action values.

    Values are in units of the highest conceivable reward: the horizon times the largest mean reward
    of a state and action so far, or 1 if all rewards were zero.

    Args:
        problem: problem of the training run.
        transitions: counts of all transitions so far.
        values: values of the last batch.
        optimism: number of imagined visits of each state and action (eta).
    """
    tried = transitions.counts.sum(2)
    weight = tried + optimism
    slope = problem.quasi_reward(jnp.zeros(1))[0]
    rewards = slope * transitions.rewards
    largest = jnp.max(jnp.abs(rewards) / jnp.maximum(tried, 1))
    hope = jnp.where(largest > 0, problem.sampling_horizon() * largest, 1.0)
    mean_rewards = (rewards / hope + optimism) / weight
    continues = jnp.where(transitions.ends > 0, 0.0, jnp.ones_like(values))
    discount = planning_discount(problem)

    def action_values(values: Float[Array, " S"]) -> Float[Array, "S A"]:
        imagined = optimism * jnp.max(values)
        following = transitions.counts @ (continues * values)
        return mean_rewards + discount * (following + imagined) / weight

    def sweep(_: int, values: Float[Array, " S"]) -> Float[Array, " S"]:
        return action_values(values).max(1)

    values = jax.lax.fori_loop(0, SWEEPS, sweep, values)
    return values, action_values(values)


def greedy_logits(action_values: Float[Array, "S A"], lowest: float) -> Float[Array, "S A"]:
    """Return logits of the greedy policy, with `lowest` for all other actions."""
    best = action_values.argmax(1)
    is_best = jnp.arange(action_values.shape[1]) == best[:, None]
    return jnp.where(is_best, 0.0, lowest).astype(action_values.dtype)

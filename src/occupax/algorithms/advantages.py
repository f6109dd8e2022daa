"""Generalised advantages of quasi-rewards (Schulman et al., 2016), and the features of a critic.

A critic estimates discounted sums of m features, whose sum with m coefficients is the quasi-reward.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from occupax.batches import Steps
from occupax.features import Count
from occupax.problem import Problem
from occupax.steps import Number
from occupax.utilities.base import Sum

MAX_VECTOR = 8
"""Largest number of features with a head each. Beyond it, each term of the Lagrangian has one."""


def generalised_advantages(
    features_t: Float[Array, "H m"],
    values_t: Float[Array, "H1 m"],
    end_t: Bool[Array, " H"],
    cut_t: Bool[Array, " H"],
    discount: Number,
    trace: Number,
) -> Float[Array, "H m"]:
    """Return the advantages of each feature along one trajectory.

    delta_t = f_t + discount (1 - end_t) V(s_{t+1}) - V(s_t)
    A_t     = delta_t + discount trace (1 - cut_t) A_{t+1}

    Args:
        features_t: features of each step (f).
        values_t: estimates at each observation and at the final one (V).
        end_t: whether nothing is earned after a step.
        cut_t: whether the record stops after a step.
        discount: discount of the critic (gamma_c).
        trace: weight of long advantages (lambda).
    """
    continues = 1 - end_t[:, None].astype(values_t.dtype)
    errors = features_t + discount * continues * values_t[1:] - values_t[:-1]
    trace_t = discount * trace * (1 - cut_t[:, None].astype(values_t.dtype))

    def step(
        later: Float[Array, " m"], entry: tuple[Array, Array]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        error, weight = entry
        advantage = error + weight * later
        return advantage, advantage

    _, advantages = jax.lax.scan(step, jnp.zeros_like(errors[0]), (errors, trace_t), reverse=True)
    return advantages


def ends_and_cuts(
    live: Bool[Array, "n H"], terminated: Bool[Array, " n"], horizon_ends: bool
) -> tuple[Bool[Array, "n H"], Bool[Array, "n H"]]:
    """Return after which steps nothing is earned, and after which the record stops.

    Args:
        live: whether each step belongs to its episode.
        terminated: whether each episode terminated.
        horizon_ends: whether nothing is earned after the last step of the horizon.
    """
    follows = jnp.pad(live[:, 1:], ((0, 0), (0, 1)))
    cuts = ~follows
    ends = cuts & terminated[:, None]
    if horizon_ends:
        ends = ends.at[:, -1].set(True)
    return ends, cuts


def combined_advantages(
    advantages: Float[Array, "n H m"],
    coefficients: Float[Array, " m"],
    weights: Float[Array, "n H"],
) -> Float[Array, "n H"]:
    """Return the advantages of the quasi-reward, with weighted mean 0 and deviation 1.

    The terms are added before the sum is normalised. Normalised one by one, the terms would lose
    the weights that the utility and the multipliers give them.

    Args:
        advantages: advantages of each feature.
        coefficients: coefficients of the features.
        weights: weight of each step, 0 after the end.
    """
    combined = advantages @ coefficients
    total = jnp.maximum(weights.sum(), jnp.finfo(weights.dtype).tiny)
    centred = combined - jnp.sum(weights * combined) / total
    variance = jnp.sum(weights * centred**2) / total
    deviation = jnp.sqrt(variance)
    return jnp.where(deviation > 0, centred / jnp.where(deviation > 0, deviation, 1.0), 0.0)


def number_of_heads(problem: Problem) -> int:
    """Return the number of features that the critic of a problem has a head for."""
    if problem.size <= MAX_VECTOR:
        return problem.size
    return 1 + len(problem.constraints)


def critic_features(
    problem: Problem, steps: Steps, occupancy: Float[Array, " d"], discount: Number, endless: bool
) -> tuple[Float[Array, "n H m"], Float[Array, " m"]]:
    """Return the features of the critic at each step, and the coefficients of the quasi-reward.

    Args:
        problem: problem, with constraints its Lagrangian.
        steps: steps of a batch.
        occupancy: occupancy of the quasi-reward.
        discount: discount of the critic.
        endless: whether an absorbing terminal state is visited beyond the horizon.
    """
    if problem.size <= MAX_VECTOR:
        directions = jnp.eye(problem.size)
        coefficients = problem.quasi_reward(occupancy)
    else:
        directions, coefficients = _lagrangian_terms(problem, occupancy)
    features = _inner_products(steps.features, directions)
    if steps.terminal_features is not None:
        terminal = _inner_products(steps.terminal_features, directions)
        lengths = steps.live.sum(1)
        below_one = jnp.where(discount == 1, 0.5, discount)
        remaining = discount / (1 - below_one)
        if not endless:
            left = (steps.live.shape[1] - lengths).astype(features.dtype)
            powers = remaining * (1 - below_one**left)
            remaining = jnp.where(discount == 1, left, powers)
        after = jnp.reshape(remaining, (-1, 1)) * terminal
        last = jnp.maximum(lengths - 1, 0)
        features = features.at[jnp.arange(len(last)), last].add(after)
    return jnp.where(steps.live[..., None], features, 0.0), coefficients


def _lagrangian_terms(
    problem: Problem, occupancy: Float[Array, " d"]
) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Return the gradients of objective and constraints, and their weights in the Lagrangian."""
    utility = problem.utility
    if not problem.constraints or not isinstance(utility, Sum):
        return problem.quasi_reward(occupancy)[None], jnp.ones(1)
    weights = jnp.stack([jnp.asarray(weight, occupancy.dtype) for weight in utility.weights])
    gradients: list[Array] = []
    for number in range(len(weights)):
        chosen = tuple(float(number == other) for other in range(len(weights)))
        term = eqx.tree_at(lambda tree: tree.weights, utility, chosen)
        gradients.append(term.gradient(utility.domain(occupancy)))
    return jnp.stack(gradients), weights


def _inner_products(features: Count, directions: Float[Array, "m d"]) -> Float[Array, "*batch m"]:
    """Return the inner products of features with several vectors."""
    return jnp.moveaxis(jax.vmap(features.inner)(directions), 0, -1)

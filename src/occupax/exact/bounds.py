"""Upper bounds of the optimum in float64, for any values of the states."""

import numpy as np
from jaxtyping import Float

from occupax.exact.dynamics import Dynamics
from occupax.exact.objective import Objective

UNIT_ROUNDOFF = 2.0**-53
CONSERVED = 1e-12
"""Largest difference from 1 of the sums of rows that counts as rounding."""

Values = Float[np.ndarray, "*H S"]


def upper_bound(
    model: Dynamics,
    objective: Objective,
    tangent: Float[np.ndarray, " d"],
    multipliers: Float[np.ndarray, " K"],
    values: Values,
) -> float:
    """Return a bound of the utility of all policies that satisfy the constraints.

    For a concave Lagrangian L, every occupancy u and any point y,
    L(u) <= L(y) + <grad L(y), u - y>, and the values bound <grad L(y), u>.

    Args:
        model: dynamics of the problem.
        objective: utility and constraints of the problem.
        tangent: the point y, not necessarily an occupancy.
        multipliers: non-negative multipliers of the constraints.
        values: any values of the states, for a horizon those of each step.
    """
    tangent = np.where(objective.used, tangent, 0.0)
    gradient = objective.gradient(tangent, multipliers)
    reward = (model.features @ gradient).reshape(model.shape)
    if not np.isfinite(reward).all():
        return np.inf
    height = objective.value(tangent) - float(gradient @ tangent)
    if multipliers.size:
        height -= float(multipliers @ objective.excesses(tangent))
    return height + return_bound(model, reward, values)


def return_bound(model: Dynamics, reward: Float[np.ndarray, "S A"], values: Values) -> float:
    """Return a bound of the return of all policies for a reward."""
    reward = reward * model.counting[:, None]
    sums = np.asarray(model.transition.sum(1))
    largest_sum = float(max(sums.max(initial=0.0), 1.0))
    if model.horizon is None:
        return _endless_bound(model, reward, values, sums, largest_sum)
    increase = 0.0
    for t in reversed(range(model.horizon)):
        following = values[t + 1] if t + 1 < model.horizon else np.zeros_like(values[t])
        residual = _residual(model, reward, values[t], following)
        increase = max(0.0, float(residual.max())) + model.discount * largest_sum * increase
    return float(model.initial @ values[0]) + float(model.initial.sum()) * increase


def _endless_bound(
    model: Dynamics,
    reward: Float[np.ndarray, "S A"],
    values: Float[np.ndarray, " S"],
    sums: Float[np.ndarray, " n"],
    largest_sum: float,
) -> float:
    contraction = model.discount * largest_sum
    if contraction >= 1:
        return np.inf
    residual = _residual(model, reward, values, values)
    largest = float(residual.max(initial=0.0))
    mass = float(model.initial.sum())
    start = float(model.initial @ values)
    bound = start + mass * max(0.0, largest) / (1 - contraction)
    if np.abs(sums - 1).max(initial=0.0) <= CONSERVED:
        # No mass is lost, so that a residual below zero everywhere lowers the bound.
        step = float(model.initial @ residual)
        spread = model.discount / (1 - model.discount) * float(residual.max(initial=-np.inf))
        slack = mass * abs(spread) * CONSERVED / (1 - model.discount)
        bound = min(bound, start + step + mass * spread + slack)
    return bound


def _residual(
    model: Dynamics,
    reward: Float[np.ndarray, "S A"],
    values: Float[np.ndarray, " S"],
    following: Float[np.ndarray, " S"],
) -> Float[np.ndarray, " S"]:
    """Return max_a (r + gamma P v') - v with a bound of its rounding errors."""
    action_values = reward + model.discount * model.following(following)
    successors = int(np.diff(model.transition.indptr).max(initial=0))
    sizes = np.abs(reward).max(initial=0.0)
    sizes += np.abs(values).max(initial=0.0) + np.abs(following).max(initial=0.0)
    return action_values.max(1) - values + (successors + 3) * UNIT_ROUNDOFF * float(sizes)

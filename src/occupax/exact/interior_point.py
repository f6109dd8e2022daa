"""Primal-dual interior-point method for a concave utility of non-negative weights.

Maximise F(M' x) over x >= 0 with A x = b and convex constraints G_k(M' x) <= c_k. The weights x are
the occupancy of a table, with the flow equations as A, or the weights of a mixture, which sum to 1.
Predictor and corrector are those of Mehrotra (1992), with one step length for all variables because
the utility is not linear.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from occupax.exact.newton import DualPoint, NewtonStep, NewtonSystem
from occupax.exact.objective import Objective

BOUNDARY = 0.995
"""Fraction of the way to the boundary that a step may take."""
MIN_CENTRING = 1e-6
MIN_SLACK = 1e-12
SHORTEST_STEP = 1e-7
MAX_ITERATIONS = 200
MAX_SHORT_STEPS = 8
"""Number of short steps in a row after which the method has stalled."""
SHORT_STEP = 1e-3
DECREASE = 0.1
"""Fraction of a full step's decrease of the dual residual that a step must have."""

Vector = Float[np.ndarray, " n"]


class Equations(NamedTuple):
    """Linear equations A x = b with the features M of each weight."""

    balance: Callable[[Vector], Vector]
    """The product A x."""
    prices: Callable[[Vector], Vector]
    """The product A' y."""
    right: Vector
    """The right-hand side b."""
    features: sparse.csr_array | Float[np.ndarray, "n d"]
    transposed: sparse.csr_array | Float[np.ndarray, "d n"]
    ramp: Vector
    """Values whose prices A' y are all positive."""


class Iterate(NamedTuple):
    """Primal and dual variables."""

    weights: Vector
    values: Vector
    """Multipliers of the equations: for a table the values of the states."""
    prices: Vector
    """Multipliers of the bounds: the advantages of the best actions over each one."""
    slack: Vector
    multipliers: Vector
    """Multipliers of the constraints."""

    @property
    def complementarity(self) -> float:
        """Mean product of the pairs that vanish at the optimum."""
        total = self.weights @ self.prices + self.slack @ self.multipliers
        return float(total) / (self.weights.size + self.slack.size)


class Residuals(NamedTuple):
    """Derivatives at an iterate, and how far the iterate is from satisfying the equations."""

    features: Vector
    limits: Float[np.ndarray, "K n"]
    """Derivatives of the constraints with respect to the weights."""
    dual: Vector
    primal: Vector
    excess: Vector


def interior_point(
    objective: Objective,
    equations: Equations,
    system: NewtonSystem,
    start: Vector,
    report: Callable[[Iterate, Residuals], bool],
) -> bool:
    """Maximise a utility from positive weights.

    Args:
        objective: utility and constraints, with second derivatives.
        equations: the equations and the features.
        system: linear systems of the Newton steps.
        start: positive weights, which need not satisfy the equations.
        report: called before each step; returns whether to end.

    Returns:
        Whether `report` ended the method. False if the method has stalled.
    """
    iterate = _initial(objective, equations, start)
    residuals = _residuals(objective, equations, iterate)
    short_steps = 0
    for _ in range(MAX_ITERATIONS):
        if report(iterate, residuals):
            return True
        try:
            step = _step(system, iterate, residuals)
            length, iterate, residuals = _advance(objective, equations, iterate, residuals, step)
        except (np.linalg.LinAlgError, RuntimeError, ValueError):
            return False
        if not np.isfinite(iterate.weights).all() or length < SHORTEST_STEP:
            return False
        short_steps = short_steps + 1 if length < SHORT_STEP else 0
        if short_steps > MAX_SHORT_STEPS:
            return False
    return False


def _initial(objective: Objective, equations: Equations, start: Vector) -> Iterate:
    """Return an iterate with a margin to every bound."""
    K = objective.num_constraints
    features = equations.transposed @ start
    excess = objective.excesses(features)
    slack = np.where(excess < -MIN_SLACK, -excess, 1.0)
    reward = equations.features @ objective.gradient(features)
    size = 1.0 + float(np.abs(reward).max())
    multipliers = np.full(K, 0.1 * size) / slack
    if K:
        reward = equations.features @ objective.gradient(features, multipliers)
    smallest = float(equations.prices(equations.ramp).min())
    level = (max(float(reward.max()), 0.0) + 0.1 * size) / smallest
    values = level * equations.ramp
    return Iterate(start, values, equations.prices(values) - reward, slack, multipliers)


def _residuals(objective: Objective, equations: Equations, iterate: Iterate) -> Residuals:
    features = equations.transposed @ iterate.weights
    gradient = objective.gradient(features, iterate.multipliers)
    reward = equations.features @ gradient
    limits = np.zeros((0, iterate.weights.size))
    if objective.num_constraints:
        slopes = objective.excess_gradients(features)
        limits = np.asarray((equations.features @ slopes.T).T)
    dual = equations.prices(iterate.values) - reward - iterate.prices
    primal = equations.right - equations.balance(iterate.weights)
    excess = -(objective.excesses(features) + iterate.slack)
    return Residuals(features, limits, dual, primal, excess)


def _step(system: NewtonSystem, iterate: Iterate, residuals: Residuals) -> Iterate:
    """Return the step of predictor and corrector."""
    point = DualPoint(residuals.features, iterate.multipliers)
    barrier = iterate.prices / iterate.weights
    slack = iterate.slack / iterate.multipliers
    system.factorise(barrier, point, residuals.limits, slack)

    predictor = _direction(system, iterate, residuals, 0.0, None)
    length = min(1.0, _room(iterate, predictor))
    current = iterate.complementarity
    predicted = _moved(iterate, predictor, length).complementarity
    centring = min(max((predicted / current) ** 3, MIN_CENTRING), 1.0)
    return _direction(system, iterate, residuals, centring * current, predictor)


def _advance(
    objective: Objective,
    equations: Equations,
    iterate: Iterate,
    residuals: Residuals,
    step: Iterate,
) -> tuple[float, Iterate, Residuals]:
    """Take a step, shortened where the gradient is far from its linear model.

    Returns:
        The length of the step, and the next iterate with its residuals.
    """
    length = min(1.0, BOUNDARY * _room(iterate, step))
    error = _dual_error(iterate, residuals)
    allowed = iterate.weights @ iterate.prices + iterate.slack @ iterate.multipliers
    while True:
        moved = _moved(iterate, step, length)
        next_residuals = _residuals(objective, equations, moved)
        largest = max((1 - DECREASE * length) * error, float(allowed))
        if _dual_error(moved, next_residuals) <= largest or length < SHORTEST_STEP:
            return length, moved, next_residuals
        length *= 0.5


def _dual_error(iterate: Iterate, residuals: Residuals) -> float:
    """Return the error of the gap that the dual residual may leave."""
    return float(iterate.weights @ np.abs(residuals.dual))


def _direction(
    system: NewtonSystem,
    iterate: Iterate,
    residuals: Residuals,
    target: float,
    predictor: Iterate | None,
) -> Iterate:
    """Return the step to a common product of all pairs."""
    weight_products = np.full_like(iterate.weights, target)
    slack_products = np.full_like(iterate.slack, target)
    if predictor is not None:
        weight_products -= predictor.weights * predictor.prices
        slack_products -= predictor.slack * predictor.multipliers
    gradient = weight_products / iterate.weights - iterate.prices - residuals.dual
    excess = residuals.excess - slack_products / iterate.multipliers + iterate.slack
    step: NewtonStep = system.solve(gradient, residuals.primal, excess)
    price_products = weight_products - iterate.weights * iterate.prices
    prices = (price_products - iterate.prices * step.weights) / iterate.weights
    multiplied = slack_products - iterate.slack * iterate.multipliers
    slack = (multiplied - iterate.slack * step.multipliers) / iterate.multipliers
    return Iterate(step.weights, step.values, prices, slack, step.multipliers)


def _room(iterate: Iterate, step: Iterate) -> float:
    """Return the step length at which the first variable vanishes."""
    lengths = [
        _length(iterate.weights, step.weights),
        _length(iterate.prices, step.prices),
        _length(iterate.slack, step.slack),
        _length(iterate.multipliers, step.multipliers),
    ]
    return min(lengths)


def _length(position: Vector, step: Vector) -> float:
    shrinking = step < 0
    return float(np.min(-position[shrinking] / step[shrinking], initial=np.inf))


def _moved(iterate: Iterate, step: Iterate, length: float) -> Iterate:
    pairs = zip(iterate, step, strict=True)
    return Iterate(*(position + length * change for position, change in pairs))

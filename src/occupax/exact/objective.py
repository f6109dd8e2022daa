"""Utility and constraints of a problem as NumPy functions of an occupancy, in float64."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from occupax.compiled import bind
from occupax.constraints import Constraint, excesses
from occupax.exact.dynamics import Dynamics, dynamics
from occupax.problem import Problem
from occupax.utilities.base import Sum, Utility

MAX_DENSE_SIZE = 512
"""Largest number of features of a utility whose second derivatives are a dense matrix."""
PADDING = 64
"""Numbers of rows are multiples of this, so that few programs are compiled."""

Features = Float[np.ndarray, " d"]
Multipliers = Float[np.ndarray, " K"]


class Curvature(NamedTuple):
    """Negative second derivatives of a concave function."""

    diagonal: Features
    """Sum of the diagonals of the separable terms."""
    blocks: tuple[tuple[int, Float[np.ndarray, "k k"]], ...]
    """First feature and matrix of each of the other terms."""


class Objective:
    """Objective and constraints of a problem.

    Args:
        problem: the problem.
        used: features that policies can have. Derivatives with respect to the other ones are zero,
            also where the utility is infinitely steep.
    """

    def __init__(self, problem: Problem, used: Bool[np.ndarray, " d"]):
        self.problem = problem
        self.used = used
        self.utility = problem.utility
        self.num_constraints = len(problem.constraints)
        self._limits = (self.utility, problem.constraints)
        self._parts = _curved_parts(self.utility, 0, problem.size)

    @property
    def has_curvature(self) -> bool:
        """Whether each term is linear, separable or a function of few features."""
        return all(
            part.separable or part.stop - part.start <= MAX_DENSE_SIZE for part in self._parts
        )

    @property
    def dense_features(self) -> Int[np.ndarray, " k"]:
        """Features of the terms that are not separable."""
        ranges = [np.arange(part.start, part.stop) for part in self._parts if not part.separable]
        return np.unique(np.concatenate([np.zeros(0, int), *ranges]))

    def value(self, features: Features) -> float:
        """Return the utility of an occupancy."""
        return utility_value(self.utility, features)

    def gradient(self, features: Features, multipliers: Multipliers | None = None) -> Features:
        """Return the gradient of the Lagrangian, or of the utility without multipliers."""
        gradient = utility_gradient(self.lagrangian(multipliers), features)
        return np.where(self.used, gradient, 0.0)

    def lagrangian(self, multipliers: Multipliers | None) -> Utility:
        """Return the Lagrangian up to a constant, or the utility without multipliers."""
        if multipliers is None or not self.num_constraints:
            return self.utility
        return self.problem.lagrangian(np.asarray(multipliers, float)).utility

    def excesses(self, features: Features) -> Multipliers:
        """Return the violation of each constraint, negative for slack."""
        if not self.num_constraints:
            return np.zeros(0)
        with jax.enable_x64(True):
            return np.asarray(bind(_excesses, self._limits)(features))

    def excess_gradients(self, features: Features) -> Float[np.ndarray, "K d"]:
        """Return the gradient of the violation of each constraint."""
        if not self.num_constraints:
            return np.zeros((0, features.size))
        with jax.enable_x64(True):
            slopes = bind(_excess_gradients, self._limits)(features)
        return np.where(self.used, slopes, 0.0)

    def curvature(self, features: Features, multipliers: Multipliers | None = None) -> Curvature:
        """Return the curvature of the Lagrangian, or of the utility without multipliers."""
        if not self._parts:
            return Curvature(np.zeros(features.size), ())
        lagrangian = self.lagrangian(multipliers)
        with jax.enable_x64(True):
            diagonal, blocks = bind(_curvature, lagrangian)(features, static=self._parts)
        parts = [part for part in self._parts if not part.separable]
        matrices: list[tuple[int, Float[np.ndarray, "k k"]]] = []
        for part, block in zip(parts, blocks, strict=True):
            used = self.used[part.start : part.stop]
            matrices.append((part.start, np.where(np.outer(used, used), block, 0.0)))
        return Curvature(np.where(self.used, diagonal, 0.0), tuple(matrices))

    def projected_curvature(
        self,
        rows: Float[np.ndarray, "k d"],
        features: Features,
        multipliers: Multipliers | None = None,
    ) -> Float[np.ndarray, "k k"]:
        """Return the products of each two rows with the curvature between them."""
        if not self._parts:
            return np.zeros((len(rows), len(rows)))
        if self.has_curvature:
            curvature = self.curvature(features, multipliers)
            products = (rows * curvature.diagonal) @ rows.T
            for start, block in curvature.blocks:
                part = rows[:, start : start + len(block)]
                products += part @ block @ part.T
            return products
        padded = np.zeros((-(-len(rows) // PADDING) * PADDING, rows.shape[1]))
        padded[: len(rows)] = rows
        lagrangian = self.lagrangian(multipliers)
        with jax.enable_x64(True):
            bent = np.asarray(bind(_curvature_products, lagrangian)(features, padded))
        bent = np.where(self.used, bent[: len(rows)], 0.0)
        products = rows @ bent.T
        return (products + products.T) / 2


def concave_dynamics(problem: Problem) -> Dynamics:
    """Return the dynamics of a problem whose utility is concave, or raise ValueError."""
    model = dynamics(problem)
    if not problem.utility.concave:
        raise ValueError(
            f"the utility {type(problem.utility).__name__} is not declared concave, and only for a "
            "concave one does "
            "its linearisation bound the optimum; declare it with "
            "Custom(function, concave=True) if it is."
        )
    return model


class _Part(NamedTuple):
    """Features of one curved term of a utility."""

    path: tuple[int, ...]
    start: int
    stop: int
    separable: bool


def _curved_parts(
    utility: Utility, start: int, stop: int, path: tuple[int, ...] = ()
) -> tuple[_Part, ...]:
    """Return the features of each term that is not linear."""
    if not isinstance(utility, Sum):
        if utility.linear:
            return ()
        return (_Part(path, start, stop, utility.separable),)
    parts: list[_Part] = []
    first = start
    for number, term in enumerate(utility.terms):
        last = stop if utility.sizes is None else first + utility.sizes[number]
        parts.extend(_curved_parts(term, first, last, (*path, number)))
        first = start if utility.sizes is None else last
    return tuple(parts)


def _curvature(
    utility: Utility, features: Float[Array, " d"], parts: tuple[_Part, ...]
) -> tuple[Float[Array, " d"], list[Float[Array, "k k"]]]:
    diagonal = jnp.zeros_like(features)
    blocks: list[Float[Array, "k k"]] = []
    for part in parts:
        weight: Any = 1.0
        term: Any = utility
        for number in part.path:
            weight = weight * term.weights[number]
            term = term.terms[number]
        entries = features[part.start : part.stop]
        if part.separable:
            _, slope = jax.jvp(term.gradient, (entries,), (jnp.ones_like(entries),))
            diagonal = diagonal.at[part.start : part.stop].add(-weight * slope)
        else:
            hessian = jax.jacfwd(term.gradient)(entries)
            blocks.append(-weight * (hessian + hessian.T) / 2)
    return diagonal, blocks


def _curvature_products(
    utility: Utility, features: Float[Array, " d"], rows: Float[Array, "k d"]
) -> Float[Array, "k d"]:
    return jax.lax.map(lambda row: -jax.jvp(utility.gradient, (features,), (row,))[1], rows)


def utility_value(utility: Utility, features: Features) -> float:
    """Return the value F(u), computed in float64."""
    with jax.enable_x64(True):
        return float(bind(_value, utility)(features))


def utility_gradient(utility: Utility, features: Features) -> Features:
    """Return the gradient of F at u, computed in float64."""
    with jax.enable_x64(True):
        return np.asarray(bind(_gradient, utility)(features))


def _value(utility: Utility, features: Float[Array, " d"]) -> Float[Array, ""]:
    return utility.value(features)


def _gradient(utility: Utility, features: Float[Array, " d"]) -> Float[Array, " d"]:
    return utility.gradient(features)


def _excesses(
    limits: tuple[Sum, tuple[Constraint, ...]], features: Float[Array, " d"]
) -> Float[Array, " K"]:
    utility, constraints = limits
    return excesses(utility, constraints, utility.domain(features))


def _excess_gradients(
    limits: tuple[Sum, tuple[Constraint, ...]], features: Float[Array, " d"]
) -> Float[Array, "K d"]:
    return jax.jacrev(lambda point: _excesses(limits, point))(features)

"""Utilities of several rewards, and optimal designs of experiments."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.errors import check_finite, check_positive, read_array
from occupax.features import Feature, Outer
from occupax.utilities.base import ConicForm, Smoothness, Utility, nonnegative
from occupax.utilities.library import as_feedback


class SeveralRewards(Utility):
    """Base class of concave functions of the discounted sums J_k of several rewards."""

    rewards: Feature

    @property
    def concave(self) -> bool:
        """Whether the utility is concave: True."""
        return True

    def features(self) -> Feature:
        """Return the rewards, stacked."""
        return self.rewards


class SoftMin(SeveralRewards):
    """-t log sum_k exp(-J_k / t), a smooth minimum of several returns.

    Args:
        *rewards: features, such as `features.Info("speed", "comfort")`, functions of (observation,
            action), or arrays [S, A] or [S, A, k].
        temperature: t, in the units of the rewards. The limit of t = 0 is the minimum.
    """

    temperature: float = eqx.field(
        static=True, converter=lambda value: check_positive("temperature", value)
    )

    def __init__(self, *rewards: Any, temperature: float = 1.0):
        self.rewards = _stack(rewards)
        self.temperature = temperature

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the soft minimum."""
        return -self.temperature * jax.nn.logsumexp(-occupancy / self.temperature)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the weight of each reward in the minimum."""
        return jax.nn.softmax(-occupancy / self.temperature)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the occupancy unchanged."""
        return occupancy

    @property
    def smoothness(self) -> Smoothness:
        """The gradient is a distribution p, with derivatives p_i (p_j - [i = j]) / t."""
        l1 = 1 / (4 * self.temperature)
        return Smoothness(1.0, sqrt(2) / (4 * self.temperature), l1)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the soft minimum by exponential cones."""
        import cvxpy as cp

        return ConicForm(-self.temperature * cp.log_sum_exp(-occupancy / self.temperature))


class NashWelfare(SeveralRewards):
    """sum_k w_k log(J_k + sigma): proportional fairness between non-negative returns.

    Args:
        *rewards: as for `SoftMin`.
        sigma: bounds the gradient where a return is 0.
        weights: w, one for each reward. Default: 1 for each.
    """

    sigma: float = eqx.field(static=True, converter=lambda value: check_positive("sigma", value))
    weights: Float[np.ndarray, " k"] | None

    def __init__(self, *rewards: Any, sigma: float = 0.01, weights: Sequence[float] | None = None):
        self.rewards = _stack(rewards)
        self.sigma = sigma
        self.weights = None if weights is None else read_array("weights", weights)

    def __check_init__(self) -> None:
        weights = self.weights
        if weights is None:
            return
        check_finite("weights", weights)
        if weights.ndim != 1 or not weights.size or (weights < 0).any():
            raise ValueError(
                f"weights must be a list of numbers that are not negative, got {weights.tolist()}."
            )

    def _weights(self, occupancy: Any) -> Any:
        """Return the weights, one for each entry of an occupancy."""
        weights = np.ones(occupancy.size) if self.weights is None else self.weights
        if weights.size != occupancy.size:
            raise ValueError(
                f"weights must have one for each reward, {occupancy.size}, got {weights.size}."
            )
        return weights

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the weighted sum of logarithms."""
        return jnp.sum(self._weights(occupancy) * jnp.log(occupancy + self.sigma))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return w_k / (J_k + sigma)."""
        return jnp.asarray(self._weights(occupancy)) / (occupancy + self.sigma)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the nearest sums that are not negative."""
        return nonnegative(occupancy)

    @property
    def separable(self) -> bool:
        """Whether the utility is a sum of functions of one entry each: True."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """The largest weight over sigma and over its square."""
        largest = 1.0 if self.weights is None else float(self.weights.max())
        curvature = largest / self.sigma**2
        return Smoothness(largest / self.sigma, curvature, curvature)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the weighted sum of logarithms by exponential cones."""
        import cvxpy as cp

        return ConicForm(self._weights(occupancy) @ cp.log(occupancy + self.sigma))


class LogDet(Utility):
    """log det(sum_t gamma^t phi phi' + sigma I): D-optimal design with the regressors phi.

    Args:
        regressors: the vector phi(s, a): a feature, a function of (observation, action), or an
            array [S, A, k].
        sigma: prior information, in the units of the sum.
    """

    regressors: Outer
    sigma: float = eqx.field(static=True, converter=lambda value: check_positive("sigma", value))

    def __init__(self, regressors: Any, sigma: float = 0.1):
        self.regressors = Outer(as_feedback("regressors", regressors))
        self.sigma = sigma

    def _information(self, occupancy: Float[Array, " d"]) -> Float[Array, "k k"]:
        """Return the matrix of second moments, with sigma on its diagonal."""
        matrix = _symmetric_matrix(occupancy)
        return matrix + self.sigma * jnp.eye(len(matrix))

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the logarithm of the determinant."""
        return jnp.linalg.slogdet(self._information(occupancy))[1]

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the inverse of the matrix."""
        return jnp.ravel(jnp.linalg.inv(self._information(occupancy)))

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the nearest matrix without negative eigenvalues."""
        values, vectors = jnp.linalg.eigh(_symmetric_matrix(occupancy))
        return jnp.ravel((vectors * nonnegative(values)) @ vectors.T)

    @property
    def concave(self) -> bool:
        """Whether the utility is concave in positive semidefinite matrices: True."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """The constants of an inverse with eigenvalues of at most 1 / sigma."""
        curvature = 1 / self.sigma**2
        return Smoothness(1 / self.sigma, curvature, curvature)

    def features(self) -> Feature:
        """Return the products of each two regressors."""
        return self.regressors

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the log-determinant of a matrix of cvxpy."""
        import cvxpy as cp

        size = round(sqrt(occupancy.size))
        matrix = cp.reshape(occupancy, (size, size), order="C")
        return ConicForm(cp.log_det(matrix + self.sigma * np.eye(size)))


def _symmetric_matrix(occupancy: Float[Array, " d"]) -> Float[Array, "k k"]:
    size = round(sqrt(occupancy.size))
    matrix = jnp.reshape(occupancy, (size, size))
    return (matrix + matrix.T) / 2


def _stack(rewards: Sequence[Any]) -> Feature:
    """Return one feature of all rewards."""
    if not rewards:
        raise ValueError("rewards must have at least one feature, got none.")
    parts = [as_feedback("rewards", reward) for reward in rewards]
    return parts[0] if len(parts) == 1 else feature_maps.Stack(*parts)

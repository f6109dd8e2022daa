"""Utilities of several sums at once: fair shares of several rewards, and designs of experiments."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.errors import check_positive, read_array, refuse_infinite
from occupax.features import Feature, Outer
from occupax.utilities.base import Smoothness, Utility, nonnegative
from occupax.utilities.library import as_feedback


def _read_sigma(sigma: Any) -> float:
    return check_positive("sigma", sigma)


class SeveralRewards(Utility):
    """A concave function of the discounted sums J_k of several rewards."""

    rewards: Feature

    @property
    def concave(self) -> bool:
        """They are concave."""
        return True

    def features(self) -> Feature:
        """The rewards, stacked side by side."""
        return self.rewards


class SoftMin(SeveralRewards):
    """-t log sum_k exp(-J_k / t): raise the smallest of several rewards; the smaller t, the nearer to the minimum.

    Args:
        *rewards: features, such as `features.Info("speed", "comfort")`, functions of (observation,
            action), or arrays [S, A] or [S, A, k].
        temperature: t, in the units of the rewards.
    """

    temperature: float = eqx.field(
        static=True, converter=lambda it: check_positive("temperature", it)
    )

    def __init__(self, *rewards: Any, temperature: float = 1.0):
        self.rewards, self.temperature = _stacked(rewards), temperature

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The soft minimum."""
        return -self.temperature * jax.nn.logsumexp(-occupancy / self.temperature)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The share of each reward in the minimum."""
        return jax.nn.softmax(-occupancy / self.temperature)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Sums of rewards may be any numbers."""
        return occupancy

    @property
    def smoothness(self) -> Smoothness:
        """The gradient is a distribution p, with derivatives p_i (p_j - [i = j]) / t."""
        return Smoothness(1.0, sqrt(2) / (4 * self.temperature), 1 / (4 * self.temperature))


class NashWelfare(SeveralRewards):
    """sum_k w_k log(J_k + sigma): proportional fairness between rewards that are not negative.

    Args:
        *rewards: see `SoftMin`.
        sigma: keeps the gradient finite where a reward is 0.
        weights: w, one for each reward; all 1 by default.
    """

    sigma: float = eqx.field(static=True, converter=_read_sigma)
    weights: Float[np.ndarray, " k"] | None

    def __init__(self, *rewards: Any, sigma: float = 0.01, weights: Sequence[float] | None = None):
        self.rewards, self.sigma = _stacked(rewards), sigma
        self.weights = None if weights is None else read_array("weights", weights)

    def __check_init__(self) -> None:
        if self.weights is not None:
            refuse_infinite("weights", self.weights)
            if self.weights.ndim != 1 or not self.weights.size or (self.weights < 0).any():
                raise ValueError(
                    f"weights must be a list of numbers that are not negative, got {self.weights.tolist()}."
                )

    def shares(self, occupancy: Any) -> Any:
        """The weights, one for each entry of an occupancy."""
        weights = np.ones(occupancy.size) if self.weights is None else self.weights
        if weights.size != occupancy.size:
            raise ValueError(
                f"weights must have one for each reward, {occupancy.size}, got {weights.size}."
            )
        return weights

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The weighted sum of logarithms."""
        return jnp.sum(self.shares(occupancy) * jnp.log(occupancy + self.sigma))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The vector of w_k / (J_k + sigma)."""
        return jnp.asarray(self.shares(occupancy)) / (occupancy + self.sigma)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The nearest sums that are not negative."""
        return nonnegative(occupancy)

    @property
    def smoothness(self) -> Smoothness:
        """The largest weight over sigma, once and twice."""
        most = 1.0 if self.weights is None else float(self.weights.max())
        return Smoothness(most / self.sigma, *[most / self.sigma**2] * 2)


class LogDet(Utility):
    """log det(sum_t gamma^t phi phi' + sigma I): the D-optimal design of an experiment whose regressors are phi.

    Args:
        regressors: the vector phi(s, a): a feature, a function of (observation, action), or an
            array [S, A, k].
        sigma: what is known beforehand, in the units of the sum.
    """

    regressors: Outer
    sigma: float = eqx.field(static=True, converter=_read_sigma)

    def __init__(self, regressors: Any, sigma: float = 0.1):
        self.regressors, self.sigma = Outer(as_feedback("regressors", regressors)), sigma

    def information(self, occupancy: Float[Array, " d"]) -> Float[Array, "k k"]:
        """The matrix of second moments, with sigma on its diagonal."""
        size = round(sqrt(occupancy.size))
        matrix = jnp.reshape(occupancy, (size, size))
        return (matrix + matrix.T) / 2 + self.sigma * jnp.eye(size)

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The logarithm of the determinant."""
        return jnp.linalg.slogdet(self.information(occupancy))[1]

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The inverse of the matrix."""
        return jnp.ravel(jnp.linalg.inv(self.information(occupancy)))

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The nearest matrix without negative eigenvalues."""
        size = round(sqrt(occupancy.size))
        matrix = jnp.reshape(occupancy, (size, size))
        values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
        return jnp.ravel((vectors * nonnegative(values)) @ vectors.T)

    @property
    def concave(self) -> bool:
        """It is concave in matrices without negative eigenvalues."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """The inverse has eigenvalues of at most 1 / sigma."""
        return Smoothness(1 / self.sigma, 1 / self.sigma**2, 1 / self.sigma**2)

    def features(self) -> Feature:
        """The products of each two regressors."""
        return self.regressors


def _stacked(rewards: Sequence[Any]) -> Feature:
    """One feature of all rewards."""
    if not rewards:
        raise ValueError("rewards must have at least one feature, got none.")
    parts = [as_feedback("rewards", reward) for reward in rewards]
    return parts[0] if len(parts) == 1 else feature_maps.Stack(*parts)

"""The utilities of the paper."""

from math import inf, log
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.errors import check_number, check_positive, read_array, refuse_infinite, refuse_tiny
from occupax.features import Feature, as_feature
from occupax.utilities.base import Smoothness, Utility, nonnegative
from occupax.utilities.sets import ConvexSet


class _Concave(Utility):
    @property
    def concave(self) -> bool:
        return True


class _Everywhere(_Concave):
    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        return occupancy


class _OfVisits(_Concave):
    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        return nonnegative(occupancy)

    def features(self) -> Feature:
        return feature_maps.State()


class Reward(_Everywhere):
    """The discounted return: plain reinforcement learning."""

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The sum of the occupancy, which is the return itself."""
        return jnp.sum(occupancy)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """A vector of ones."""
        return jnp.ones_like(occupancy)

    @property
    def smoothness(self) -> Smoothness:
        """The constants of a linear function."""
        return Smoothness(1.0, 0.0, 0.0)

    def features(self) -> Feature:
        """The reward received."""
        return feature_maps.Reward()


class Total(_Everywhere):
    """The discounted sum of a feature, as a utility of its own: another reward, or a cost to be limited.

    Args:
        feature: what is summed: a feature, a function of (observation, action), or an array [S, A].
    """

    feature: Feature

    def __init__(self, feature: Any):
        self.feature = as_feedback("feature", feature)

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The sum of the occupancy."""
        return jnp.sum(occupancy)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """A vector of ones."""
        return jnp.ones_like(occupancy)

    @property
    def smoothness(self) -> Smoothness:
        """The constants of a linear function."""
        return Smoothness(1.0, 0.0, 0.0)

    def features(self) -> Feature:
        """The feature that was given."""
        return self.feature


class Linear(_Everywhere):
    """<weights, u>: a reward of one's own on states and actions, [S, A], or on any other features, [d]."""

    weights: Float[np.ndarray, " d"]

    def __init__(self, weights: Any):
        self.weights = read_array("weights", weights).ravel()

    def __check_init__(self) -> None:
        refuse_infinite("weights", self.weights)
        if self.weights.size == 0:
            raise ValueError(f"weights must be finite numbers, at least one, got {self.weights!r}.")

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The inner product <weights, u>."""
        return self.gradient(occupancy) @ occupancy

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The weights, whatever the occupancy."""
        wanted, got = occupancy.size, self.weights.size
        if occupancy.shape != self.weights.shape:
            raise ValueError(
                f"weights of Linear must have one entry for each of the {wanted} features, got {got}."
            )
        return jnp.asarray(self.weights, occupancy.dtype)

    @property
    def smoothness(self) -> Smoothness:
        """The constants of a linear function with these weights."""
        return Smoothness(float(np.abs(self.weights).max()), 0.0, 0.0)

    def features(self) -> Feature:
        """Visits of pairs of state and action."""
        return feature_maps.StateAction()


class Entropy(_OfVisits):
    """-sum (mu + smoothing) log(mu + smoothing), where mu = scale * u is the distribution of visited states.

    Args:
        smoothing: keeps the gradient finite where nothing is visited; 0 is the entropy itself.
        scale: what turns the occupancy into a distribution: 1 - discount in a problem, unless
            given; 1 outside one.
    """

    smoothing: float = eqx.field(static=True, default=1e-6)
    scale: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        refuse_tiny("smoothing", check_number("smoothing", self.smoothing, low=0.0))
        check_number("scale", self._scale, low=0.0, open_low=True)

    @property
    def _scale(self) -> float:
        return 1.0 if self.scale is None else self.scale

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The entropy, where 0 log 0 is 0."""
        return jnp.sum(jax.scipy.special.entr(self._scale * occupancy + self.smoothing))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The vector of -scale (1 + log(mu + smoothing))."""
        return -self._scale * (1.0 + jnp.log(self._scale * occupancy + self.smoothing))

    @property
    def smoothness(self) -> Smoothness:
        """Constants for occupancies of total mass up to 1 / scale."""
        if self.smoothing == 0:
            return Smoothness(inf, inf, inf)
        bound = self._scale * max(abs(1 + log(self.smoothing)), 1 + log(1 + self.smoothing))
        curvature = self._scale**2 / self.smoothing
        return Smoothness(bound, curvature, curvature)


class LogCoverage(_OfVisits):
    """sum_i log(u_i + sigma): visit everything, and what is rarely visited first; `sigma` bounds the gradient."""

    sigma: float = eqx.field(static=True, default=0.125)

    def __check_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The sum of log(u_i + sigma)."""
        return jnp.sum(jnp.log(occupancy + self.sigma))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The vector of 1 / (u_i + sigma)."""
        return 1.0 / (occupancy + self.sigma)

    @property
    def smoothness(self) -> Smoothness:
        """The gradient is at most 1 / sigma and its derivative at most 1 / sigma^2."""
        return Smoothness(1 / self.sigma, 1 / self.sigma**2, 1 / self.sigma**2)


class SetDistance(_Everywhere):
    """-dist^2(u, set), where u is the discounted sum of a vector feedback: reinforcement learning with constraints.

    Args:
        feedback: the vector z(s, a): an array [S, A, k], a function of (observation, action), or a
            feature.
        set: where its discounted sum should end.
    """

    feedback: Feature
    set: ConvexSet

    def __init__(self, feedback: Any, set: ConvexSet):  # noqa: A002
        if not isinstance(set, ConvexSet):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                f"set must be one of Box, Ball, Halfspace, Polyhedron, Point, got {set!r}."
            )
        self.feedback, self.set = as_feedback("feedback", feedback), set

    def _excess(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        size, wanted = self.set.size, occupancy.size
        if size != wanted:
            raise ValueError(
                f"set must have as many dimensions as the feedback, {wanted}, got one of {size}."
            )
        # under the square, the envelope theorem allows to hold the projection constant
        return occupancy - self.set.project(jax.lax.stop_gradient(occupancy))

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The negative squared distance, -||u - Proj u||^2."""
        return -jnp.sum(self._excess(occupancy) ** 2)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The vector -2 (u - Proj u)."""
        return -2.0 * self._excess(occupancy)

    @property
    def smoothness(self) -> Smoothness:
        """The gradient grows with the distance; its Lipschitz constant is 2."""
        return Smoothness(inf, 2.0, 2.0)

    def features(self) -> Feature:
        """The feedback that was given."""
        return self.feedback


def as_feedback(name: str, value: Any) -> Feature:
    """Return a feature as it is, and wrap a function of (observation, action) or an array [S, A] or [S, A, k]."""
    if not isinstance(value, Feature) and not callable(value):
        table = read_array(name, value)
        value = feature_maps.Table(table[..., None] if table.ndim == 2 else table)
    return as_feature(value)


UTILITIES = {"reward": Reward, "entropy": Entropy, "log-coverage": LogCoverage}
"""The utilities that need no more than a name."""

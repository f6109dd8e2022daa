"""Utilities of the paper: returns, entropy, log coverage and the distance to a convex set."""

from math import inf, log
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.envs.base import DecisionProcess
from occupax.envs.tabular import TabularMDP
from occupax.errors import (
    check_finite,
    check_not_tiny,
    check_number,
    check_positive,
    read_array,
)
from occupax.features import Feature, as_feature
from occupax.utilities.base import ConicForm, Smoothness, Utility, nonnegative
from occupax.utilities.sets import ConvexSet


class TotalUtility(Utility):
    """Base class of the sum of all entries of an occupancy."""

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the sum of the occupancy."""
        return jnp.sum(occupancy)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return a vector of ones."""
        return jnp.ones_like(occupancy)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the occupancy unchanged."""
        return occupancy

    @property
    def separable(self) -> bool:
        """Whether the utility is a sum of functions of one entry each: True."""
        return True

    @property
    def concave(self) -> bool:
        """Whether the utility is concave: True."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """The constants of a linear function."""
        return Smoothness(1.0, 0.0, 0.0)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the sum of the entries."""
        import cvxpy as cp

        return ConicForm(cp.sum(occupancy))


class Reward(TotalUtility):
    """The discounted return: plain reinforcement learning."""

    def features(self) -> Feature:
        """Return the reward of a step."""
        return feature_maps.Reward()

    def bound(
        self,
        env: DecisionProcess,
        discount: float,
        features: Feature | None,
    ) -> Utility:
        """Return the utility for a problem: the return as a function of the problem's features."""
        if features is None or isinstance(features, feature_maps.Reward):
            return self
        if isinstance(features, feature_maps.StateAction) and isinstance(env, TabularMDP):
            return Linear(env.reward)
        raise ValueError(
            f"the utility Reward is not a function of the features {type(features).__name__}; "
            "leave features out, or give a utility of these features."
        )


class Total(TotalUtility):
    """The discounted sum of a feature: another reward, or a cost with a constraint.

    Args:
        feature: a feature of one number, a function of (observation, action), or an array [S, A].
    """

    feature: Feature

    def __init__(self, feature: Any):
        self.feature = as_feedback("feature", feature)

    def features(self) -> Feature:
        """Return the feature."""
        return self.feature

    def bound(
        self,
        env: DecisionProcess,
        discount: float,
        features: Feature | None,
    ) -> Utility:
        """Return the utility itself, which has no other features than its own."""
        if features is not None:
            raise ValueError(
                "the utility Total has a feature of its own; leave features out, or give "
                "Linear(weights)."
            )
        return self


class Linear(Utility):
    """The inner product <weights, u>.

    Args:
        weights: rewards of states and actions, [S, A], or the weights of other features, [d].
    """

    weights: Float[np.ndarray, " d"]

    def __init__(self, weights: Any):
        self.weights = read_array("weights", weights).ravel()

    def __check_init__(self) -> None:
        check_finite("weights", self.weights)
        if self.weights.size == 0:
            raise ValueError(f"weights must be finite numbers, at least one, got {self.weights!r}.")

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the inner product <weights, u>."""
        return self.gradient(occupancy) @ occupancy

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the weights."""
        if occupancy.shape != self.weights.shape:
            raise ValueError(
                f"weights of Linear must have one entry for each of the {occupancy.size} features, "
                f"got {self.weights.size}."
            )
        return jnp.asarray(self.weights, occupancy.dtype)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the occupancy unchanged."""
        return occupancy

    @property
    def separable(self) -> bool:
        """Whether the utility is a sum of functions of one entry each: True."""
        return True

    @property
    def concave(self) -> bool:
        """Whether the utility is concave: True."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """The constants of a linear function with these weights."""
        return Smoothness(float(np.abs(self.weights).max()), 0.0, 0.0)

    def features(self) -> Feature:
        """Return visits of pairs of state and action."""
        return feature_maps.StateAction()

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the inner product."""
        return ConicForm(self.weights @ occupancy)


class StateUtility(Utility):
    """Base class of concave functions of the visits of each state."""

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the nearest occupancy without negative entries."""
        return nonnegative(occupancy)

    @property
    def separable(self) -> bool:
        """Whether the utility is a sum of functions of one entry each: True."""
        return True

    @property
    def concave(self) -> bool:
        """Whether the utility is concave: True."""
        return True

    def features(self) -> Feature:
        """Return visits of states."""
        return feature_maps.State()


class Entropy(StateUtility):
    """-sum (mu + smoothing) log(mu + smoothing), with the distribution mu = scale * u of states.

    Args:
        smoothing: bounds the gradient where nothing is visited. 0 is the entropy itself.
        scale: factor from the occupancy to a distribution. Default: `Problem.scale` in a problem,
            and 1 outside of a problem.
    """

    smoothing: float = eqx.field(static=True, default=1e-6)
    scale: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_not_tiny("smoothing", check_number("smoothing", self.smoothing, low=0.0))
        check_number("scale", self._scale, low=0.0, open_low=True)

    @property
    def _scale(self) -> float:
        return 1.0 if self.scale is None else self.scale

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the entropy, where 0 log 0 is 0."""
        return jnp.sum(jax.scipy.special.entr(self._scale * occupancy + self.smoothing))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return -scale (1 + log(mu + smoothing))."""
        return -self._scale * (1.0 + jnp.log(self._scale * occupancy + self.smoothing))

    @property
    def smoothness(self) -> Smoothness:
        """The constants for occupancies of total mass up to 1 / scale."""
        if self.smoothing == 0:
            return Smoothness(inf, inf, inf)
        largest = max(abs(1 + log(self.smoothing)), 1 + log(1 + self.smoothing))
        curvature = self._scale**2 / self.smoothing
        return Smoothness(self._scale * largest, curvature, curvature)

    def bound(
        self,
        env: DecisionProcess,
        discount: float,
        features: Feature | None,
    ) -> Utility:
        """Return the utility for a problem, scaled by 1 - discount unless it has a scale."""
        if self.scale is not None:
            return self
        return Entropy(self.smoothing, 1.0 - discount)

    def rescaled(self, before: float, after: float) -> Utility:
        """Return the entropy with the scale `after` if its scale is `before`."""
        if self.scale != before:
            return self
        return Entropy(self.smoothing, after)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the entropy by exponential cones."""
        import cvxpy as cp

        return ConicForm(cp.sum(cp.entr(self._scale * occupancy + self.smoothing)))


class LogCoverage(StateUtility):
    """sum_i log(u_i + sigma): visit every state, rarely visited states first.

    Args:
        sigma: bounds the gradient, by 1 / sigma.
    """

    sigma: float = eqx.field(static=True, default=0.125)

    def __check_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the sum of log(u_i + sigma)."""
        return jnp.sum(jnp.log(occupancy + self.sigma))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return 1 / (u_i + sigma)."""
        return 1.0 / (occupancy + self.sigma)

    @property
    def smoothness(self) -> Smoothness:
        """The bounds 1 / sigma of the gradient and 1 / sigma^2 of its derivative."""
        curvature = 1 / self.sigma**2
        return Smoothness(1 / self.sigma, curvature, curvature)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the sum of logarithms by exponential cones."""
        import cvxpy as cp

        return ConicForm(cp.sum(cp.log(occupancy + self.sigma)))


class SetDistance(Utility):
    """-dist^2(u, set), where u is the discounted sum of a vector feedback.

    Args:
        feedback: the vector z(s, a): an array [S, A, k], a function of (observation, action), or a
            feature.
        set: the target set of the discounted sum.
    """

    feedback: Feature
    set: ConvexSet

    def __init__(self, feedback: Any, set: ConvexSet):  # noqa: A002
        if not isinstance(set, ConvexSet):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                f"set must be one of Box, Ball, Halfspace, Polyhedron, Point, got {set!r}."
            )
        self.feedback = as_feedback("feedback", feedback)
        self.set = set

    def _excess(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        if self.set.size != occupancy.size:
            raise ValueError(
                f"set must have as many dimensions as the feedback, {occupancy.size}, got one of "
                f"{self.set.size}."
            )
        # By the envelope theorem the projection is constant under the square.
        return occupancy - self.set.project(jax.lax.stop_gradient(occupancy))

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the negative squared distance, -||u - Proj u||^2."""
        return -jnp.sum(self._excess(occupancy) ** 2)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return -2 (u - Proj u)."""
        return -2.0 * self._excess(occupancy)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the occupancy unchanged."""
        return occupancy

    @property
    def concave(self) -> bool:
        """Whether the utility is concave: True."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """The Lipschitz constant 2 of a gradient that grows with the distance."""
        return Smoothness(inf, 2.0, 2.0)

    def features(self) -> Feature:
        """Return the feedback."""
        return self.feedback

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the negative squared distance to a variable in the set."""
        import cvxpy as cp

        nearest = cp.Variable(self.set.size)
        conditions = self.set.membership(nearest)
        return ConicForm(-cp.sum_squares(occupancy - nearest), tuple(conditions))


def as_feedback(name: str, value: Any) -> Feature:
    """Return the feature of an array or of a function.

    Args:
        name: the name of the argument in errors.
        value: a feature, which is returned as it is, a function of (observation, action), or an
            array [S, A] or [S, A, k].

    Returns:
        The feature.
    """
    if not isinstance(value, Feature) and not callable(value):
        table = read_array(name, value)
        if table.ndim == 2:
            table = table[..., None]
        value = feature_maps.Table(table)
    return as_feature(value)

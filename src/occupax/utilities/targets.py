"""Utilities of imitation: how near the distribution of visits is to a given one."""

from math import log
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.errors import check_number, check_positive, read_array
from occupax.features import Feature, as_feature
from occupax.utilities.base import Smoothness, Utility, nonnegative


class Imitation(Utility):
    """A concave function of rho = scale * u and a target, the distribution of visits to be imitated."""

    target: Float[np.ndarray, " d"]
    smoothing: float = eqx.field(static=True, converter=lambda it: check_positive("smoothing", it))
    scale: float | None = eqx.field(static=True)
    counted: Feature

    def __init__(
        self,
        target: Any,
        smoothing: float = 1e-3,
        scale: float | None = None,
        features: Any = None,
    ):
        table = read_array("target", target)
        if features is None and table.ndim not in (1, 2):
            raise ValueError(
                f"target must be an array [S] of states or [S, A] of pairs, got shape {table.shape}."
            )
        self.counted = (
            as_feature(features)
            if features is not None
            else feature_maps.State()
            if table.ndim == 1
            else feature_maps.StateAction()
        )
        self.target, self.smoothing, self.scale = table.ravel(), smoothing, scale

    def __check_init__(self) -> None:
        negative, total = (self.target < 0).any(), float(self.target.sum())
        if negative or not 0 < total <= 1 + 1e-4:
            wrong = f"the entry {self.target.min():.4g}" if negative else f"a sum of {total:.4g}"
            raise ValueError(
                "target must be a distribution of visits, with no negative entry and a sum of 1, or less where "
                f"episodes end, got {wrong}; an occupancy is one when it is multiplied by 1 - discount."
            )
        check_number("scale", self.factor, low=0.0, open_low=True)

    @property
    def factor(self) -> float:
        """What turns the occupancy into a distribution: 1 outside of a problem, unless it is given."""
        return 1.0 if self.scale is None else self.scale

    def smoothed(self, occupancy: Any) -> tuple[Any, Any]:
        """The distribution of visits and the target, both moved away from 0."""
        if occupancy.size != self.target.size:
            raise ValueError(
                f"target must have an entry for each feature, {occupancy.size}, got {self.target.size}."
            )
        return self.factor * occupancy + self.smoothing, self.target + self.smoothing

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The nearest occupancy without negative entries."""
        return nonnegative(occupancy)

    @property
    def concave(self) -> bool:
        """Both divergences are convex."""
        return True

    def features(self) -> Feature:
        """States or pairs, by the shape of the target, unless they were given."""
        return self.counted


class KL(Imitation):
    """-KL(rho || target), for measures of any mass: -sum_i [p_i log(p_i / q_i) - p_i + q_i], p and q smoothed.

    It avoids what the target avoids. It is 0 where rho is the target, and negative elsewhere.

    Args:
        target: the distribution of visits, an array [S] or [S, A], or [d] of given features;
            `occupax.demonstrations` makes it from a policy or from recorded episodes.
        smoothing: what is added to both, so that the gradient stays finite where nothing is
            visited.
        scale: what turns the occupancy into a distribution: 1 - discount in a problem, unless
            given.
        features: what the target counts, if it is neither states nor pairs of state and action.
    """

    __init__ = Imitation.__init__

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The negative divergence."""
        p, q = self.smoothed(occupancy)
        return -jnp.sum(p * jnp.log(p / q) - p + q)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The vector of -scale log(p_i / q_i)."""
        p, q = self.smoothed(occupancy)
        return -self.factor * jnp.log(p / q)

    @property
    def smoothness(self) -> Smoothness:
        """Constants for occupancies of total mass up to 1 / scale."""
        q, s = self.target + self.smoothing, self.smoothing
        bound = self.factor * max(log((1 + s) / q.min()), log(q.max() / s))
        return Smoothness(bound, self.factor**2 / s, self.factor**2 / s)


class ForwardKL(Imitation):
    """-KL(target || rho) = -sum_i target_i log(q_i / p_i), p and q smoothed: it covers what the target covers.

    Args:
        target, smoothing, scale, features: see `KL`.
    """

    __init__ = Imitation.__init__

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The negative divergence."""
        p, q = self.smoothed(occupancy)
        return jnp.sum(self.target * jnp.log(p / q))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The vector of scale * target_i / p_i."""
        return self.factor * self.target / self.smoothed(occupancy)[0]

    @property
    def smoothness(self) -> Smoothness:
        """The largest entry of the target over the smoothing, once and twice."""
        most, s = float(self.target.max()), self.smoothing
        return Smoothness(self.factor * most / s, *[self.factor**2 * most / s**2] * 2)

"""Utilities of imitation: divergences of the distribution of visits from a target."""

from math import log
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.envs.base import DecisionProcess
from occupax.errors import check_number, check_positive, read_array
from occupax.features import Feature, StateAction, as_feature
from occupax.utilities.base import ConicForm, Smoothness, Utility, nonnegative


class Imitation(Utility):
    """Base class of concave functions of rho = scale * u and a target distribution of visits.

    Args:
        target: the distribution of visits: an array [S] or [S, A], or [d] with `features`.
        smoothing: added to both distributions, to bound the gradient where nothing is visited.
        scale: factor from the occupancy to a distribution. Default: `Problem.scale` in a problem.
        features: the features of the target. Default: states or pairs, by the shape of the target.
    """

    target: Float[np.ndarray, " d"]
    smoothing: float = eqx.field(
        static=True, converter=lambda value: check_positive("smoothing", value)
    )
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
        if features is not None:
            self.counted = as_feature(features)
        elif table.ndim == 1:
            self.counted = feature_maps.State()
        elif table.ndim == 2:
            self.counted = StateAction()
        else:
            raise ValueError(
                "target must be an array [S] of states or [S, A] of pairs, got shape "
                f"{table.shape}."
            )
        self.target = table.ravel()
        self.smoothing = smoothing
        self.scale = scale

    def __check_init__(self) -> None:
        total = float(self.target.sum())
        lowest = float(self.target.min(initial=0.0))
        if lowest < 0 or not 0 < total <= 1 + 1e-4:
            fault = f"the entry {lowest:.4g}" if lowest < 0 else f"a sum of {total:.4g}"
            raise ValueError(
                "target must be a distribution of visits, with no negative entry and a sum of 1, "
                f"or less where episodes end, got {fault}; an occupancy is one when it is "
                "multiplied by 1 - discount."
            )
        check_number("scale", self.factor, low=0.0, open_low=True)

    @property
    def factor(self) -> float:
        """Factor that scales the occupancy to a distribution. 1 by default, without a problem."""
        return 1.0 if self.scale is None else self.scale

    def smoothed(self, occupancy: Any) -> tuple[Any, Any]:
        """Return the distribution of visits and the target, both with the smoothing added."""
        if occupancy.size != self.target.size:
            raise ValueError(
                f"target must have an entry for each feature, {occupancy.size}, got "
                f"{self.target.size}."
            )
        return self.factor * occupancy + self.smoothing, self.target + self.smoothing

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
        """Return the features of the target."""
        return self.counted

    def bound(self, env: DecisionProcess, discount: float, features: Feature | None) -> Utility:
        """Return the utility for a problem, with the scale and the features of the problem."""
        scale = 1.0 - discount if self.scale is None else self.scale
        counted = self.counted if features is None else features
        target = self.target
        if isinstance(counted, StateAction):
            target = target.reshape(-1, env.num_actions)
        return type(self)(target, self.smoothing, scale, counted)

    def rescaled(self, before: float, after: float) -> Utility:
        """Return the divergence with the scale `after` if its scale is `before`."""
        if self.scale != before:
            return self
        return type(self)(self.target, self.smoothing, after, self.counted)


class KL(Imitation):
    """-KL(rho || target) of measures: -sum_i [p_i log(p_i / q_i) - p_i + q_i], p and q smoothed.

    The policy avoids what the target avoids. The value is 0 where rho is the target, and negative
    elsewhere.

    Args:
        target: the distribution of visits: an array [S] or [S, A], or [d] with `features`.
            `occupax.demonstrations` makes a target from a policy or from recorded episodes.
        smoothing: added to both distributions, to bound the gradient where nothing is visited.
        scale: factor from the occupancy to a distribution. Default: `Problem.scale` in a problem.
        features: the features of the target. Default: states or pairs, by the shape of the target.
    """

    __init__ = Imitation.__init__

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the negative divergence."""
        p, q = self.smoothed(occupancy)
        return -jnp.sum(p * jnp.log(p / q) - p + q)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return -scale log(p_i / q_i)."""
        p, q = self.smoothed(occupancy)
        return -self.factor * jnp.log(p / q)

    @property
    def smoothness(self) -> Smoothness:
        """The constants for occupancies of total mass up to 1 / scale."""
        q = self.target + self.smoothing
        largest = max(log((1 + self.smoothing) / q.min()), log(q.max() / self.smoothing))
        curvature = self.factor**2 / self.smoothing
        return Smoothness(self.factor * largest, curvature, curvature)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the negative divergence by relative-entropy cones."""
        import cvxpy as cp

        p, q = self.smoothed(occupancy)
        return ConicForm(-cp.sum(cp.kl_div(p, q)))


class ForwardKL(Imitation):
    """-KL(target || rho) = -sum_i target_i log(q_i / p_i), p and q smoothed.

    The policy covers what the target covers.

    Args:
        target: as for `KL`.
        smoothing: as for `KL`.
        scale: as for `KL`.
        features: as for `KL`.
    """

    __init__ = Imitation.__init__

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the negative divergence."""
        p, q = self.smoothed(occupancy)
        return jnp.sum(self.target * jnp.log(p / q))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return scale * target_i / p_i."""
        return self.factor * self.target / self.smoothed(occupancy)[0]

    @property
    def smoothness(self) -> Smoothness:
        """The largest entry of the target over the smoothing and over its square."""
        largest = float(self.target.max())
        curvature = self.factor**2 * largest / self.smoothing**2
        return Smoothness(self.factor * largest / self.smoothing, curvature, curvature)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the negative divergence by exponential cones."""
        import cvxpy as cp

        p, q = self.smoothed(occupancy)
        return ConicForm(self.target @ cp.log(p) - float(self.target @ np.log(q)))

"""Any function as a utility, and what a problem fills in."""

from collections.abc import Callable
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.envs.base import DecisionProcess
from occupax.envs.tabular import TabularMDP
from occupax.features import Feature, as_feature
from occupax.utilities.base import Smoothness, Sum, Utility, nonnegative
from occupax.utilities.library import Entropy, Linear, Reward


class Custom(Utility):
    """Any JAX function of the occupancy.

    Args:
        function: takes the occupancy, a vector, and returns a number.
        features: what the occupancy counts; pairs of state and action by default, entry s * A + a.
        concave: whether the function is concave; `occupax.utilities.check` tests the claim.
        smoothness: the constants of the theory, where known.
        domain: projection on the set where the function is defined. By default the non-negative orthant for features
            that count visits (StateAction, State, Grid), and everywhere for others.
    """

    function: Callable[[Float[Array, " d"]], Any]
    counted: Feature | None
    declared_concave: bool = eqx.field(static=True)
    declared_smoothness: Smoothness = eqx.field(static=True)
    projection: Callable[[Float[Array, " d"]], Float[Array, " d"]] | None = eqx.field(static=True)

    def __init__(
        self,
        function: Callable[[Any], Any],
        features: Feature | Callable[[Any, Any], Any] | None = None,
        concave: bool = False,
        smoothness: Smoothness | tuple[float, float, float] = (inf, inf, inf),
        domain: Callable[[Any], Any] | None = None,
    ):
        """Keep the function and what is said about it."""
        if not callable(function) or isinstance(function, type):
            raise ValueError(f"a utility must be one of occupax.utilities or a function, got {function!r}.")
        self.function = function
        self.counted = None if features is None else as_feature(features)
        self.declared_concave = concave
        if np.shape(smoothness) != (len(Smoothness._fields),):
            raise ValueError(f"smoothness must be the constants {', '.join(Smoothness._fields)}, got {smoothness!r}.")
        self.declared_smoothness = Smoothness(*smoothness)
        self.projection = domain

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """What the function returns."""
        value = jnp.asarray(self.function(occupancy))
        if value.shape != ():
            raise ValueError(f"a utility must return a single number, got an array of shape {value.shape}.")
        return value

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient of the function, by automatic differentiation."""
        return jax.grad(self.value)(occupancy)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The given projection, or one that suits the features."""
        if self.projection is not None:
            return self.projection(occupancy)
        return nonnegative(occupancy) if isinstance(self.features(), feature_maps.VISITS) else occupancy

    @property
    def concave(self) -> bool:
        """Whether the function was declared concave."""
        return self.declared_concave

    @property
    def smoothness(self) -> Smoothness:
        """The constants that were declared."""
        return self.declared_smoothness

    def features(self) -> Feature:
        """The given features, or pairs of state and action."""
        return feature_maps.StateAction() if self.counted is None else self.counted


def as_utility(value: Any) -> Utility:
    """Return a utility as it is and wrap a plain function."""
    return value if isinstance(value, Utility) else Custom(value)


def bind(utility: Utility, env: DecisionProcess, discount: float, features: Feature | None) -> Utility:
    """Fill in what only the problem knows; `features` are those given by hand, which all terms then share."""
    if isinstance(utility, Sum):
        terms = tuple(bind(term, env, discount, features) for term in utility.terms)
        return Sum(terms, utility.weights, utility.part_sizes(env) if features is None else None)
    if isinstance(utility, Entropy) and utility.scale is None:
        return Entropy(utility.smoothing, 1.0 - discount)
    if isinstance(utility, Reward) and features is not None:
        return _return_of(env, features)
    if isinstance(utility, Custom) and features is not None:
        return eqx.tree_at(lambda it: it.counted, utility, features, is_leaf=lambda leaf: leaf is None)
    return utility


def _return_of(env: DecisionProcess, features: Feature) -> Utility:
    """The discounted return as a function of features given by hand, where it is one."""
    if isinstance(features, feature_maps.Reward):
        return Reward()
    if isinstance(features, feature_maps.StateAction) and isinstance(env, TabularMDP):
        return Linear(env.reward)
    raise ValueError(
        f"the utility Reward is not a function of the features {type(features).__name__}; leave features out, or give "
        "a utility of these features."
    )

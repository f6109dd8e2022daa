"""Utilities of the occupancy, their sums and multiples, and functions as utilities."""

from abc import abstractmethod
from collections.abc import Callable
from itertools import accumulate
from math import inf, isfinite
from numbers import Real
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.envs.base import DecisionProcess
from occupax.errors import check_integers
from occupax.features import VISITS, Feature, Stack, StateAction, as_feature

Weight = float | Float[Array, ""] | Float[np.ndarray, ""]
"""The weight of a term of a sum. The multipliers of constraints are arrays."""


class Smoothness(NamedTuple):
    """Constants of assumption F-Lip of the paper, in the utility's own variable u, or infinity."""

    gradient_bound: float
    """Bound of ||grad F||_inf (l_lambda)."""
    l2: float
    """Lipschitz constant of grad F, from the norm ||.||_2 to ||.||_inf (L_lambda)."""
    l1: float
    """Lipschitz constant of grad F, from the norm ||.||_1 to ||.||_inf (L_lambda_inf)."""


class ConicForm(NamedTuple):
    """A concave function in the language of cvxpy."""

    value: Any
    """The value, a concave cvxpy expression."""
    conditions: tuple[Any, ...] = ()
    """The cvxpy constraints under which the expression is the value."""


class NoConicFormError(ValueError):
    """A utility or a set has no conic form."""

    def __init__(self, name: str):
        super().__init__(
            f"method 'conic' does not know {name}: use method 'auto', or define its method `conic`."
        )


class Utility(eqx.Module):
    """A function F of the occupancy u, to be maximised.

    Utilities add and scale: `Reward() + 0.1 * Entropy()`. A new utility is one subclass. `bound`,
    `rescaled` and `conic` have defaults: nothing to fill in, and no conic form.
    """

    @abstractmethod
    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the value F(u)."""

    @abstractmethod
    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the quasi-reward, grad F(u)."""

    @abstractmethod
    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the nearest point of the domain of F, which estimates may leave."""

    @property
    @abstractmethod
    def concave(self) -> bool:
        """Whether F is known to be concave, which certificates need."""

    @property
    @abstractmethod
    def smoothness(self) -> Smoothness:
        """Bounds of the gradient of F and of its Lipschitz constants."""

    @property
    def linear(self) -> bool:
        """Whether F is linear, so that every multiple of F is concave."""
        return self.smoothness.l2 == 0

    @property
    def separable(self) -> bool:
        """Whether F is a sum of functions of one entry each, which `solve` makes use of."""
        return False

    @abstractmethod
    def features(self) -> Feature:
        """Return the default features of the occupancy."""

    def bound(
        self,
        env: DecisionProcess,
        discount: float,
        features: Feature | None,
    ) -> "Utility":
        """Return the utility for a problem: with its features, its discount and its sizes.

        Args:
            env: the environment.
            discount: the discount factor gamma of the problem, so that 1 - discount is the factor
                from the occupancy to a distribution. It is 1 - 1 / H if gamma is 1.
            features: the features of the problem if the user gave any, which all terms share.

        Returns:
            The utility itself, unless it depends on the problem.
        """
        return self

    def rescaled(self, before: float, after: float) -> "Utility":
        """Return the utility with another scale of the distribution of visits.

        Args:
            before: the scale to replace. A utility of another scale stays as it is.
            after: the new scale.

        Returns:
            The utility itself, unless it has that scale.
        """
        return self

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the utility as a concave cvxpy expression.

        Args:
            occupancy: a cvxpy expression of the occupancy u, a vector.

        Returns:
            The expression and the cvxpy constraints that belong to it.

        Raises:
            NoConicFormError: if the utility has no conic form, as by default.
        """
        raise NoConicFormError(type(self).__name__)

    def __add__(self, other: "Utility | Callable[[Any], Any]") -> "Utility":
        term = other if isinstance(other, Utility) else Custom(other)
        left = _as_sum(self)
        right = _as_sum(term)
        return Sum(left.terms + right.terms, left.weights + right.weights)

    def __mul__(self, factor: float) -> "Utility":
        is_number = isinstance(factor, Real)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_number or not isfinite(factor):
            raise ValueError(f"a utility may be multiplied by a finite number, got {factor!r}.")
        scaled = _as_sum(self)
        weights = tuple(float(factor) * weight for weight in scaled.weights)
        return Sum(scaled.terms, weights)

    def __radd__(self, other: Any) -> "Utility":
        return self if other == 0 else self + other  # sum() starts from 0

    __rmul__ = __mul__

    def __neg__(self) -> "Utility":
        return self * -1.0

    def __sub__(self, other: "Utility | Callable[[Any], Any]") -> "Utility":
        return -(-self + other)

    def __rsub__(self, other: Callable[[Any], Any]) -> "Utility":
        return -self + other


class Sum(Utility):
    """A weighted sum of utilities. Each term has its own part of the occupancy, or all share it.

    Args:
        terms: the utilities.
        weights: the weight of each term.
        sizes: the number of entries of each part, or None if all terms share the occupancy.
    """

    terms: tuple[Utility, ...]
    weights: tuple[Weight, ...]
    sizes: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        lengths = {len(self.terms), len(self.weights)}
        if self.sizes is not None:
            lengths.add(len(self.sizes))
            check_integers("sizes", self.sizes)
        if len(lengths) != 1 or not self.terms:
            raise ValueError(
                "a sum needs a weight, and a size if there are any, for each of its terms."
            )
        for weight in self.weights:
            if isinstance(weight, int | float) and not isfinite(weight):
                raise ValueError(f"the weights of a sum must be finite, got {self.weights}.")

    def parts(self, occupancy: Any) -> list[tuple[Weight, Utility, Any]]:
        """Return the weight of each term, the term, and its part of the occupancy."""
        if self.sizes is None:
            parts = [occupancy] * len(self.terms)
        else:
            stops = accumulate(self.sizes)
            pairs = zip(stops, self.sizes, strict=True)
            parts = [occupancy[stop - size : stop] for stop, size in pairs]
        return list(zip(self.weights, self.terms, parts, strict=True))

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the weighted sum of the values."""
        values = [weight * term.value(part) for weight, term, part in self.parts(occupancy)]
        return jnp.sum(jnp.stack(values))

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the weighted gradients: concatenated if each term has its own part, or added."""
        gradients = [weight * term.gradient(part) for weight, term, part in self.parts(occupancy)]
        if self.sizes is None:
            return jnp.sum(jnp.stack(gradients), 0)
        return jnp.concatenate(gradients)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return each part in its own domain. All terms project a shared occupancy in turn."""
        if self.sizes is None:
            for term in self.terms:
                occupancy = term.domain(occupancy)
            return occupancy
        return jnp.concatenate([term.domain(part) for _, term, part in self.parts(occupancy)])

    @property
    def concave(self) -> bool:
        """Whether every term is linear, has a weight of 0, or is concave with a positive weight."""
        pairs = zip(self.terms, self.weights, strict=True)
        return all(_is_concave_multiple(term, weight) for term, weight in pairs)

    @property
    def smoothness(self) -> Smoothness:
        """The weighted sum of the constants, or their maximum if each term has its own part."""
        scaled: list[Smoothness] = []
        for term, weight in zip(self.terms, self.weights, strict=True):
            if weight == 0:
                scaled.append(Smoothness(0.0, 0.0, 0.0))
                continue
            size: Any = abs(weight)
            bound, l2, l1 = term.smoothness
            scaled.append(Smoothness(size * bound, size * l2, size * l1))
        combine = sum if self.sizes is None else max
        return Smoothness(*(combine(column) for column in zip(*scaled, strict=True)))

    def features(self) -> Feature:
        """Return the common features of the terms, or all of them stacked."""
        parts = [term.features() for term in self.terms]
        return parts[0] if _are_equal(parts) else Stack(*parts)

    def bound(self, env: DecisionProcess, discount: float, features: Feature | None) -> Utility:
        """Return the utility for a problem: the sum of the terms, bound to the problem."""
        terms = tuple(term.bound(env, discount, features) for term in self.terms)
        counted = [term.features() for term in self.terms]
        if features is not None or _are_equal(counted):
            return Sum(terms, self.weights)
        return Sum(terms, self.weights, tuple(feature.size(env) for feature in counted))

    def rescaled(self, before: float, after: float) -> Utility:
        """Return the sum of the rescaled terms."""
        terms = tuple(term.rescaled(before, after) for term in self.terms)
        return Sum(terms, self.weights, self.sizes)

    def conic(self, occupancy: Any) -> ConicForm:
        """Return the weighted sum of the conic forms, with all of their conditions."""
        total: Any = 0.0
        conditions: tuple[Any, ...] = ()
        for weight, term, part in self.parts(occupancy):
            form = term.conic(part)
            total = total + weight * form.value
            conditions = conditions + form.conditions
        return ConicForm(total, conditions)


class Custom(Utility):
    """A JAX function of the occupancy.

    Args:
        function: takes the occupancy, a vector, and returns a number.
        features: the features of the occupancy. Default: pairs of state and action, entry
            s * A + a.
        concave: whether the function is concave. `occupax.utilities.check` tests the claim.
        smoothness: the constants of the theory, where known.
        domain: projection on the domain of the function. Default: on non-negative vectors, for
            features of visits.
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
        if not callable(function) or isinstance(function, type):
            raise ValueError(
                f"a utility must be one of occupax.utilities or a function, got {function!r}."
            )
        if np.shape(smoothness) != (len(Smoothness._fields),):
            names = ", ".join(Smoothness._fields)
            raise ValueError(f"smoothness must be the constants {names}, got {smoothness!r}.")
        self.function = function
        self.counted = None if features is None else as_feature(features)
        self.declared_concave = concave
        self.declared_smoothness = Smoothness(*smoothness)
        self.projection = domain

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the value of the function."""
        value = jnp.asarray(self.function(occupancy))
        if value.shape != ():
            raise ValueError(
                f"a utility must return a single number, got an array of shape {value.shape}."
            )
        if jnp.iscomplexobj(value):
            raise ValueError(f"a utility must return a real number, got {value.dtype}.")
        return value

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of the function, by automatic differentiation."""
        return jax.grad(self.value)(occupancy)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the projection of the occupancy on the domain."""
        if self.projection is not None:
            return self.projection(occupancy)
        if isinstance(self.features(), VISITS):
            return nonnegative(occupancy)
        return occupancy

    @property
    def concave(self) -> bool:
        """Whether the function was declared concave."""
        return self.declared_concave

    @property
    def smoothness(self) -> Smoothness:
        """The declared constants."""
        return self.declared_smoothness

    def features(self) -> Feature:
        """Return the declared features, or pairs of state and action."""
        return StateAction() if self.counted is None else self.counted

    def bound(
        self,
        env: DecisionProcess,
        discount: float,
        features: Feature | None,
    ) -> Utility:
        """Return the utility for a problem, with the features of the problem."""
        if features is None:
            return self
        return Custom(
            self.function,
            features,
            self.declared_concave,
            self.declared_smoothness,
            self.projection,
        )


def nonnegative(occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return the nearest occupancy without negative entries."""
    return jnp.maximum(occupancy, 0.0)


def _as_sum(utility: Utility) -> Sum:
    return utility if isinstance(utility, Sum) else Sum((utility,), (1.0,))


def _are_equal(parts: list[Feature]) -> bool:
    return all(bool(eqx.tree_equal(parts[0], part)) for part in parts[1:])


def _is_concave_multiple(term: Utility, weight: Weight) -> bool:
    if term.linear or weight == 0:
        return True
    return bool(weight > 0) and term.concave

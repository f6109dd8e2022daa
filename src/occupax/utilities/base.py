"""What every utility provides, and how utilities add and scale."""

from abc import abstractmethod
from collections.abc import Callable
from itertools import accumulate
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.envs.base import DecisionProcess
from occupax.errors import check_integers
from occupax.features import Feature, Stack

Weight = float | Float[Array, ""] | Float[np.ndarray, ""]
"""Of a term of a sum; the multipliers of constraints are arrays."""


class Smoothness(NamedTuple):
    """Constants of assumption:F-Lip in the paper, in the utility's own variable u; infinite where there is none."""

    gradient_bound: float
    """Bound of ||grad F||_inf (l_lambda)."""
    l2: float
    """||grad F(u) - grad F(v)||_inf is at most this times ||u - v||_2 (L_lambda)."""
    l1: float
    """||grad F(u) - grad F(v)||_inf is at most this times ||u - v||_1 (L_lambda_inf)."""


class Utility(eqx.Module):
    """A function F of the occupancy u, to be maximised. Utilities add and scale: `Reward() + 0.1 * Entropy()`."""

    @abstractmethod
    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The value F(u)."""

    @abstractmethod
    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The quasi-reward, grad F(u)."""

    @abstractmethod
    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The nearest point at which F is defined: estimates of an occupancy may leave its domain."""

    @property
    @abstractmethod
    def concave(self) -> bool:
        """Whether F is known to be concave, which certificates need."""

    @property
    @abstractmethod
    def smoothness(self) -> Smoothness:
        """The constants that the theory asks for."""

    @property
    def linear(self) -> bool:
        """Whether F is linear (its gradient never changes), so that any multiple of it is concave."""
        return self.smoothness.l2 == 0

    @abstractmethod
    def features(self) -> Feature:
        """What the occupancy counts unless the problem says otherwise."""

    def __add__(self, other: "Utility | Callable[[Any], Any]") -> "Utility":
        from occupax.utilities.custom import as_utility

        left, right = _terms(self), _terms(as_utility(other))
        return Sum(left.terms + right.terms, left.weights + right.weights)

    def __mul__(self, factor: float) -> "Utility":
        if not isinstance(factor, Real) or not isfinite(factor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a utility may be multiplied by a finite number, got {factor!r}.")
        scaled = _terms(self)
        return Sum(scaled.terms, tuple(float(factor) * weight for weight in scaled.weights))

    def __radd__(self, other: Any) -> "Utility":
        return self if other == 0 else self + other  # 0 is what sum() starts from

    __rmul__ = __mul__

    def __neg__(self) -> "Utility":
        return self * -1.0

    def __sub__(self, other: "Utility | Callable[[Any], Any]") -> "Utility":
        return -(-self + other)

    def __rsub__(self, other: Callable[[Any], Any]) -> "Utility":
        return -self + other


class Sum(Utility):
    """A weighted sum of utilities; each term sees its own part of the occupancy unless all count the same."""

    terms: tuple[Utility, ...]
    weights: tuple[Weight, ...]
    sizes: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        lengths = {len(part) for part in (self.terms, self.weights, self.sizes) if part is not None}
        if len(lengths) != 1 or not self.terms:
            raise ValueError(
                "a sum needs a weight, and a size if there are any, for each of its terms."
            )
        if not all(isfinite(weight) for weight in self.weights if isinstance(weight, int | float)):
            raise ValueError(f"the weights of a sum must be finite, got {self.weights}.")
        if self.sizes is not None:
            check_integers("sizes", self.sizes)

    def parts(self, occupancy: Any) -> list[tuple[Weight, Utility, Any]]:
        """The weight of each term, the term, and the part of the occupancy that it sees."""
        seen = [occupancy] * len(self.terms)
        if self.sizes is not None:
            stops = accumulate(self.sizes)
            seen = [
                occupancy[stop - size : stop] for stop, size in zip(stops, self.sizes, strict=True)
            ]
        return list(zip(self.weights, self.terms, seen, strict=True))

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The weighted sum of the values."""
        return jnp.sum(
            jnp.stack([weight * term.value(part) for weight, term, part in self.parts(occupancy)])
        )

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The weighted gradients: side by side when each term has its own part, added otherwise."""
        parts = [weight * term.gradient(part) for weight, term, part in self.parts(occupancy)]
        return jnp.sum(jnp.stack(parts), 0) if self.sizes is None else jnp.concatenate(parts)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Each part in its own domain; a shared occupancy goes through all the projections."""
        if self.sizes is None:
            for term in self.terms:
                occupancy = term.domain(occupancy)
            return occupancy
        return jnp.concatenate([term.domain(part) for _, term, part in self.parts(occupancy)])

    @property
    def concave(self) -> bool:
        """Whether every term is concave with a positive weight, linear, or multiplied by zero."""
        pairs = zip(self.terms, self.weights, strict=True)
        return all(
            term.linear or (term.concave if weight > 0 else weight == 0) for term, weight in pairs
        )

    @property
    def smoothness(self) -> Smoothness:
        """The weighted sum of the constants, or their largest when each term has its own part."""
        pairs = zip(self.terms, self.weights, strict=True)
        scaled = [
            [abs(weight) * it if weight else 0.0 for it in term.smoothness]
            for term, weight in pairs
        ]
        combine = sum if self.sizes is None else max
        return Smoothness(*(combine(column) for column in zip(*scaled, strict=True)))

    def features(self) -> Feature:
        """The common features of the terms, or all of them stacked."""
        parts = [term.features() for term in self.terms]
        return parts[0] if _all_equal(parts) else Stack(*parts)

    def part_sizes(self, env: DecisionProcess) -> tuple[int, ...] | None:
        """How many entries of the default occupancy belong to each term; None if all terms share them."""
        parts = [term.features() for term in self.terms]
        return None if _all_equal(parts) else tuple(part.size(env) for part in parts)


def nonnegative(occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
    """The nearest occupancy without negative entries."""
    return jnp.maximum(occupancy, 0.0)


def _terms(utility: Utility) -> Sum:
    return utility if isinstance(utility, Sum) else Sum((utility,), (1.0,))


def _all_equal(parts: list[Feature]) -> bool:
    return all(bool(eqx.tree_equal(parts[0], part)) for part in parts[1:])

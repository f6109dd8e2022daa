"""Action spaces of environments.

An action is an integer from 0 on, or a flat vector. Shape, type and first value of the actions of a
Gymnasium environment are known to the code that steps it.
"""

from abc import abstractmethod
from math import isfinite
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.errors import check_integer, check_integers, real_array, shown

Kind = Literal["discrete", "multi-discrete", "box", "squashed"]
"""Action space of a policy. "box" and "squashed" are for the same environments: a sample is the
action itself, which is clipped, or a vector that the policy maps into the bounds."""


class ActionSpace(eqx.Module):
    """Set of the actions of an environment."""

    kinds: ClassVar[tuple[Kind, ...]]
    """Kinds of policies that act in the space."""

    @abstractmethod
    def spec(self) -> jax.ShapeDtypeStruct:
        """Return shape and dtype of an action."""

    def clip(self, action: Array) -> Array:
        """Return the nearest action of the space. The action itself if there are no bounds."""
        return action


class DiscreteActions(ActionSpace):
    """Integers 0 to n - 1."""

    kinds = ("discrete",)
    n: int = eqx.field(static=True, converter=lambda n: check_integer("n", n))
    """Number of actions."""

    def spec(self) -> jax.ShapeDtypeStruct:
        """Return shape and dtype of an action, an integer."""
        return jax.ShapeDtypeStruct((), jnp.int32)


class MultiDiscreteActions(ActionSpace):
    """Vectors of integers: entry k is one of 0 to sizes[k] - 1. Binary if all sizes are 2."""

    kinds = ("multi-discrete",)
    sizes: tuple[int, ...] = eqx.field(
        static=True, converter=lambda sizes: check_integers("sizes", sizes)
    )
    """Number of values of each entry."""

    def __check_init__(self) -> None:
        if not self.sizes:
            raise ValueError("sizes must have at least one entry, got none.")

    def spec(self) -> jax.ShapeDtypeStruct:
        """Return shape and dtype of an action, a vector of integers."""
        return jax.ShapeDtypeStruct((len(self.sizes),), jnp.int32)


class BoxActions(ActionSpace):
    """Real vectors between bounds, which may be infinite."""

    kinds = ("box", "squashed")
    low: tuple[float, ...] = eqx.field(static=True, converter=lambda low: _bounds("low", low))
    """Lower bound of each entry, -inf for none."""
    high: tuple[float, ...] = eqx.field(static=True, converter=lambda high: _bounds("high", high))
    """Upper bound of each entry, inf for none."""

    def __check_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise ValueError(
                f"low and high must have one length, got {len(self.low)} and {len(self.high)}."
            )
        if not (np.array(self.low) < np.array(self.high)).all():
            raise ValueError(f"low must be below high, got low={self.low} and high={self.high}.")

    @property
    def bounded(self) -> bool:
        """Whether any entry has a bound."""
        return any(map(isfinite, self.low + self.high))

    @property
    def has_both_bounds(self) -> np.ndarray:
        """Whether each entry has a lower and an upper bound, [n]."""
        pairs = zip(self.low, self.high, strict=True)
        return np.array([isfinite(high - low) for low, high in pairs])

    @property
    def middle(self) -> Float[np.ndarray, " n"]:
        """Middle between the bounds of each entry. 0 for an entry without both bounds."""
        middle = np.zeros(len(self.low))
        np.add(self.low, self.high, out=middle, where=self.has_both_bounds)
        return middle / 2

    @property
    def reach(self) -> Float[np.ndarray, " n"]:
        """Half the width between the bounds of each entry. 1 for an entry without both bounds."""
        widths = np.full(len(self.low), 2.0)
        np.subtract(self.high, self.low, out=widths, where=self.has_both_bounds)
        return widths / 2

    def spec(self) -> jax.ShapeDtypeStruct:
        """Return shape and dtype of an action, a vector of floats."""
        return jax.ShapeDtypeStruct((len(self.low),), jnp.result_type(float))

    def clip(self, action: Array) -> Array:
        """Return the nearest point of the box."""
        if not self.bounded:
            return action
        return jnp.clip(action, jnp.array(self.low), jnp.array(self.high))


def _bounds(name: str, values: Any) -> tuple[float, ...]:
    array = real_array(name, values)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a sequence of at least one number, got {shown(values)}.")
    bounds = tuple(array.astype(float).tolist())
    if any(map(np.isnan, bounds)):
        raise ValueError(f"{name} must not be NaN, got {bounds}.")
    return bounds

"""Which actions an environment takes.

An action is a number from 0 on, or a flat vector. What shape, type and first number an environment
of Gymnasium has, the one who steps it knows.
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
"""In which space a policy acts. "box" and "squashed" are for the same environments: what is drawn
is the action itself, which is clipped, or a vector of which the policy makes an action inside of
the bounds."""


class ActionSpace(eqx.Module):
    """All actions that an environment takes."""

    kinds: ClassVar[tuple[Kind, ...]]
    """Which policies act in it."""

    @abstractmethod
    def spec(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of an action."""

    def clip(self, action: Array) -> Array:
        """The nearest action that the environment takes; the action itself where there are no bounds."""
        return action


class DiscreteActions(ActionSpace):
    """The numbers 0 to n - 1."""

    kinds = ("discrete",)
    n: int = eqx.field(static=True, converter=lambda n: check_integer("n", n))

    def spec(self) -> jax.ShapeDtypeStruct:
        """A whole number."""
        return jax.ShapeDtypeStruct((), jnp.int32)


class MultiDiscreteActions(ActionSpace):
    """Vectors of whole numbers: entry k is a number from 0 to sizes[k] - 1. If all sizes are 2 they are binary."""

    kinds = ("multi-discrete",)
    sizes: tuple[int, ...] = eqx.field(
        static=True, converter=lambda sizes: check_integers("sizes", sizes)
    )

    def __check_init__(self) -> None:
        if not self.sizes:
            raise ValueError("sizes must have at least one entry, got none.")

    def spec(self) -> jax.ShapeDtypeStruct:
        """A vector of whole numbers."""
        return jax.ShapeDtypeStruct((len(self.sizes),), jnp.int32)


class BoxActions(ActionSpace):
    """Vectors of real numbers between bounds, which may be infinite."""

    kinds = ("box", "squashed")
    low: tuple[float, ...] = eqx.field(static=True, converter=lambda low: _bounds("low", low))
    high: tuple[float, ...] = eqx.field(static=True, converter=lambda high: _bounds("high", high))

    def __check_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise ValueError(
                f"low and high must have one length, got {len(self.low)} and {len(self.high)}."
            )
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low must be below high, got low={self.low} and high={self.high}.")

    @property
    def bounded(self) -> bool:
        """Whether any entry has a bound."""
        return any(map(isfinite, self.low + self.high))

    @property
    def middle(self) -> Float[np.ndarray, " n"]:
        """The middle between the bounds of each entry; 0 unless it has two."""
        return np.array(
            [(low + high) / 2 if isfinite(high - low) else 0.0 for low, high in self._pairs]
        )

    @property
    def reach(self) -> Float[np.ndarray, " n"]:
        """How far the bounds of each entry are from the middle; 1 unless it has two."""
        return np.array(
            [(high - low) / 2 if isfinite(high - low) else 1.0 for low, high in self._pairs]
        )

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.low, self.high, strict=True))

    def spec(self) -> jax.ShapeDtypeStruct:
        """A vector of real numbers."""
        return jax.ShapeDtypeStruct((len(self.low),), jnp.result_type(float))

    def clip(self, action: Array) -> Array:
        """The nearest point of the box."""
        return (
            jnp.clip(action, jnp.array(self.low), jnp.array(self.high)) if self.bounded else action
        )


def _bounds(name: str, values: Any) -> tuple[float, ...]:
    array = real_array(name, values)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a sequence of at least one number, got {shown(values)}.")
    bounds = tuple(array.astype(float).tolist())
    if any(map(np.isnan, bounds)):
        raise ValueError(f"{name} must not be NaN, got {bounds}.")
    return bounds

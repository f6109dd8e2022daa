"""Closed convex sets and the exact projection onto each, in plain JAX, which returns a point of the set as it is.

A set keeps its numbers as float64 NumPy arrays, so its projections are as precise as JAX is set to
be.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from occupax.errors import real_array

Numbers = ArrayLike | Sequence[Any]

ROUNDING = 1e-9
"""By how much the length of a vector that was divided by its length may differ from 1."""


class ConvexSet(eqx.Module):
    """A non-empty closed convex set of vectors; the first array of each has their coordinates as its last axis."""

    @property
    def size(self) -> int:
        """The number of coordinates of a vector."""
        return jax.tree.leaves(self)[0].shape[-1]

    @abstractmethod
    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Find the point of the set nearest to `point`."""


class Box(ConvexSet):
    """The vectors between `low` and `high`, coordinate by coordinate; `-inf` and `inf` where there is no bound."""

    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]

    def __init__(self, low: Numbers, high: Numbers):
        self.low, self.high = (
            _numbers("low", low, 1, finite=False),
            _numbers("high", high, 1, finite=False),
        )

    def __check_init__(self) -> None:
        for name, bounds in (("low", self.low), ("high", self.high)):
            _numbers(name, bounds, 1, finite=False)
        sizes = self.low.size, self.high.size
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"high must be as long as low, but low has {sizes[0]} and high {sizes[1]} numbers."
            )
        _require("low", self.low, self.low < np.inf, "finite or -inf")
        _require("high", self.high, self.high > -np.inf, "finite or inf")
        if np.any(crossed := self.low > self.high):
            at = np.argmax(crossed)
            bounds = f"low[{at}] is {self.low[at]} and high[{at}] {self.high[at]}"
            raise ValueError(f"low must be at most high, but {bounds}.")

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Find the point of the box nearest to `point`."""
        return jnp.clip(point, self.low, self.high)


class Ball(ConvexSet):
    """The vectors at most `radius` away from `center`."""

    center: Float[np.ndarray, " k"]
    radius: Float[np.ndarray, ""]

    def __init__(self, center: Numbers, radius: ArrayLike):
        self.center, self.radius = _numbers("center", center, 1), _numbers("radius", radius, 0)

    def __check_init__(self) -> None:
        _numbers("center", self.center, 1)
        _numbers("radius", self.radius, 0)
        _require("radius", self.radius, self.radius >= 0, "at least 0")

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Find the point of the ball nearest to `point`."""
        offset = point - self.center
        distance = jnp.linalg.norm(offset)
        shrink = self.radius / jnp.where(distance > 0, distance, 1)
        return jnp.where(distance <= self.radius, point, self.center + shrink * offset)


class Halfspace(ConvexSet):
    """The vectors whose inner product with `normal` is at most `offset`; both are divided by the length of `normal`."""

    normal: Float[np.ndarray, " k"]
    offset: Float[np.ndarray, ""]

    def __init__(self, normal: Numbers, offset: ArrayLike):
        given = _numbers("normal", normal, 1)
        length = np.linalg.norm(given)
        if length == 0:
            raise ValueError(f"normal must have a number other than 0, but it is {given.tolist()}.")
        self.normal, self.offset = (
            given / length,
            np.asarray(_numbers("offset", offset, 0) / length),
        )

    def __check_init__(self) -> None:
        _numbers("offset", self.offset, 0)
        if abs(np.linalg.norm(_numbers("normal", self.normal, 1)) - 1) > ROUNDING:
            raise ValueError(f"normal must have length 1, but it is {self.normal.tolist()}.")

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Find the point of the halfspace nearest to `point`."""
        excess = jnp.dot(self.normal, point, precision="highest") - self.offset
        return jnp.where(excess <= 0, point, point - excess * self.normal)


class Polyhedron(ConvexSet):
    """The vectors `x` for which `matrix @ x <= bounds`, row by row.

    Each row is kept divided by its length, together with its bound. A row of zeros rules nothing
    out. The projection is as exact as the corners are well defined: where the normals that meet are
    nearly dependent, use float64.
    """

    matrix: Float[np.ndarray, "rows k"]
    bounds: Float[np.ndarray, " rows"]

    def __init__(self, matrix: Numbers, bounds: Numbers):
        rows, limits = _numbers("matrix", matrix, 2), _numbers("bounds", bounds, 1)
        if rows.shape[0] != limits.size:
            counts = f"matrix has {rows.shape[0]} rows and bounds {limits.size} numbers"
            raise ValueError(f"bounds must have a number for each row of matrix, but {counts}.")
        lengths = np.linalg.norm(rows, axis=1)
        _require(
            "bounds",
            limits,
            (lengths > 0) | (limits >= 0),
            "at least 0 where a row of matrix is zero",
        )
        lengths = np.where(lengths == 0, 1, lengths)
        self.matrix, self.bounds = rows / lengths[:, None], limits / lengths

    def __check_init__(self) -> None:
        from scipy.optimize import linprog

        rows, limits = _numbers("matrix", self.matrix, 2), _numbers("bounds", self.bounds, 1)
        lengths = np.linalg.norm(rows, axis=1)
        if not ((abs(lengths - 1) < ROUNDING) | (lengths == 0)).all():
            raise ValueError(
                f"the rows of matrix must have length 1 or 0, but their lengths are {lengths.tolist()}."
            )
        scale = (
            np.max(np.abs(self.bounds)) or 1.0
        )  # the solver has an absolute tolerance, of about 1e-7
        if not linprog(
            np.zeros(rows.shape[1]), self.matrix, self.bounds / scale, bounds=(None, None)
        ).success:
            rule = "bounds must leave some x with matrix @ x <= bounds"
            raise ValueError(f"{rule}, but, of unit rows, {limits.tolist()} leaves none.")

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Find the point of the polyhedron nearest to `point`."""
        dtype = jnp.result_type(self.matrix, self.bounds, point)
        matrix, bounds, point = (
            jnp.asarray(array, dtype) for array in (self.matrix, self.bounds, point)
        )
        # Accelerators otherwise multiply float32 matrices with fewer digits.
        with jax.default_matmul_precision("highest"):
            return jnp.where(
                jnp.all(matrix @ point <= bounds), point, _nearest(matrix, bounds, point)
            )


class Point(ConvexSet):
    """A single vector."""

    point: Float[np.ndarray, " k"]

    def __init__(self, point: Numbers):
        self.point = _numbers("point", point, 1)

    def __check_init__(self) -> None:
        _numbers("point", self.point, 1)

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the only point of the set."""
        return jnp.clip(point, self.point, self.point)


class _State(NamedTuple):
    point: Float[Array, " k"]
    multipliers: Float[Array, " rows"]
    active: Bool[Array, " rows"]
    entering: Int[Array, ""]
    pending: Bool[Array, ""]
    steps: Int[Array, ""]
    done: Bool[Array, ""]


@jax.jit
def _nearest(
    matrix: Float[Array, "rows k"], bounds: Float[Array, " rows"], start: Float[Array, " k"]
) -> Float[Array, " k"]:
    """Find the point of `matrix @ x <= bounds` nearest to `start`; rows have length one or zero.

    This is the dual active-set method of Goldfarb and Idnani (1983). The point is always the
    nearest to `start` among those that meet the active constraints with equality, and moves away
    from `start` as the most violated constraint enters, until none is violated. Unlike
    least-distance programming by nonnegative least squares, it does not cycle by rounding where
    more constraints meet than there are dimensions.
    """
    rows, size = matrix.shape
    precision = float(jnp.finfo(matrix.dtype).eps)
    # Just above rounding: any higher, and the edge of a thin wedge would pass for a contradiction.
    cutoff = 4 * precision

    def step(state: _State) -> _State:
        inverse = jnp.linalg.pinv(jnp.where(state.active[:, None], matrix, 0), rtol=cutoff)
        # What rounding leaves of the active constraints shrinks with every correction, down to the
        # size of the point itself: from a start 1000 away, a set of size 1 is still met to a few
        # 1e-7 in float32.
        point = state.point - inverse @ jnp.where(state.active, matrix @ state.point - bounds, 0)
        tolerance = 4 * size**0.5 * precision * (jnp.abs(bounds) + jnp.linalg.norm(state.point))
        violation = matrix @ point - bounds
        excess = jnp.where(state.active, -jnp.inf, violation - tolerance)
        # Written so that a NaN ends the search.
        met = ~(jnp.max(excess) > 0)

        entering = jnp.where(state.pending, state.entering, jnp.argmax(excess))
        normal = matrix[entering]
        weights = jnp.where(state.active, normal @ inverse, 0)
        direction = normal - weights @ matrix
        slope = direction @ direction
        dependent = slope <= (4 * cutoff) ** 2
        full = jnp.where(dependent, jnp.inf, jnp.maximum(violation[entering], 0) / slope)
        releases = jnp.where(state.active & (weights > 0), state.multipliers / weights, jnp.inf)
        leaving = jnp.argmin(releases)
        enters = full <= releases[leaving]
        length = jnp.where(enters, full, releases[leaving])
        # No step is left only if the constraints contradict each other, by rounding since the set
        # is not empty.
        done = met | jnp.isinf(length)
        length = jnp.where(done, 0, length)

        return _State(
            point=point - length * direction,
            multipliers=jnp.maximum(state.multipliers - length * weights, 0)
            .at[entering]
            .add(length),
            active=jnp.where(
                enters, state.active.at[entering].set(True), state.active.at[leaving].set(False)
            ),
            entering=entering,
            pending=~enters,
            steps=state.steps + 1,
            done=done,
        )

    zero, no = jnp.asarray(0), jnp.zeros((), dtype=bool)
    first = _State(start, jnp.zeros_like(bounds), jnp.zeros(rows, dtype=bool), zero, no, zero, no)
    # A constraint enters about once; the limit only keeps rounding errors from going on for ever.
    limit = 10 * (rows + size)
    return lax.while_loop(lambda state: ~state.done & (state.steps < limit), step, first).point


def _numbers(
    name: str, value: Numbers, dimensions: int, finite: bool = True
) -> Float[np.ndarray, "..."]:
    kind = ("a number", "a vector of numbers", "a matrix of numbers")[dimensions]
    array = real_array(name, value).astype(np.float64)
    if array.ndim != dimensions or array.size == 0:
        raise ValueError(f"{name} must be {kind} and not empty, but its shape is {array.shape}.")
    _require(name, array, ~np.isnan(array), "a number")
    if finite:
        _require(name, array, np.isfinite(array), "finite")
    return array


def _require(name: str, array: Float[np.ndarray, "..."], allowed: Any, rule: str) -> None:
    if not np.all(allowed):
        first = np.argwhere(~allowed)[0]
        place = name + "".join(f"[{index}]" for index in first)
        raise ValueError(f"{name} must be {rule}, but {place} is {array[tuple(first)]}.")

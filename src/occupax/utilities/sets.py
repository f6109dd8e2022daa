"""Closed convex sets with exact projections in JAX, which return points of a set unchanged.

Sets keep their numbers as float64 NumPy arrays. The precision of a projection is that of JAX.
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
from occupax.utilities.base import NoConicFormError

Numbers = ArrayLike | Sequence[Any]

NORM_TOLERANCE = 1e-9
"""The largest difference between 1 and the length of a normalised vector."""


class ConvexSet(eqx.Module):
    """A non-empty closed convex set of vectors.

    The last axis of the first array of a subclass has the coordinates.
    """

    @property
    def size(self) -> int:
        """The number of coordinates of a vector."""
        return jax.tree.leaves(self)[0].shape[-1]

    @abstractmethod
    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the point of the set nearest to `point`."""

    def membership(self, point: Any) -> list[Any]:
        """Return the cvxpy constraints for which `point`, a cvxpy expression, is in the set."""
        raise NoConicFormError(f"the set {type(self).__name__}")


class Box(ConvexSet):
    """The vectors between `low` and `high` in each coordinate.

    Args:
        low: the lower bounds. `-inf` is none.
        high: the upper bounds. `inf` is none.
    """

    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]

    def __init__(self, low: Numbers, high: Numbers):
        self.low = _read_numbers("low", low, 1, finite=False)
        self.high = _read_numbers("high", high, 1, finite=False)

    def __check_init__(self) -> None:
        _read_numbers("low", self.low, 1, finite=False)
        _read_numbers("high", self.high, 1, finite=False)
        if self.low.size != self.high.size:
            raise ValueError(
                f"high must be as long as low, but low has {self.low.size} and high "
                f"{self.high.size} numbers."
            )
        _check_entries("low", self.low, self.low < np.inf, "finite or -inf")
        _check_entries("high", self.high, self.high > -np.inf, "finite or inf")
        is_crossed = self.low > self.high
        if is_crossed.any():
            index = np.argmax(is_crossed)
            low = self.low[index]
            high = self.high[index]
            raise ValueError(
                f"low must be at most high, but low[{index}] is {low} and high[{index}] {high}."
            )

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the point of the box nearest to `point`."""
        return jnp.clip(point, self.low, self.high)

    def membership(self, point: Any) -> list[Any]:
        """Return the bounds of the coordinates."""
        below = np.flatnonzero(np.isfinite(self.low))
        above = np.flatnonzero(np.isfinite(self.high))
        conditions: list[Any] = []
        if below.size:
            conditions.append(point[below] >= self.low[below])
        if above.size:
            conditions.append(point[above] <= self.high[above])
        return conditions


class Ball(ConvexSet):
    """The vectors at a distance of at most `radius` from `center`.

    Args:
        center: the center, a vector.
        radius: the radius, at least 0.
    """

    center: Float[np.ndarray, " k"]
    radius: Float[np.ndarray, ""]

    def __init__(self, center: Numbers, radius: ArrayLike):
        self.center = _read_numbers("center", center, 1)
        self.radius = _read_numbers("radius", radius, 0)

    def __check_init__(self) -> None:
        _read_numbers("center", self.center, 1)
        _read_numbers("radius", self.radius, 0)
        _check_entries("radius", self.radius, self.radius >= 0, "at least 0")

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the point of the ball nearest to `point`."""
        offset = point - self.center
        distance = jnp.linalg.norm(offset)
        shrink = self.radius / jnp.where(distance > 0, distance, 1)
        return jnp.where(distance <= self.radius, point, self.center + shrink * offset)

    def membership(self, point: Any) -> list[Any]:
        """Return the bound of the distance."""
        import cvxpy as cp

        return [cp.norm(point - self.center) <= self.radius]


class Halfspace(ConvexSet):
    """The vectors x for which <normal, x> is at most `offset`, stored with a normal of length 1.

    Args:
        normal: the outer normal, of any length but 0.
        offset: the largest inner product.
    """

    normal: Float[np.ndarray, " k"]
    offset: Float[np.ndarray, ""]

    def __init__(self, normal: Numbers, offset: ArrayLike):
        direction = _read_numbers("normal", normal, 1)
        length = np.linalg.norm(direction)
        if length == 0:
            raise ValueError(
                f"normal must have a number other than 0, but it is {direction.tolist()}."
            )
        self.normal = direction / length
        self.offset = np.asarray(_read_numbers("offset", offset, 0) / length)

    def __check_init__(self) -> None:
        _read_numbers("offset", self.offset, 0)
        length = np.linalg.norm(_read_numbers("normal", self.normal, 1))
        if abs(length - 1) > NORM_TOLERANCE:
            raise ValueError(f"normal must have length 1, but it is {self.normal.tolist()}.")

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the point of the halfspace nearest to `point`."""
        excess = jnp.dot(self.normal, point, precision="highest") - self.offset
        return jnp.where(excess <= 0, point, point - excess * self.normal)

    def membership(self, point: Any) -> list[Any]:
        """Return the bound of the inner product."""
        return [self.normal @ point <= self.offset]


class Polyhedron(ConvexSet):
    """The vectors `x` for which `matrix @ x <= bounds`, stored with rows of length 1.

    A row of zeros is always satisfied. Projections need float64 where nearly dependent normals
    meet.

    Args:
        matrix: the outer normals, one a row.
        bounds: the largest inner product with each row.
    """

    matrix: Float[np.ndarray, "rows k"]
    bounds: Float[np.ndarray, " rows"]

    def __init__(self, matrix: Numbers, bounds: Numbers):
        rows = _read_numbers("matrix", matrix, 2)
        limits = _read_numbers("bounds", bounds, 1)
        if rows.shape[0] != limits.size:
            raise ValueError(
                "bounds must have a number for each row of matrix, but matrix has "
                f"{rows.shape[0]} rows and bounds {limits.size} numbers."
            )
        lengths = np.linalg.norm(rows, axis=1)
        is_possible = (lengths > 0) | (limits >= 0)
        _check_entries("bounds", limits, is_possible, "at least 0 where a row of matrix is zero")
        divisors = np.where(lengths == 0, 1, lengths)
        self.matrix = rows / divisors[:, None]
        self.bounds = limits / divisors

    def __check_init__(self) -> None:
        from scipy.optimize import linprog  # at the top it would slow down `import occupax`

        rows = _read_numbers("matrix", self.matrix, 2)
        limits = _read_numbers("bounds", self.bounds, 1)
        lengths = np.linalg.norm(rows, axis=1)
        is_unit = (abs(lengths - 1) < NORM_TOLERANCE) | (lengths == 0)
        if not is_unit.all():
            raise ValueError(
                "the rows of matrix must have length 1 or 0, but their lengths are "
                f"{lengths.tolist()}."
            )
        # The solver has an absolute tolerance of about 1e-7.
        scale = np.max(np.abs(limits)) or 1.0
        cost = np.zeros(rows.shape[1])
        if not linprog(cost, self.matrix, self.bounds / scale, bounds=(None, None)).success:
            raise ValueError(
                "bounds must leave some x with matrix @ x <= bounds, but, of unit rows, "
                f"{limits.tolist()} leaves none."
            )

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the point of the polyhedron nearest to `point`."""
        dtype = jnp.result_type(self.matrix, self.bounds, point)
        matrix = jnp.asarray(self.matrix, dtype)
        bounds = jnp.asarray(self.bounds, dtype)
        start = jnp.asarray(point, dtype)
        # Accelerators otherwise multiply float32 matrices with fewer digits.
        with jax.default_matmul_precision("highest"):
            is_inside = jnp.all(matrix @ start <= bounds)
            return jnp.where(is_inside, start, _nearest(matrix, bounds, start))

    def membership(self, point: Any) -> list[Any]:
        """Return the bounds of all rows."""
        return [self.matrix @ point <= self.bounds]


class Point(ConvexSet):
    """A single vector.

    Args:
        point: the vector.
    """

    point: Float[np.ndarray, " k"]

    def __init__(self, point: Numbers):
        self.point = _read_numbers("point", point, 1)

    def __check_init__(self) -> None:
        _read_numbers("point", self.point, 1)

    def project(self, point: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return the only point of the set."""
        return jnp.clip(point, self.point, self.point)

    def membership(self, point: Any) -> list[Any]:
        """Return the equality with the only point."""
        return [point == self.point]


class _State(NamedTuple):
    point: Float[Array, " k"]
    multipliers: Float[Array, " rows"]
    active: Bool[Array, " rows"]
    entering: Int[Array, ""]
    pending: Bool[Array, ""]
    steps: Int[Array, ""]
    finished: Bool[Array, ""]


@jax.jit
def _nearest(
    matrix: Float[Array, "rows k"], bounds: Float[Array, " rows"], start: Float[Array, " k"]
) -> Float[Array, " k"]:
    """Return the point of `matrix @ x <= bounds` nearest to `start`, for rows of length 1 or 0.

    This is the dual active-set method of Goldfarb and Idnani (1983). The point is always the
    nearest to `start` among those that meet the active constraints with equality, and moves away
    from `start` as the most violated constraint enters, until none is violated. Unlike
    least-distance programming by nonnegative least squares, the method does not cycle by rounding
    where more constraints meet than there are dimensions.
    """
    rows, size = matrix.shape
    precision = float(jnp.finfo(matrix.dtype).eps)
    # Just above rounding: with a higher cutoff, the edge of a thin wedge would be a contradiction.
    cutoff = 4 * precision

    def step(state: _State) -> _State:
        active_rows = jnp.where(state.active[:, None], matrix, 0)
        inverse = jnp.linalg.pinv(active_rows, rtol=cutoff)
        # The rounding errors of the active constraints shrink with every correction, down to the
        # size of the point itself: from a start 1000 away, a set of size 1 is still met to a few
        # 1e-7 in float32.
        errors = jnp.where(state.active, matrix @ state.point - bounds, 0)
        point = state.point - inverse @ errors
        tolerance = 4 * size**0.5 * precision * (jnp.abs(bounds) + jnp.linalg.norm(state.point))
        violation = matrix @ point - bounds
        excess = jnp.where(state.active, -jnp.inf, violation - tolerance)
        # The negation makes a NaN end the search.
        is_met = ~(jnp.max(excess) > 0)

        entering = jnp.where(state.pending, state.entering, jnp.argmax(excess))
        normal = matrix[entering]
        weights = jnp.where(state.active, normal @ inverse, 0)
        direction = normal - weights @ matrix
        slope = direction @ direction
        is_dependent = slope <= (4 * cutoff) ** 2
        full_step = jnp.maximum(violation[entering], 0) / slope
        full = jnp.where(is_dependent, jnp.inf, full_step)
        can_leave = state.active & (weights > 0)
        releases = jnp.where(can_leave, state.multipliers / weights, jnp.inf)
        leaving = jnp.argmin(releases)
        enters = full <= releases[leaving]
        length = jnp.where(enters, full, releases[leaving])
        # An infinite step means that the constraints contradict each other. The set is not empty,
        # so this happens by rounding only.
        finished = is_met | jnp.isinf(length)
        length = jnp.where(finished, 0, length)

        multipliers = jnp.maximum(state.multipliers - length * weights, 0)
        with_entering = state.active.at[entering].set(True)
        without_leaving = state.active.at[leaving].set(False)
        return _State(
            point=point - length * direction,
            multipliers=multipliers.at[entering].add(length),
            active=jnp.where(enters, with_entering, without_leaving),
            entering=entering,
            pending=~enters,
            steps=state.steps + 1,
            finished=finished,
        )

    zero = jnp.asarray(0)
    false = jnp.zeros((), dtype=bool)
    inactive = jnp.zeros(rows, dtype=bool)
    first = _State(start, jnp.zeros_like(bounds), inactive, zero, false, zero, false)
    # A constraint enters about once. The limit stops an endless loop by rounding.
    limit = 10 * (rows + size)
    last = lax.while_loop(lambda state: ~state.finished & (state.steps < limit), step, first)
    return last.point


def _read_numbers(
    name: str, value: Numbers, dimensions: int, finite: bool = True
) -> Float[np.ndarray, "..."]:
    """Return a checked array of float64 with this number of dimensions."""
    kind = ("a number", "a vector of numbers", "a matrix of numbers")[dimensions]
    array = real_array(name, value).astype(np.float64)
    if array.ndim != dimensions or array.size == 0:
        raise ValueError(f"{name} must be {kind} and not empty, but its shape is {array.shape}.")
    _check_entries(name, array, ~np.isnan(array), "a number")
    if finite:
        _check_entries(name, array, np.isfinite(array), "finite")
    return array


def _check_entries(name: str, array: Float[np.ndarray, "..."], allowed: Any, rule: str) -> None:
    """Raise ValueError for the first entry that is not allowed."""
    if np.all(allowed):
        return
    first = np.argwhere(~allowed)[0]
    entry = name + "".join(f"[{index}]" for index in first)
    raise ValueError(f"{name} must be {rule}, but {entry} is {array[tuple(first)]}.")

"""Projections on convex sets: the properties that define them, and other solvers' answers."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from occupax.utilities.sets import Ball, Box, ConvexSet, Halfspace, Point, Polyhedron

Floats = npt.NDArray[np.floating[Any]]

# One shape for all, so that JAX compiles one projection for each kind of set.
SIZE = 3
ROWS = 8

properties = settings(deadline=None, max_examples=50, derandomize=True)


def _project(body: ConvexSet, point: Any) -> jax.Array:
    return body.project(point)


jitted = jax.jit(_project)
batched = jax.jit(jax.vmap(_project, in_axes=(None, 0)))


def project(body: ConvexSet, point: Floats) -> Floats:
    with jax.enable_x64(new_val=True):
        return np.asarray(jitted(body, jnp.asarray(point)))


def violation(body: ConvexSet, point: Floats) -> float:
    """Return the violation of a set by a point, negative inside."""
    match body:
        case Box():
            return float(np.max([body.low - point, point - body.high]))
        case Ball():
            return float(np.linalg.norm(point - body.center) - body.radius)
        case Halfspace():
            return float(body.normal @ point - body.offset)
        case Polyhedron():
            return float(np.max(body.matrix @ point - body.bounds))
        case Point():
            return float(np.linalg.norm(point - body.point))
        case _:
            raise AssertionError(body)


def tolerance(*points: Floats) -> float:
    return 1e-9 * (1 + sum(float(np.linalg.norm(point)) for point in points))


# Quarters meet exactly, so corners, ties and duplicates come up often.
quarters = st.integers(-20, 20).map(lambda number: number / 4)
vectors = hnp.arrays(np.float64, SIZE, elements=quarters)
outsiders = st.builds(np.multiply, vectors, st.sampled_from([1.0, 10.0, 1000.0]))
slacks = st.sampled_from([0.0, 0.0, 0.25, 1.0, 7.0])
gaps = hnp.arrays(np.float64, SIZE, elements=st.sampled_from([0.0, 0.25, 3.0, np.inf]))

# Each strategy draws a set together with one of its members.
Body = tuple[ConvexSet, Floats]


@st.composite
def boxes(draw: st.DrawFn) -> Body:
    member = draw(vectors)
    return Box(member - draw(gaps), member + draw(gaps)), member


@st.composite
def balls(draw: st.DrawFn) -> Body:
    center, member = draw(vectors), draw(vectors)
    return Ball(center, np.linalg.norm(member - center) + draw(slacks)), member


@st.composite
def halfspaces(draw: st.DrawFn) -> Body:
    normal, member = draw(vectors.filter(np.any)), draw(vectors)
    return Halfspace(normal, normal @ member + draw(slacks)), member


@st.composite
def polyhedra(draw: st.DrawFn) -> Body:
    matrix, member = draw(hnp.arrays(np.float64, (ROWS, SIZE), elements=quarters)), draw(vectors)
    return Polyhedron(
        matrix, matrix @ member + draw(hnp.arrays(np.float64, ROWS, elements=slacks))
    ), member


@st.composite
def points(draw: st.DrawFn) -> Body:
    member = draw(vectors)
    return Point(member), member


every_set = pytest.mark.parametrize(
    "bodies", [boxes(), balls(), halfspaces(), polyhedra(), points()]
)


@every_set
@properties
@given(data=st.data())
def test_is_the_nearest_point_of_the_set(
    bodies: st.SearchStrategy[Body], data: st.DataObject
) -> None:
    (body, member), point = data.draw(bodies), data.draw(outsiders)
    nearest = project(body, point)
    assert violation(body, nearest) <= tolerance(point)
    assert (point - nearest) @ (member - nearest) <= tolerance(point) * (
        1 + np.linalg.norm(point - nearest)
    )


@every_set
@properties
@given(data=st.data())
def test_is_idempotent_and_not_expansive(
    bodies: st.SearchStrategy[Body], data: st.DataObject
) -> None:
    (body, _), point, other = data.draw(bodies), data.draw(outsiders), data.draw(outsiders)
    nearest, second = project(body, point), project(body, other)
    np.testing.assert_allclose(project(body, nearest), nearest, atol=tolerance(point))
    assert np.linalg.norm(nearest - second) <= np.linalg.norm(point - other) + tolerance(
        point, other
    )


@every_set
@properties
@given(data=st.data())
def test_members_stay(bodies: st.SearchStrategy[Body], data: st.DataObject) -> None:
    body, member = data.draw(bodies)
    stays = project(body, member)
    np.testing.assert_allclose(stays, member, atol=tolerance(member))
    # On the boundary, rounding decides which side the member is on.
    if violation(body, member) < -1e-12:
        np.testing.assert_array_equal(stays, member)


def padded(matrix: Any, bounds: Any) -> Polyhedron:
    """Rows of zeros make up the number of constraints."""
    rows = np.asarray(matrix, dtype=np.float64)
    spare = ROWS - rows.shape[0]
    return Polyhedron(
        np.pad(rows, ((0, spare), (0, 0))), np.pad(np.asarray(bounds, dtype=np.float64), (0, spare))
    )


def generic(rng: np.random.Generator) -> Polyhedron:
    matrix = rng.normal(size=(ROWS, SIZE))
    return Polyhedron(matrix, matrix @ rng.normal(size=SIZE) + rng.exponential(size=ROWS))


def unbounded(rng: np.random.Generator) -> Polyhedron:
    return padded(rng.normal(size=(2, SIZE)), rng.normal(size=2))


def cone(rng: np.random.Generator) -> Polyhedron:
    matrix = rng.normal(size=(ROWS, SIZE))
    matrix *= np.sign(matrix @ np.ones(SIZE))[:, None]
    return Polyhedron(matrix, matrix @ rng.normal(size=SIZE))


def duplicates(rng: np.random.Generator) -> Polyhedron:
    matrix, slack = rng.normal(size=(ROWS // 2, SIZE)), rng.exponential(size=ROWS // 2)
    return Polyhedron(np.vstack([matrix, 3 * matrix]), np.concatenate([slack, 3 * slack]))


def nearly_parallel(rng: np.random.Generator) -> Polyhedron:
    matrix = rng.normal(size=(ROWS // 2, SIZE))
    tilted = rng.choice([-1, 1], size=(ROWS // 2, 1)) * matrix + 1e-4 * rng.normal(
        size=matrix.shape
    )
    rows = np.vstack([matrix, tilted])
    return Polyhedron(rows, rows @ rng.normal(size=SIZE) + rng.choice([0, 1], size=ROWS))


def equalities(rng: np.random.Generator) -> Polyhedron:
    matrix = rng.normal(size=(2, SIZE))
    rows = np.vstack([matrix, -matrix, rng.normal(size=(2, SIZE))])
    return padded(rows, rows @ rng.normal(size=SIZE) + np.repeat([0, 1], [4, 2]))


def single_point(rng: np.random.Generator) -> Polyhedron:
    matrix = rng.normal(size=(SIZE, SIZE))
    rows = np.vstack([matrix, -matrix, matrix[:2] + matrix[1:]])
    return Polyhedron(rows, rows @ rng.normal(size=SIZE))


def interval(rng: np.random.Generator) -> Polyhedron:
    return Polyhedron(rng.normal(size=(ROWS, 1)), rng.exponential(size=ROWS))


def crowded(rng: np.random.Generator) -> Polyhedron:
    """Big enough for constraints to leave again and again."""
    matrix = rng.normal(size=(30, 8))
    return Polyhedron(
        matrix, matrix @ rng.normal(size=8) + rng.exponential(size=30) * rng.choice([0, 1], size=30)
    )


KINDS = [generic, unbounded, cone, duplicates, nearly_parallel, equalities, single_point, interval]
Kind = Callable[[np.random.Generator], Polyhedron]


@pytest.mark.parametrize("kind", KINDS)
def test_polyhedron_against_clarabel(kind: Kind) -> None:
    cp: Any = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(3)
    for distance in (0.3, 3.0, 30.0):
        body = kind(rng)
        point = distance * rng.normal(size=body.size)
        variable = cp.Variable(body.size)
        problem = cp.Problem(
            cp.Minimize(cp.sum_squares(variable - point)), [body.matrix @ variable <= body.bounds]
        )
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        nearest = project(body, point)
        np.testing.assert_allclose(nearest, variable.value, atol=1000 * tolerance(nearest))


@pytest.mark.parametrize("kind", [*KINDS, crowded])
def test_polyhedron_meets_the_optimality_conditions(kind: Kind) -> None:
    rng = np.random.default_rng(4)
    for distance in np.geomspace(0.1, 1000, 15):
        body = kind(rng)
        cloud = distance * rng.normal(size=(10, body.size))
        with jax.enable_x64(new_val=True):
            images = np.asarray(batched(body, jnp.asarray(cloud)))
        for point, nearest in zip(cloud, images, strict=True):
            near = tolerance(point, nearest)
            assert violation(body, nearest) <= near
            # What separates the two points is a nonnegative combination of the normals that hold
            # the nearest one.
            tight = body.matrix[body.matrix @ nearest >= body.bounds - near]
            assert nnls(np.vstack([tight, np.zeros((1, body.size))]).T, point - nearest)[1] <= near


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not nearly_parallel])
def test_polyhedron_in_single_precision(kind: Kind) -> None:
    rng = np.random.default_rng(5)
    for distance in np.geomspace(0.1, 1000, 15):
        body = kind(rng)
        point = distance * rng.normal(size=body.size)
        nearest = jitted(body, jnp.asarray(point, dtype=jnp.float32))
        assert nearest.dtype == jnp.float32
        np.testing.assert_allclose(nearest, project(body, point), atol=3000 * tolerance(point))


def test_small_polyhedron_from_far_away_in_single_precision() -> None:
    rng = np.random.default_rng(6)
    rotation = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    body = padded(np.vstack([rotation, -rotation]), np.ones(2 * SIZE))
    for point in 1000 * rng.normal(size=(20, SIZE)):
        assert (
            violation(body, np.asarray(jitted(body, jnp.asarray(point, dtype=jnp.float32)))) <= 5e-7
        )


@properties
@given(body=boxes(), point=outsiders)
def test_polyhedron_of_a_box(body: tuple[Box, Floats], point: Floats) -> None:
    box = body[0]
    matrix, bounds = np.vstack([np.eye(SIZE), -np.eye(SIZE)]), np.concatenate([box.high, -box.low])
    finite = np.isfinite(bounds)
    polyhedron = padded(matrix[finite], bounds[finite])
    np.testing.assert_allclose(
        project(polyhedron, point), project(box, point), atol=tolerance(point)
    )


@properties
@given(body=halfspaces(), point=outsiders)
def test_polyhedron_of_a_halfspace(body: tuple[Halfspace, Floats], point: Floats) -> None:
    halfspace = body[0]
    polyhedron = padded(halfspace.normal[None], halfspace.offset[None])
    np.testing.assert_allclose(
        project(polyhedron, point), project(halfspace, point), atol=tolerance(point)
    )


EXAMPLES = [
    Box([-1, -np.inf, 0], [1, 2, np.inf]),
    Ball([1, 2, 3], 2),
    Halfspace([3, 0, 4], -5),
    generic(np.random.default_rng(7)),
    Point([1, 2, 3]),
]


@pytest.mark.parametrize("body", EXAMPLES)
@pytest.mark.parametrize("x64", [False, True])
def test_jit_and_vmap_agree_with_eager(body: ConvexSet, x64: bool) -> None:
    cloud = 5 * np.random.default_rng(8).normal(size=(10, SIZE))
    with jax.enable_x64(new_val=x64):
        together = batched(body, jnp.asarray(cloud))
        eager = [body.project(jnp.asarray(point)) for point in cloud]
        compiled = [jitted(body, jnp.asarray(point)) for point in cloud]
    assert {array.dtype for array in [together, *eager, *compiled]} == {
        np.dtype(np.float64 if x64 else np.float32)
    }
    close = 1e-13 if x64 else 1e-5
    np.testing.assert_allclose(together, np.stack(eager), atol=close)
    np.testing.assert_allclose(np.stack(compiled), np.stack(eager), atol=close)


@pytest.mark.parametrize("body", EXAMPLES)
def test_sizes_and_precision(body: ConvexSet) -> None:
    assert body.size == SIZE
    assert all(
        isinstance(leaf, np.ndarray) and leaf.dtype == np.float64 for leaf in jax.tree.leaves(body)
    )


def test_known_projections() -> None:
    np.testing.assert_allclose(project(EXAMPLES[0], np.array([5.0, 5.0, -5.0])), [1, 2, 0])
    np.testing.assert_allclose(project(EXAMPLES[1], np.array([1.0, 2.0, 9.0])), [1, 2, 5])
    np.testing.assert_allclose(project(EXAMPLES[2], np.array([3.0, 1.0, 4.0])), [-0.6, 1, -0.8])
    corner = padded([[1, 1, 0], [1, 0, 0]], [2, 1])
    np.testing.assert_allclose(project(corner, np.array([3.0, 2.0, 7.0])), [1, 1, 7])


def test_members_keep_every_bit() -> None:
    corners = Polyhedron(list(itertools.product([-1, 1], repeat=SIZE)), np.arange(1, ROWS + 1))
    for body in (Ball(np.zeros(SIZE), 1), Halfspace([-1, 1, -1], 1), corners):
        for member in itertools.product([-0.0, 0.0], repeat=SIZE):
            assert project(body, np.array(member)).tobytes() == np.array(member).tobytes()


def test_polyhedron_empty_by_rounding() -> None:
    normals = np.array([[0.6, -0.3, 0.7], [0.2, 0.9, -0.1]])
    rows = [*normals, -normals.sum(axis=0)]
    line, empty = padded(rows, [1, 1, -2]), padded(rows, [1, 1, -2 - 1e-9])
    for point in 10 * np.random.default_rng(9).normal(size=(10, SIZE)):
        np.testing.assert_allclose(project(empty, point), project(line, point), atol=1e-8)


def test_not_a_number_comes_back() -> None:
    assert np.any(np.isnan(project(EXAMPLES[3], np.array([0.0, np.nan, 0.0]))))


def test_arguments_are_copied() -> None:
    low = np.zeros(SIZE)
    box = Box(low, np.ones(SIZE))
    low[:] = 5
    np.testing.assert_array_equal(box.low, np.zeros(SIZE))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Box([0, np.nan], [1, 1]), "low must be a number, but low[1] is nan."),
        (lambda: Box([0, 0], [1, np.nan]), "high must be a number, but high[1] is nan."),
        (
            lambda: Box([0, 0], [1]),
            "high must be as long as low, but low has 2 and high 1 numbers.",
        ),
        (
            lambda: Box([0, 2], [1, 1]),
            "low must be at most high, but low[1] is 2.0 and high[1] 1.0.",
        ),
        (lambda: Box([np.inf], [np.inf]), "low must be finite or -inf, but low[0] is inf."),
        (lambda: Box([-np.inf], [-np.inf]), "high must be finite or inf, but high[0] is -inf."),
        (lambda: Box(0, 1), "low must be a vector of numbers and not empty, but its shape is ()."),
        (
            lambda: Box([], []),
            "low must be a vector of numbers and not empty, but its shape is (0,).",
        ),
        (lambda: Box(["a"], [1]), "low must be an array of real numbers, got list ['a']."),
        (
            lambda: Ball([[0, 0]], 1),
            "center must be a vector of numbers and not empty, but its shape is (1, 2).",
        ),
        (lambda: Ball([0, np.inf], 1), "center must be finite, but center[1] is inf."),
        (lambda: Ball([0, 0], -1), "radius must be at least 0, but radius is -1.0."),
        (lambda: Ball([0, 0], np.inf), "radius must be finite, but radius is inf."),
        (lambda: Ball([0, 0], np.nan), "radius must be a number, but radius is nan."),
        (
            lambda: Ball([0, 0], np.ones(2)),
            "radius must be a number and not empty, but its shape is (2,).",
        ),
        (
            lambda: Halfspace([0, 0], 1),
            "normal must have a number other than 0, but it is [0.0, 0.0].",
        ),
        (lambda: Halfspace([-np.inf, 0], 1), "normal must be finite, but normal[0] is -inf."),
        (lambda: Halfspace([1, 0], np.inf), "offset must be finite, but offset is inf."),
        (
            lambda: Polyhedron([1, 0], [1]),
            "matrix must be a matrix of numbers and not empty, but its shape is (2,).",
        ),
        (
            lambda: Polyhedron([[1, 0], [0]], [1, 1]),
            "matrix must be an array of real numbers, got list [[1, 0], [0]].",
        ),
        (
            lambda: Polyhedron([[1, 0], [0, np.nan]], [1, 1]),
            "matrix must be a number, but matrix[1][1] is nan.",
        ),
        (lambda: Polyhedron([[1, 0]], [np.inf]), "bounds must be finite, but bounds[0] is inf."),
        (
            lambda: Polyhedron([[1, 0]], [1, 1]),
            (
                "bounds must have a number for each row of matrix, "
                "but matrix has 1 rows and bounds 2 numbers."
            ),
        ),
        (
            lambda: Polyhedron([[1, 0], [0, 0]], [1, -1]),
            "bounds must be at least 0 where a row of matrix is zero, but bounds[1] is -1.0.",
        ),
        (
            lambda: Polyhedron([[2.0], [-1.0]], [-1e-9, -1e-9]),
            (
                "bounds must leave some x with matrix @ x <= bounds, "
                "but, of unit rows, [-5e-10, -1e-09] leaves none."
            ),
        ),
        (lambda: Point([0, np.inf]), "point must be finite, but point[1] is inf."),
    ],
)
def test_bad_input(build: Callable[[], ConvexSet], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build()

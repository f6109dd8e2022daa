"""Linear systems of the interior-point method.

Each system solves [G, A', J'; A, 0, 0; J, 0, -T] (x, y, w) = (g, p, h) for a positive definite G:
`FlowSystem` for the flow equations of a table, with one small block of G a state, and
`SimplexSystem` for the weights of a mixture, with a dense G.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from occupax.exact.objective import Curvature, Objective

MAX_DENSE_STATES = 4000
"""Largest number of states of a dense Cholesky factorisation."""
SMALL_STATES = 250
"""Number of states up to which a dense factorisation is faster than any sparse one."""
MAX_PROFILE = 0.15
"""Largest entries of a band matrix over those of a dense one at which sparse factors are used."""
MAX_GLOBAL_FEATURES = 512
ROUNDING = 1e-14
"""Relative increase of the diagonal for components with the same occupancy."""
REGULARISATION = 1e-15
"""Relative increase of the diagonal that keeps a factorisation from breaking down."""

Vector = Float[np.ndarray, " n"]
Rows = Float[np.ndarray, "k n"]
States = Float[np.ndarray, " S"]
Excess = Float[np.ndarray, " K"]
Limits = Float[np.ndarray, "K n"]


class DualPoint(NamedTuple):
    """Occupancy of the features and multipliers of the constraints."""

    features: Float[np.ndarray, " d"]
    multipliers: Float[np.ndarray, " K"]


class NewtonStep(NamedTuple):
    """Solution of a system."""

    weights: Vector
    """Step of the variables, x."""
    values: Vector
    """Step of the multipliers of the equations, y."""
    multipliers: Vector
    """Step of the multipliers of the constraints, w."""


@runtime_checkable
class NewtonSystem(Protocol):
    """Linear system of one Newton step."""

    def factorise(self, barrier: Vector, point: DualPoint, limits: Limits, slack: Excess) -> None:
        """Factorise the system of a point.

        Args:
            barrier: diagonal of G that belongs to the bounds of the variables.
            point: where the second derivatives of the Lagrangian are taken.
            limits: J, derivatives of the constraints with respect to the variables.
            slack: diagonal of T.
        """
        ...

    def solve(self, gradient: Vector, residual: States, excess: Excess) -> NewtonStep:
        """Solve the factorised system for one right-hand side (g, p, h)."""
        ...


class SimplexSystem:
    """System of the weights of a mixture: A is one row of ones.

    Args:
        objective: utility and constraints.
        features: occupancy of each component.
    """

    def __init__(self, objective: Objective, features: Float[np.ndarray, "k d"]):
        self._objective = objective
        self._features = features
        self._factors: Any = None
        self._border: Any = None
        self._rows = np.ones((1, len(features)))
        self._corner: Any = None

    def factorise(self, barrier: Vector, point: DualPoint, limits: Limits, slack: Excess) -> None:
        """Factorise the system of a point."""
        matrix = self._objective.projected_curvature(self._features, *point)
        barrier = barrier + ROUNDING * (1.0 + float(np.abs(matrix).max()))
        matrix[np.diag_indices_from(matrix)] += barrier
        self._rows = np.concatenate([np.ones((1, len(barrier))), limits])
        self._factors = linalg.cho_factor(matrix, lower=True, check_finite=False)
        self._border = linalg.cho_solve(self._factors, self._rows.T, check_finite=False)
        corner = self._rows @ self._border
        corner[np.diag_indices_from(corner)] += np.concatenate([[0.0], slack])
        self._corner = corner

    def solve(self, gradient: Vector, residual: States, excess: Excess) -> NewtonStep:
        """Solve the factorised system for one right-hand side."""
        inner = linalg.cho_solve(self._factors, gradient, check_finite=False)
        right = self._rows @ inner - np.concatenate([residual, excess])
        multipliers = np.linalg.solve(self._corner, right)
        return NewtonStep(inner - self._border @ multipliers, multipliers[:1], multipliers[1:])


class FlowSystem:
    """System of the occupancies of a table: A holds the flow equations.

    G is a diagonal matrix, plus a matrix of rank one in each state, plus a matrix of low rank for
    the features that several states share. The equations of the values have the pattern of P'P.

    Args:
        transition: discounted probabilities [S * A, S].
        features: features of each pair of state and action [S * A, d].
        objective: utility and constraints.
    """

    def __init__(
        self, transition: sparse.csr_array, features: sparse.csr_array, objective: Objective
    ):
        n, S = transition.shape
        self._objective = objective
        self.shape = (S, n // S)
        self._transition = transition
        self._onward = sparse.csr_array(transition.T)
        self._read_features(features, objective.dense_features)
        supports = _Supports(transition, self.shape)
        self._columns = supports.columns
        self._matrix = choose_matrix(supports)

    @staticmethod
    def fits(
        transition: sparse.csr_array, features: sparse.csr_array, objective: Objective
    ) -> bool:
        """Return whether the factors of a table can be computed in reasonable time."""
        n, S = transition.shape
        if not objective.has_curvature:
            return False
        if len(_global_columns(features, objective.dense_features, n // S)) > MAX_GLOBAL_FEATURES:
            return False
        if S <= MAX_DENSE_STATES:
            return True
        return _profile(transition, (S, n // S)) <= MAX_PROFILE

    def factorise(self, barrier: Vector, point: DualPoint, limits: Limits, slack: Excess) -> None:
        """Factorise the system of a point."""
        S, A = self.shape
        curvature = self._objective.curvature(*point)
        diagonal = curvature.diagonal
        pairs = barrier + self._pair_features @ diagonal
        self._inverse = (1.0 / pairs).reshape(S, A)
        self._bend = self._state_owner @ diagonal
        weighted = self._inverse * self._state_weights
        self._total = (weighted * self._state_weights).sum(1)
        self._matrix.factorise(self._blocks(weighted))
        self._border = np.concatenate([limits, self._shared_rows(curvature)])
        self._slack = np.concatenate([slack, np.ones(len(self._border) - len(slack))])
        self._num_limits = len(limits)
        if len(self._border):
            solutions = [self._base_solve(row, np.zeros(S)) for row in self._border]
            self._border_weights = np.array([weights for weights, _ in solutions])
            self._border_values = np.array([values for _, values in solutions])
            corner = sparse.csr_array(self._border) @ self._border_weights.T
            self._corner = corner + np.diag(self._slack)

    def solve(self, gradient: Vector, residual: States, excess: Excess) -> NewtonStep:
        """Solve the factorised system for one right-hand side."""
        weights, values = self._base_solve(gradient, residual)
        if not len(self._border):
            return NewtonStep(weights, values, np.zeros(0))
        shared = len(self._border) - self._num_limits
        right = self._border @ weights - np.concatenate([excess, np.zeros(shared)])
        multipliers = np.linalg.solve(self._corner, right)
        weights = weights - multipliers @ self._border_weights
        values = values - multipliers @ self._border_values
        return NewtonStep(weights, values, multipliers[: self._num_limits])

    def balance(self, weights: Vector) -> Float[np.ndarray, " S"]:
        """Return A x: what leaves each state minus the discounted flow that arrives."""
        return weights.reshape(self.shape).sum(1) - self._onward @ weights

    def prices(self, values: Float[np.ndarray, " S"]) -> Vector:
        """Return A' y: the value of each state minus the discounted value of the next one."""
        return np.repeat(values, self.shape[1]) - self._transition @ values

    def _base_solve(
        self, gradient: Vector, residual: Float[np.ndarray, " S"]
    ) -> tuple[Vector, Float[np.ndarray, " S"]]:
        right = self.balance(self._apply_inverse(gradient)) - residual
        values = self._matrix.solve(right)
        return self._apply_inverse(gradient - self.prices(values)), values

    def _apply_inverse(self, vector: Vector) -> Vector:
        """Multiply by the inverse of the blocks of G, without cancellation in the rank-one part."""
        table = vector.reshape(self.shape)
        weighted = self._inverse * self._state_weights
        total = np.where(self._total > 0, self._total, 1.0)
        mean = (weighted * table).sum(1) / total
        shrunk = mean / (1.0 + self._bend * self._total)
        centred = self._inverse * (table - self._state_weights * mean[:, None])
        return (centred + weighted * shrunk[:, None]).ravel()

    def _blocks(self, weighted: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S k k"]:
        """Return A_s G_s^-1 A_s' of each state on its support."""
        columns = self._columns
        S, A, k = columns.shape
        total = np.where(self._total > 0, self._total, 1.0)
        mean = np.einsum("sa,sak->sk", weighted, columns) / total[:, None]
        rows = np.empty((S, A + 1, k))
        centred = columns - self._state_weights[:, :, None] * mean[:, None]
        rows[:, :A] = np.sqrt(self._inverse)[:, :, None] * centred
        remaining = self._total / (1.0 + self._bend * self._total)
        rows[:, A] = np.sqrt(remaining)[:, None] * mean
        return rows.transpose(0, 2, 1) @ rows

    def _read_features(self, features: sparse.csr_array, dense: Int[np.ndarray, " k"]) -> None:
        """Sort the features into those of one pair, of one state and of several states."""
        S, A = self.shape
        counts = np.diff(sparse.csc_array(features).indptr)
        shared = _global_columns(features, dense, A)
        is_shared = np.zeros(features.shape[1], bool)
        is_shared[shared] = True
        self._shared = np.flatnonzero(is_shared)
        self._shared_features = sparse.csr_array(features[:, self._shared].T)
        is_pair = (counts == 1) & ~is_shared
        self._pair_features = sparse.csr_array(
            features.power(2) @ sparse.diags_array(is_pair.astype(float))
        )
        is_state = (counts > 1) & ~is_shared
        local = sparse.csr_array(features @ sparse.diags_array(is_state.astype(float)))
        self._state_weights = np.asarray(local.sum(1)).reshape(S, A)
        owned = sparse.coo_array(local)
        owner = sparse.csr_array(
            (np.ones(owned.nnz), (owned.coords[0] // A, owned.coords[1])),
            shape=(S, features.shape[1]),
        )
        owner.data[:] = 1.0
        self._state_owner = owner

    def _shared_rows(self, curvature: Curvature) -> Rows:
        """Return the rows U' of the low-rank part U U' of G."""
        diagonal = curvature.diagonal[self._shared]
        used = np.flatnonzero(diagonal > 0)
        rows = [np.sqrt(diagonal[used])[:, None] * self._shared_features[used].toarray()]
        position = np.searchsorted(self._shared, [start for start, _ in curvature.blocks])
        for (start, block), first in zip(curvature.blocks, position.tolist(), strict=True):
            last = int(np.searchsorted(self._shared, start + len(block)))
            entries = self._shared[first:last] - start
            scales, vectors = np.linalg.eigh(block)
            is_large = scales > 1e-14 * max(scales[-1], 1e-300)
            factor = np.sqrt(scales[is_large])[:, None] * vectors[entries][:, is_large].T
            rows.append(factor @ self._shared_features[first:last].toarray())
        return np.concatenate(rows)


def _global_columns(
    features: sparse.csr_array, dense: Int[np.ndarray, " k"], A: int
) -> Int[np.ndarray, " g"]:
    """Return the features that more than one state has, or of which a state has several."""
    columns = sparse.csc_array(features)
    counts = np.diff(columns.indptr)
    states = columns.indices // A
    starts = columns.indptr[:-1]
    occupied = np.flatnonzero(counts > 0)
    lowest = np.minimum.reduceat(states, starts[occupied]) if occupied.size else states[:0]
    highest = np.maximum.reduceat(states, starts[occupied]) if occupied.size else states[:0]
    is_global = np.zeros(features.shape[1], bool)
    is_global[occupied] = lowest != highest
    first = np.zeros(features.shape[1], int)
    first[occupied] = lowest
    local = np.flatnonzero((counts > 1) & ~is_global)
    seconds = np.ones(local.size, bool)
    seconds[np.unique(first[local], return_index=True)[1]] = False
    is_global[local[seconds]] = True
    is_global[dense] = True
    return np.flatnonzero(is_global)


class _Supports:
    """Indices and coefficients of the flow equations, padded to one length for every state.

    The indices of a state are the next states of its actions and the state itself.
    """

    def __init__(self, transition: sparse.csr_array, shape: tuple[int, int]):
        S, A = shape
        coordinates = sparse.coo_array(transition)
        pairs, targets = coordinates.coords
        states = pairs // A
        keys = np.concatenate([states * S + targets, np.arange(S) * (S + 1)])
        unique, inverse = np.unique(keys, return_inverse=True)
        owner = unique // S
        starts = np.searchsorted(owner, np.arange(S))
        position = np.arange(unique.size) - starts[owner]
        k = int(position.max()) + 1
        self.targets = np.full((S, k), -1)
        self.targets[owner, position] = unique % S
        self.columns = np.zeros((S, A, k))
        places = position[inverse]
        own = places[len(pairs) :]
        self.columns[np.arange(S), :, own] = 1.0
        np.add.at(self.columns, (states, pairs % A, places[: len(pairs)]), -coordinates.data)

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.targets)


def _profile(transition: sparse.csr_array, shape: tuple[int, int]) -> float:
    """Return the entries of a band matrix of P'P, relative to those of a dense one."""
    S, A = shape
    union = sparse.csr_array(
        (np.ones(transition.nnz), transition.indices, transition.indptr[::A]), shape=(S, S)
    )
    pattern = sparse.csr_array(union + sparse.eye_array(S))
    if (np.diff(pattern.indptr).astype(float) ** 2).sum() > MAX_PROFILE * S * S:
        return 1.0
    graph = sparse.csr_array(pattern.T @ pattern)
    order = csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True)
    rank = np.empty(S, int)
    rank[order] = np.arange(S)
    rows = np.repeat(np.arange(S), np.diff(graph.indptr))
    reach = np.zeros(S, int)
    np.maximum.at(reach, rows, rank[rows] - rank[graph.indices])
    return 2.0 * float(reach.sum()) / S**2


def choose_matrix(supports: "_Supports") -> "DenseMatrix | SparseMatrix":
    """Return the factorisation that suits the pattern of a table."""
    S = supports.num_states
    entries = S * supports.targets.shape[1] ** 2
    if S <= SMALL_STATES or (entries > 0.1 * S * S and S <= MAX_DENSE_STATES):
        return DenseMatrix(supports)
    return SparseMatrix(supports)


class DenseMatrix:
    """Sum of small blocks as a dense matrix, factorised by Cholesky's method."""

    def __init__(self, supports: _Supports):
        S = supports.num_states
        targets = np.where(supports.targets < 0, 0, supports.targets)
        self._size = S
        self._index = (targets[:, :, None] * S + targets[:, None, :]).ravel()
        self._factors: Any = None

    def factorise(self, blocks: Float[np.ndarray, "S k k"]) -> None:
        """Add the blocks and factorise the sum."""
        S = self._size
        matrix = np.bincount(self._index, blocks.ravel(), S * S).reshape(S, S)
        diagonal = np.diag_indices(S)
        matrix[diagonal] *= 1.0 + REGULARISATION
        self._factors = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, right: Vector) -> Vector:
        """Solve the factorised system."""
        return linalg.cho_solve(self._factors, right, check_finite=False)


class SparseMatrix:
    """Sum of small blocks as a sparse matrix, factorised by QDLDL or SuperLU."""

    def __init__(self, supports: _Supports):
        S = supports.num_states
        targets = supports.targets
        rows = np.broadcast_to(targets[:, :, None], (*targets.shape, targets.shape[1]))
        columns = np.broadcast_to(targets[:, None, :], rows.shape)
        self._used = ((rows >= 0) & (columns >= rows)).ravel()
        keys = columns.ravel()[self._used] * S + rows.ravel()[self._used]
        unique, self._index = np.unique(keys, return_inverse=True)
        indptr = np.searchsorted(unique // S, np.arange(S + 1))
        self._indices = unique % S
        self._indptr = indptr
        self._diagonal = np.searchsorted(unique, np.arange(S) * (S + 1))
        self._size = S
        self._factors: Any = None

    def factorise(self, blocks: Float[np.ndarray, "S k k"]) -> None:
        """Add the blocks and factorise the sum."""
        data = np.bincount(self._index, blocks.ravel()[self._used], len(self._indices))
        data[self._diagonal] *= 1.0 + REGULARISATION
        upper = sparse.csc_matrix(
            (data, self._indices, self._indptr), shape=(self._size, self._size)
        )
        try:
            import qdldl
        except ImportError:
            whole = sparse.csc_matrix(upper + sparse.triu(upper, 1).T)
            options = {"SymmetricMode": True}
            self._factors = sparse_linalg.splu(
                whole, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
            )
            return
        if self._factors is None:
            self._factors = qdldl.Solver(upper, upper=True)
        else:
            self._factors.update(upper, upper=True)

    def solve(self, right: Vector) -> Vector:
        """Solve the factorised system."""
        return self._factors.solve(right)

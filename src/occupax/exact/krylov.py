"""Krylov methods for (I - gamma P_pi) x = b, given as a matrix-vector product."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.sparse import linalg

BREAKDOWN = 0.5
"""Relative residual above which BiCGStab counts as broken down."""
RESTART = 30
"""Number of vectors that GMRES keeps."""

StateArray = Float[np.ndarray, " S"]
Product = Callable[[StateArray], StateArray]


def solve_krylov(
    multiply: Product, right: StateArray, accuracy: float, max_steps: int
) -> StateArray:
    """Return an approximate solution x of multiply(x) = right.

    BiCGStab is faster, and GMRES takes over where BiCGStab breaks down.

    Args:
        multiply: matrix-vector product.
        right: right-hand side.
        accuracy: Euclidean norm of the residual relative to the right-hand side.
        max_steps: largest number of products of each method.

    Returns:
        The solution.
    """
    norm = _norm(right)
    solution, residual = _bicgstab(multiply, right, accuracy * norm, max_steps)
    if residual <= max(accuracy, BREAKDOWN) * norm:
        return solution
    return solve_gmres(multiply, right, solution, accuracy, max_steps)


def solve_gmres(
    multiply: Product, right: StateArray, start: StateArray, accuracy: float, max_steps: int
) -> StateArray:
    """Return the solution by GMRES. Arguments as for `solve_krylov`, and an initial solution."""
    S = right.size
    system = linalg.LinearOperator((S, S), matvec=multiply, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    cycles = -(-max_steps // RESTART)
    solution, _ = linalg.gmres(
        system, right, x0=start, rtol=accuracy, atol=0.0, restart=RESTART, maxiter=cycles
    )
    return solution


def _bicgstab(
    multiply: Product, right: StateArray, target: float, max_steps: int
) -> tuple[StateArray, float]:
    """Return the best iterate of BiCGStab from `right`, and the norm of its residual.

    `right` is the first term of the Neumann series of the solution.
    """
    solution = right.copy()
    residual = right - multiply(solution)
    shadow = residual.copy()
    direction = residual.copy()
    product = _inner(shadow, residual)
    best = solution
    best_norm = _norm(residual)
    for _ in range(max_steps // 2):
        if best_norm <= target:
            break
        moved = multiply(direction)
        curvature = _inner(shadow, moved)
        if curvature == 0 or product == 0:
            break
        length = product / curvature
        halfway = residual - length * moved
        image = multiply(halfway)
        size = _inner(image, image)
        if size == 0:
            break
        omega = _inner(image, halfway) / size
        solution = solution + length * direction + omega * halfway
        residual = halfway - omega * image
        norm = _norm(residual)
        if not np.isfinite(norm):
            break
        if norm < best_norm:
            best = solution
            best_norm = norm
        next_product = _inner(shadow, residual)
        if omega == 0:
            break
        momentum = next_product / product * length / omega
        direction = residual + momentum * (direction - omega * moved)
        product = next_product
    return best, best_norm


def _inner(one: StateArray, other: StateArray) -> float:
    """Return the inner product without BLAS, whose threads wait for each other on busy cores."""
    return float(np.einsum("i,i", one, other))


def _norm(vector: StateArray) -> float:
    return _inner(vector, vector) ** 0.5

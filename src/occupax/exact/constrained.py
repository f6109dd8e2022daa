"""The exact optimum under constraints, by the method of multipliers around Frank-Wolfe."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.constraints import Constraint, excesses, lagrangian
from occupax.exact import evaluation
from occupax.exact.dynamics import Dynamics
from occupax.features import Feature
from occupax.problem import Problem
from occupax.utilities.base import Smoothness, Sum, Utility

FEASIBLE = 1e-7
"""An excess below this share of the scale of a limit is rounding."""
DECIDED = 1e-8
"""How precisely the smallest violation is found, squared and relative to the scale of the
limits."""
ROUNDS, MOST_ITERATIONS = 60, 100
"""Rounds of the method of multipliers, and of Frank-Wolfe in each, which begins with the policies
that the last one mixed."""
STIFFNESS = 10.0
"""The penalty of an excess as large as the scale of its limit, relative to the range of the
utility."""

Excesses = Float[np.ndarray, " K"]
Features = Float[np.ndarray, " d"]
Timed = Float[np.ndarray, "*H S A"]


class Augmented(Utility):
    """Augmented Lagrangian, F - sum_k (max(0, mu_k + rho_k e_k)^2 - mu_k^2) / (2 rho_k).

    e_k is the excess of constraint k.

    Its gradient at u is that of the Lagrangian with the multipliers max(0, mu_k + rho_k e_k), and
    it is concave. With a weight of 0 for F and multipliers of 0 it is the violation, negated and
    squared.
    """

    utility: Sum
    constraints: tuple[Constraint, ...]
    multipliers: Float[Array, " K"] | Excesses
    penalties: Float[Array, " K"] | Excesses
    weight: float

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """F, without what the excesses cost."""
        cost = (self.shifted(occupancy) ** 2 - self.multipliers**2) / (2 * self.penalties)
        return self.weight * self.utility.value(occupancy) - jnp.sum(cost)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient of the Lagrangian with shifted multipliers."""
        at = lagrangian(self.utility, self.constraints, self.shifted(occupancy), self.weight)
        return at.gradient(occupancy)

    def shifted(self, occupancy: Float[Array, " d"]) -> Float[Array, " K"]:
        """The multipliers that the excesses of an occupancy lead to."""
        found = excesses(self.utility, self.constraints, occupancy)
        return jnp.maximum(self.multipliers + self.penalties * found, 0.0)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """That of the utility."""
        return self.utility.domain(occupancy)

    @property
    def concave(self) -> bool:
        """Whether F is: excesses are convex."""
        return self.utility.concave

    @property
    def smoothness(self) -> Smoothness:
        """Not known; it is not linear."""
        return Smoothness(np.inf, np.inf, np.inf)

    def features(self) -> Feature:
        """Those of the utility."""
        return self.utility.features()


def maximise(
    problem: Problem,
    model: Dynamics,
    start: Timed,
    multipliers: Excesses | None,
    tolerance: float,
    share: float,
    max_iterations: int,
) -> tuple[Timed, Excesses]:
    """Maximise the utility over all policies that satisfy the constraints, from a start.

    Each round maximises the augmented Lagrangian, and takes the multipliers that its optimum leads
    to. The gap to reach is the tolerance, or a share of the way from the start to what the bound
    allows.

    Returns:
        The occupancy, of each step if timed, and the multipliers.
    """
    from occupax.exact.optimum import Mixture, frank_wolfe, only

    utility, K = problem.utility, len(problem.constraints)
    assert isinstance(utility, Sum)  # noqa: S101
    found = only(model, start)
    excess = evaluation.excesses_of(problem, found.image)
    scales = _scales(problem, excess)
    unlimited = evaluation.certify(problem, model, found.image, np.zeros(K))
    reach = unlimited.gap or 1.0
    tolerance = max(tolerance, share * max(reach, 1e-3 * (1 + abs(unlimited.value))))

    def solved(features: Features, multipliers: Excesses) -> bool:
        excess = evaluation.excesses_of(problem, features)
        kept = bool((excess <= FEASIBLE * scales).all())
        return kept and evaluation.certify(problem, model, features, multipliers).gap <= tolerance

    if multipliers is not None and solved(found.image, multipliers):
        return found.mass, multipliers

    def ascend(augmented: Augmented, found: Mixture, accuracy: float) -> Mixture:
        most = min(max_iterations, MOST_ITERATIONS)
        return frank_wolfe(problem.with_utility(augmented), model, found, accuracy, 0.0, most)

    if (excess > 0).any():
        violation = Augmented(utility, problem.constraints, np.zeros(K), 1 / scales**2, 0.0)
        found = ascend(violation, found, DECIDED)
        left = evaluation.certify(problem.with_utility(violation), model, found.image)
        if (
            left.upper_bound < 0
            and (evaluation.excesses_of(problem, found.image) > FEASIBLE * scales).any()
        ):
            raise ValueError(_said(problem, evaluation.excesses_of(problem, found.image)))

    multipliers = np.zeros(K) if multipliers is None else multipliers
    penalties, before = STIFFNESS * reach / scales**2, np.inf
    for number in range(ROUNDS):
        augmented = Augmented(utility, problem.constraints, multipliers, penalties, 1.0)
        found = ascend(augmented, found, max(0.1 * tolerance, 0.01 * 0.1**number * reach))
        excess = evaluation.excesses_of(problem, found.image)
        multipliers = np.maximum(multipliers + penalties * excess, 0.0)
        if solved(found.image, multipliers):
            break
        # complementarity counts, too: a limit with slack and a multiplier is not solved yet
        residual = float(
            np.abs(np.where(multipliers > 0, excess, np.maximum(excess, 0.0)) / scales).max()
        )
        penalties, before = (penalties if residual <= 0.25 * before else 4 * penalties), residual
    return found.mass, multipliers


def _scales(problem: Problem, first: Excesses) -> Excesses:
    """Return the magnitude of each limit, or of the excess of the start."""
    sizes = np.maximum(
        np.abs([constraint.limit for constraint in problem.constraints]), np.abs(first)
    )
    return np.where(sizes > 0, sizes, 1.0)


def _said(problem: Problem, left: Excesses) -> str:
    pairs = zip(problem.constraints, left, strict=True)
    limits = ", ".join(
        f"{one} violated by {excess:.4g}" if excess > 0 else f"{one} kept" for one, excess in pairs
    )
    return (
        f"no policy satisfies the constraints; the smallest violation that is possible: {limits}."
    )

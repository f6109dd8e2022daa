"""Frank-Wolfe for problems with constraints: first a feasible mixture, then the best one."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.constraints import Constraint, excesses, lagrangian
from occupax.exact import frank_wolfe
from occupax.exact.frank_wolfe import Mixture
from occupax.exact.search import Search, SearchEnded
from occupax.features import Feature
from occupax.utilities.base import Smoothness, Sum, Utility

MARGINS = (1e-2, 1e-4, 1e-6, 0.0)
"""Margins, relative to the scales of the constraints, with which a mixture may satisfy them."""
DECIDED = 1e-12
"""Squared relative violation below which constraints count as feasible."""

PRECISION = 1e-4
"""Gap of the least violation, squared, relative to its size."""

Excesses = Float[np.ndarray, " K"]


class Violation(Utility):
    """-sum_k max(0, e_k / scale_k + margin)^2, with the violation e_k of constraint k."""

    utility: Sum
    constraints: tuple[Constraint, ...]
    scales: Excesses
    margin: float

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the negative sum of squares."""
        return -jnp.sum(self._positive_parts(occupancy) ** 2)

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient."""
        multipliers = 2 * self._positive_parts(occupancy) / self.scales
        weighted = lagrangian(self.utility, self.constraints, multipliers, 0.0)
        return weighted.gradient(occupancy)

    def _positive_parts(self, occupancy: Float[Array, " d"]) -> Float[Array, " K"]:
        violations = excesses(self.utility, self.constraints, occupancy)
        return jnp.maximum(violations / self.scales + self.margin, 0.0)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the nearest point of the domain of the utility."""
        return self.utility.domain(occupancy)

    @property
    def concave(self) -> bool:
        """Whether the utility is concave: True, because violations are convex."""
        return True

    @property
    def smoothness(self) -> Smoothness:
        """Unknown constants of a function that is not linear."""
        return Smoothness(np.inf, np.inf, np.inf)

    def features(self) -> Feature:
        """Return the features of the utility."""
        return self.utility.features()


def maximise(search: Search) -> None:
    """Maximise the utility by Frank-Wolfe, from a mixture that satisfies the constraints."""
    if not search.problem.constraints:
        frank_wolfe.maximise(search)
        return
    frank_wolfe.maximise(search, feasible_mixture(search))


def feasible_mixture(search: Search) -> Mixture:
    """Return a mixture that satisfies all constraints, with a margin if there is one.

    Raises:
        ValueError: if there is none.
    """
    mixture = frank_wolfe.initial_mixture(search)
    for margin in MARGINS:
        excess = search.objective.excesses(mixture.features)
        if (excess < 0).all():
            break
        mixture = _least_violation(search, mixture, margin)
    return mixture


def _least_violation(search: Search, mixture: Mixture, margin: float) -> Mixture:
    """Return the mixture of least violation, or the first one that satisfies the constraints.

    Raises:
        ValueError: if the constraints are infeasible without a margin.
    """
    problem = search.problem
    utility: Any = problem.utility
    violation = Violation(utility, problem.constraints, search.scales, margin)
    relaxed = eqx.tree_at(lambda tree: (tree.utility, tree.constraints), problem, (violation, ()))
    remaining = None
    if search.time_limit is not None:
        remaining = max(search.time_limit - search.elapsed, 0.0)
    inner = Search(relaxed, search.model, DECIDED, time_limit=remaining)
    latest = mixture

    def is_enough(current: Mixture) -> bool:
        nonlocal latest
        latest = current
        if (search.objective.excesses(current.features) < 0).all():
            return True
        bound = inner.bound
        if bound is None or bound.value >= -DECIDED:
            return False
        return margin > 0 or inner.gap <= PRECISION * -bound.value

    start = mixture._replace(multipliers=np.zeros(0))
    try:
        latest = frank_wolfe.maximise(inner, start, is_enough)
    except SearchEnded as ended:
        if ended.status == "time limit":
            raise
    bound = inner.bound
    excess = search.objective.excesses(latest.features)
    if margin == 0 and bound is not None and bound.value < -DECIDED and (excess > 0).any():
        raise ValueError(_infeasible(search, excess))
    return latest._replace(multipliers=mixture.multipliers)


def _infeasible(search: Search, excess: Excesses) -> str:
    phrases: list[str] = []
    for constraint, violation in zip(search.problem.constraints, excess, strict=True):
        state = f"violated by {violation:.4g}" if violation > 0 else "satisfied"
        phrases.append(f"{constraint} {state}")
    return (
        f"no policy satisfies the constraints; smallest possible violation: {', '.join(phrases)}."
    )

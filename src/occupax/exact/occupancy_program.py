"""Interior-point method over the occupancies of a table with an infinite horizon."""

import numpy as np
from scipy import sparse

from occupax.exact.dynamics import Dynamics
from occupax.exact.interior_point import Equations, Iterate, Residuals, interior_point
from occupax.exact.newton import FlowSystem
from occupax.exact.objective import Objective
from occupax.exact.search import Search

SWEEPS = 200
"""Steps of the uniform policy that the first occupancy adds up."""
FLOOR = 0.1
"""Smallest entry of the first occupancy, relative to the mean."""
EXHAUSTED = 1e-6
"""Complementarity relative to the target gap below which rounding hides all progress."""
EARLY = 3.0
"""Multiple of the target gap at which the policy of an iterate is evaluated."""


def fits(model: Dynamics, objective: Objective) -> bool:
    """Return whether the Newton systems of a problem can be solved."""
    if model.horizon is not None:
        return False
    return FlowSystem.fits(model.transition, model.features, objective)


def maximise(search: Search) -> None:
    """Improve the policy and the bound of a search until the method ends or stalls."""
    model = search.model
    objective = search.objective
    discounted = sparse.csr_array(model.discount * model.transition)
    system = FlowSystem(discounted, model.features, objective)
    transposed = sparse.csr_array(model.features.T)
    equations = Equations(
        system.balance,
        system.prices,
        model.initial,
        model.features,
        transposed,
        np.ones(model.shape[0]),
    )
    smallest = np.inf

    def report(iterate: Iterate, residuals: Residuals) -> bool:
        nonlocal smallest
        mass = iterate.weights.reshape(model.shape)
        search.pending = mass
        bound = search.propose_bound(residuals.features, iterate.values, iterate.multipliers)
        gap = bound - objective.value(residuals.features)
        missing = np.abs(residuals.primal).sum() * np.abs(iterate.values).max()
        gap += float(missing)
        is_early = not search.problem.constraints and gap > EARLY * search.target
        if not is_early and gap < 0.5 * smallest:
            search.propose_pending()
            smallest = gap
        search.check()
        total = iterate.complementarity * iterate.weights.size
        return total < EXHAUSTED * search.target

    interior_point(objective, equations, system, _start(model), report)
    search.propose_pending()


def _start(model: Dynamics) -> np.ndarray:
    """Return the occupancy of some steps of the uniform policy, nowhere close to zero."""
    S, A = model.shape
    matrix = sparse.csr_array(model.under(np.full((S, A), 1 / A)).T)
    flow = model.initial.copy()
    arriving = model.initial
    for _ in range(SWEEPS):
        arriving = model.discount * (matrix @ arriving)
        flow += arriving
    floor = FLOOR * float(flow.mean())
    return np.repeat(np.maximum(flow, floor) / A, A)

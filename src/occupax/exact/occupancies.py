"""Occupancies of policies, with a bound of what rounding and iterative solvers leave."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse import linalg

from occupax.exact.dynamics import Dynamics

ACCURACY = 1e-13
"""Residual of an occupancy, relative to its mass, at which it counts as solved."""
MAX_CORRECTIONS = 4

TimedArray = Float[np.ndarray, "*H S A"]


class PolicyVisits(NamedTuple):
    """Occupancy of a policy."""

    mass: TimedArray
    """Discounted visits of each pair, for a horizon those of each step."""
    features: Float[np.ndarray, " d"]
    """Occupancy of the features."""
    residual: float
    """Bound of the sum of the absolute errors of the mass."""


def visits_of(model: Dynamics, policy: TimedArray, guess: TimedArray | None = None) -> PolicyVisits:
    """Return the occupancy of a policy.

    Args:
        model: dynamics of the problem.
        policy: action probabilities [S, A], or for a horizon [H, S, A].
        guess: approximate occupancy, from which the solver of an infinite horizon starts.
    """
    if model.horizon is not None:
        mass = timed_mass(model, policy)
        return PolicyVisits(mass, features_of(model, mass), 0.0)
    transposed = sparse.csr_array(model.under(policy).T)
    flow = None
    if guess is not None:
        flow = guess.sum(1)
    flow, residual = solve_flow(model, transposed, flow)
    mass = flow[:, None] * policy
    return PolicyVisits(mass, features_of(model, mass), residual)


def solve_flow(
    model: Dynamics, transposed: sparse.csr_array, flow: Float[np.ndarray, " S"] | None
) -> tuple[Float[np.ndarray, " S"], float]:
    """Solve (I - gamma P_pi') d = xi from a start. Return d and a bound of its error."""
    scale = 1.0 / (1.0 - model.discount)
    mass = float(model.initial.sum()) * scale
    error = np.inf
    if flow is None:
        flow = model.discounted_solve(transposed, model.initial)
    for _ in range(MAX_CORRECTIONS):
        flow = np.maximum(flow, 0.0)
        missing = model.initial + model.discount * (transposed @ flow) - flow
        error = float(np.abs(missing).sum()) * scale
        if error <= ACCURACY * mass * np.sqrt(flow.size) * scale:
            break
        flow = flow + _correction(model, transposed, missing)
    return flow, error


def _correction(
    model: Dynamics, transposed: sparse.csr_array, missing: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " S"]:
    if missing.size <= 500:
        return model.discounted_solve(transposed, missing)
    identity = sparse.eye_array(missing.size)
    system = sparse.csr_array(identity - model.discount * transposed)
    correction, failed = linalg.gmres(system, missing, rtol=1e-6, atol=0.0, restart=40, maxiter=4)
    if failed:
        return linalg.splu(system.tocsc()).solve(missing)
    return correction


def timed_mass(
    model: Dynamics, policy: Float[np.ndarray, "*time S A"]
) -> Float[np.ndarray, "H S A"]:
    """Return the discounted visits of each step of a horizon."""
    horizon = model.horizon or 0
    tables = np.broadcast_to(policy, (horizon, *model.shape))
    mass = np.empty((horizon, *model.shape))
    onward = sparse.csr_array(model.transition.T)
    flow = model.initial
    for t, table in enumerate(tables):
        mass[t] = flow[:, None] * table
        flow = model.discount * (onward @ mass[t].ravel())
    return mass


def features_of(model: Dynamics, mass: TimedArray) -> Float[np.ndarray, " d"]:
    """Return the occupancy of the features."""
    total = mass.reshape(-1, model.transition.shape[0]).sum(0)
    return model.features.T @ total


def policy_of(mass: TimedArray) -> TimedArray:
    """Return the policy of an occupancy, uniform in states that are never visited."""
    mass = np.maximum(mass, 0.0)
    total = mass.sum(-1, keepdims=True)
    uniform = np.full_like(mass, 1 / mass.shape[-1])
    return np.divide(mass, total, out=uniform, where=total > 0)


def uniform_policy(model: Dynamics) -> TimedArray:
    """Return the uniform policy, for a horizon that of each step."""
    times = () if model.horizon is None else (model.horizon,)
    return np.full((*times, *model.shape), 1 / model.shape[1])

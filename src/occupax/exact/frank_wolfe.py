"""Fully corrective Frank-Wolfe: the best mixture of best responses, with constraints.

Each iteration adds the occupancy of the best policy for the quasi-reward, and maximises the utility
over the mixtures of all occupancies so far by the interior-point method. Constraints belong to the
mixture; their multipliers price the next policy (column generation).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.exact.interior_point import Equations, Iterate, Residuals, interior_point
from occupax.exact.newton import SimplexSystem
from occupax.exact.objective import Objective
from occupax.exact.occupancies import uniform_policy
from occupax.exact.returns import best_response
from occupax.exact.search import Search

PRECISION = 0.02
"""Gap of the best mixture relative to the last gap of the search."""
IDLE_ITERATIONS = 40
"""Iterations without progress of the gap after which the method ends."""
PROGRESS = 0.98
SPREADS = (0.1, 0.01, 1e-3, 1e-4, 1e-6)
EARLY = 2.0
"""Multiple of the target gap at which the policy of a mixture is evaluated."""
NEGLIGIBLE = 0.1
"""Loss of utility, relative to the accuracy, at which components may be left out."""

TimedArray = Float[np.ndarray, "*H S A"]
Images = Float[np.ndarray, "k d"]


class Mixture(NamedTuple):
    """Occupancies with their features and weights."""

    masses: list[TimedArray]
    images: Images
    weights: Float[np.ndarray, " k"]
    multipliers: Float[np.ndarray, " K"]

    @property
    def mass(self) -> TimedArray:
        """Occupancy of the mixture."""
        total = np.zeros_like(self.masses[0])
        for weight, mass in zip(self.weights, self.masses, strict=True):
            total += weight * mass
        return total

    @property
    def features(self) -> Float[np.ndarray, " d"]:
        """Occupancy of the features of the mixture."""
        return self.weights @ self.images


def maximise(
    search: Search,
    mixture: Mixture | None = None,
    is_enough: Callable[[Mixture], bool] | None = None,
) -> Mixture:
    """Improve the policy and the bound of a search until the method ends or stalls.

    Args:
        search: the search.
        mixture: components to begin with; by default the best policy so far.
        is_enough: whether to end with a mixture before the tolerance is reached.

    Returns:
        The last mixture.
    """
    if mixture is None:
        mixture = initial_mixture(search)
    smallest = np.inf
    idle = 0
    while idle < IDLE_ITERATIONS:
        search.check()
        reward = search.quasi_reward(mixture.features, mixture.multipliers)
        response = best_response(search.model, reward)
        bound = search.propose_bound(mixture.features, response.values, mixture.multipliers)
        gap = bound - search.objective.value(mixture.features)
        search.pending = mixture.mass
        if search.problem.constraints or gap <= EARLY * search.target:
            search.propose_pending()
        if is_enough is not None and is_enough(mixture):
            return mixture
        search.check()
        idle = idle + 1 if gap > PROGRESS * smallest else 0
        smallest = min(gap, smallest)
        corner = search.evaluate(response.policy)
        if search.problem.utility.linear and not search.problem.constraints:
            search.propose(response.policy, corner.visits.mass)
            search.check()
            return mixture
        mixture = _with_component(mixture, corner.visits.mass, corner.visits.features)
        accuracy = max(PRECISION * min(gap, smallest), 0.1 * search.target)
        mixture = best_mixture(search, mixture, accuracy, gap)
    return mixture


def initial_mixture(search: Search) -> Mixture:
    """Return the mixture of the best policy so far, or of the uniform one."""
    best = search.best or search.propose(uniform_policy(search.model))
    multipliers = np.zeros(search.objective.num_constraints)
    visits = best.visits
    return Mixture([visits.mass], visits.features[None], np.ones(1), multipliers)


def _with_component(
    mixture: Mixture, mass: TimedArray, features: Float[np.ndarray, " d"]
) -> Mixture:
    images = np.concatenate([mixture.images, features[None]])
    weights = np.append(mixture.weights, 0.0)
    return Mixture([*mixture.masses, mass], images, weights, mixture.multipliers)


def best_mixture(search: Search, mixture: Mixture, accuracy: float, gap: float) -> Mixture:
    """Maximise the utility over the weights.

    Components whose slope falls short of the best by more than the gap are no part of the optimum.
    They are left out if that costs nothing.
    """
    objective = search.objective
    best = best_weights(objective, mixture.images, mixture.weights, accuracy)
    everything = best.weights / best.weights.sum()
    used = np.flatnonzero(best.prices <= gap)
    if not used.size:
        used = np.arange(everything.size)
    weights = everything[used] / everything[used].sum()
    images = mixture.images[used]
    difference = objective.value(everything @ mixture.images) - objective.value(weights @ images)
    excess = objective.excesses(weights @ images)
    if difference > NEGLIGIBLE * accuracy or (excess > 0).any():
        return mixture._replace(weights=everything, multipliers=best.multipliers)
    masses = [mixture.masses[i] for i in used]
    return Mixture(masses, images, weights, best.multipliers)


def best_weights(
    objective: Objective,
    images: Images,
    start: Float[np.ndarray, " k"],
    accuracy: float,
) -> Iterate:
    """Maximise the utility over the mixtures of some occupancies; return the last iterate."""
    k = len(images)
    equations = Equations(
        lambda weights: np.array([weights.sum()]),
        lambda values: np.repeat(values, k),
        np.ones(1),
        images,
        images.T,
        np.ones(1),
    )
    last: list[Iterate] = []

    def report(iterate: Iterate, residuals: Residuals) -> bool:
        last.append(iterate)
        total = iterate.complementarity * (k + iterate.slack.size)
        wrong = np.abs(residuals.dual).max() + float(np.abs(residuals.excess).sum())
        return total <= accuracy and wrong <= accuracy

    first = _interior_weights(objective, images, start / start.sum())
    interior_point(objective, equations, SimplexSystem(objective, images), first, report)
    return last[-1]


def _interior_weights(
    objective: Objective, images: Images, weights: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " k"]:
    """Return positive weights close to others that satisfy the constraints if those do."""
    for spread in SPREADS:
        mixed = (1 - spread) * weights + spread / len(weights)
        if (objective.excesses(mixed @ images) < 0).all():
            return mixed
    return (1 - SPREADS[0]) * weights + SPREADS[0] / len(weights)

"""How far a policy is from the best possible one."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.exact.dynamics import Dynamics, dynamics, read_probs
from occupax.exact.evaluation import total_occupancy, utility_gradient, utility_value
from occupax.exact.planning import best_response
from occupax.problem import Problem


class Certificate(NamedTuple):
    """A policy's value, and a bound on the value of every policy."""

    value: float
    upper_bound: float
    gap: float
    """upper_bound - value, never negative: no policy is better by more than this."""


def certificate(problem: Problem, probs: Any) -> Certificate:
    """Bound how much better any policy can be than `probs`, a table of action probabilities [S, A].

    For a concave F, F(best) - F(u) <= max over occupancies u' of <grad F(u), u' - u>, which one planning problem with
    the quasi-reward grad F(u) solves. With a horizon, the bound covers policies that depend on time as well.
    """
    model = dynamics(problem)
    refuse_unless_concave(problem)
    lam = total_occupancy(model, read_probs(probs, model))
    return certify(problem, model, model.features.T @ lam.ravel())


def certify(problem: Problem, model: Dynamics, features: Float[np.ndarray, " d"]) -> Certificate:
    """The certificate of a feature occupancy."""
    value = utility_value(problem.utility, features)
    quasi_reward = utility_gradient(problem.utility, features)
    if not np.isfinite(quasi_reward).all():
        raise ValueError(
            f"{type(problem.utility).__name__} has no finite gradient at this occupancy, which gives no bound; "
            "use a utility that is smooth where nothing is visited, such as Entropy(smoothing=1e-6)."
        )
    best = best_response(model, (model.features @ quasi_reward).reshape(model.shape))
    gap = max(best.upper_bound - float(quasi_reward @ features), 0.0)
    return Certificate(value, value + gap, gap)


def refuse_unless_concave(problem: Problem) -> None:
    """Refuse a utility for which the bound does not hold."""
    if not problem.utility.concave:
        raise ValueError(
            f"the utility {type(problem.utility).__name__} is not declared concave, and only for a concave one does "
            "its linearisation bound the optimum; declare it with Custom(function, concave=True) if it is."
        )

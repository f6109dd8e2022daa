"""Utilities of the benchmark problems by name, with random targets, costs and rewards.

Names of functions and classes are part of the fingerprints of problems in `references.json`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import softmax

from occupax import exact, utilities
from occupax.envs.tabular import TabularMDP
from occupax.features import Feature, Grid, State, StateAction, Table, as_feature
from occupax.problem import Problem
from occupax.utilities.base import Utility
from occupax.utilities.sets import Box, Point

Random = np.random.Generator
Time = dict[str, Any]
"""Discount and horizon of a problem."""
SLACK = 0.02
"""Relative half-width of the boxes of constraints."""
DIGITS = 6
"""Number of digits of targets. The last digits of exact occupancies differ between processors."""


class Ratio(eqx.Module):
    """Gain for the cost, <gains, u> / (1 + <costs, u>), a utility that is not concave."""

    gains: Float[np.ndarray, " d"]
    costs: Float[np.ndarray, " d"]

    def __call__(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the ratio at a state-action occupancy."""
        gain = jnp.asarray(self.gains) @ occupancy
        cost = jnp.asarray(self.costs) @ occupancy
        return gain / (1.0 + cost)


def roots(occupancy: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the sum of the square roots of a state occupancy: fair shares for the states."""
    return jnp.sqrt(occupancy + 0.01).sum()


def spread(occupancy: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the entropy of the visits for a discount of 0.99, as a term of a sum."""
    return jax.scipy.special.entr(0.01 * occupancy + 1e-6).sum()


def tabular_utility(name: str, random: Random, env: TabularMDP, time: Time) -> Utility:
    """Return the utility of a problem with a table, with random targets, costs or rewards."""
    match name:
        case "return":
            return utilities.Reward()
        case "log-coverage":
            return utilities.LogCoverage()
        case "entropy":
            return utilities.Entropy()
        case "sum":
            return utilities.Reward() + utilities.Entropy()
        case "roots":
            return utilities.Custom(roots, features=State(), concave=True)
        case _:
            return _random_utility(name, random, env, time)


def _random_utility(name: str, random: Random, env: TabularMDP, time: Time) -> Utility:
    shape = (env.num_states, env.num_actions)
    match name:
        case "target":
            target = _random_occupancy(random, env, State(), time)
            return utilities.SetDistance(State(), Point(target))
        case "constraint":
            return _constraint(random, env, time)
        case "ratio":
            gains, costs = random.random((2, env.num_states * env.num_actions))
            return utilities.Custom(Ratio(gains, costs), features=StateAction())
        case "soft-min":
            return utilities.SoftMin(_sparse_rewards(random, shape))
        case "nash-welfare":
            return utilities.NashWelfare(_sparse_rewards(random, shape))
        case "log-det":
            return utilities.LogDet(random.standard_normal((*shape, 3)))
        case "kl":
            return utilities.KL(_random_visits(random, env, time))
        case "forward-kl":
            return utilities.ForwardKL(_random_visits(random, env, time))
        case _:
            raise ValueError(f"utility must be that of a table, got {name!r}.")


def _random_occupancy(random: Random, env: TabularMDP, feature: Feature, time: Time) -> np.ndarray:
    """Return the occupancy of a random policy, a target that can be reached."""
    logits = 4.0 * random.standard_normal((env.num_states, env.num_actions))
    problem = Problem(env, _total, features=feature, **time)
    occupancy = exact.feature_occupancy(problem, softmax(logits, axis=1))
    return np.round(occupancy, DIGITS)


def _total(occupancy: Array) -> Array:
    return occupancy.sum()


def _random_visits(random: Random, env: TabularMDP, time: Time) -> np.ndarray:
    """Return the distribution of the states that a random policy visits."""
    return (1 - time["discount"]) * _random_occupancy(random, env, State(), time)


def _constraint(random: Random, env: TabularMDP, time: Time) -> Utility:
    """Return the distance of three costs to a box around those of a random policy."""
    shape = (env.num_states, env.num_actions)
    uniform = np.full(shape, 1 / env.num_actions)
    while True:
        is_costly = random.random((*shape, 3)) < 0.2
        costs = Table(is_costly.astype(float))
        sums = _random_occupancy(random, env, costs, time)
        box = Box((1 - SLACK) * sums, (1 + SLACK) * sums)
        utility = utilities.SetDistance(costs, box)
        if exact.value(Problem(env, utility, **time), uniform) < -SLACK:
            return utility  # the uniform policy is outside of the box, so there is room to learn


def _sparse_rewards(random: Random, shape: tuple[int, int]) -> np.ndarray:
    """Return three rewards, each in a tenth of the states."""
    is_rewarding = random.random((shape[0], 1, 3)) < 0.1
    return is_rewarding * random.random((*shape, 3))


GRIDS = {
    "cartpole": Grid([-2.4, -0.2095], [2.4, 0.2095], [8, 8], [0, 2]),
    "acrobot": Grid([-6.0, -12.0], [6.0, 12.0], [8, 8], [4, 5]),
    "mountain-car": Grid([-1.2, -0.07], [0.6, 0.07], [16, 16]),
}
"""Cells of observations without a table: position and angle, two speeds, position and speed."""


def network_arguments(env: str, utility: str) -> dict[str, Any]:
    """Return the utility and the features of a problem without a table, as keyword arguments."""
    match utility:
        case "return":
            return {}
        case "constraint":
            box = Box([80.0, 30.0], [np.inf, np.inf])
            return {"utility": utilities.SetDistance(as_feature(_upright_on_the_right), box)}
        case "sum":
            entropy = utilities.Custom(spread, GRIDS[env], concave=True)
            return {"utility": utilities.Reward() + 10.0 * entropy}
        case "entropy":
            return {"utility": utilities.Entropy(), "features": GRIDS[env]}
        case "log-coverage":
            return {"utility": utilities.LogCoverage(), "features": GRIDS[env]}
        case _:
            raise ValueError(f"utility must be that of a network, got {utility!r}.")


def _upright_on_the_right(observation: Any, _: Any) -> Any:
    return jnp.stack([jnp.ones_like(observation[0]), observation[0]])

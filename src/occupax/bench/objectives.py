"""What the problems of the benchmark maximise, by name; targets and costs are drawn at random."""

from collections.abc import Callable
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

Make = Callable[[np.random.Generator, TabularMDP, dict[str, Any]], Utility]
SLACK = 0.02
"""The sides of the boxes that constraints ask for, as a share of where they are."""
DIGITS = 6
"""Targets are rounded to this many digits, because the last ones of exact occupancies differ
between processors."""


class Ratio(eqx.Module):
    """What is gained for what it costs, <gains, u> / (1 + <costs, u>), which is not concave."""

    gains: Float[np.ndarray, " d"]
    costs: Float[np.ndarray, " d"]

    def __call__(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """The ratio at an occupancy of states and actions."""
        return (jnp.asarray(self.gains) @ occupancy) / (1.0 + jnp.asarray(self.costs) @ occupancy)


def roots(occupancy: Float[Array, " d"]) -> Float[Array, ""]:
    """The sum of the square roots of all visits: a fair share for every state."""
    return jnp.sqrt(occupancy + 0.01).sum()


def spread(occupancy: Float[Array, " d"]) -> Float[Array, ""]:
    """The entropy of the visits for a discount of 0.99, as a term of a sum that counts something else besides."""
    return jax.scipy.special.entr(0.01 * occupancy + 1e-6).sum()


def _somewhere(
    random: np.random.Generator, env: TabularMDP, feature: Feature, given: dict[str, Any]
) -> np.ndarray:
    """The occupancy of a policy that is drawn at random: a target that can be reached."""
    probs = softmax(4.0 * random.standard_normal((env.num_states, env.num_actions)), axis=1)
    visits = exact.feature_occupancy(
        Problem(env, lambda u: u.sum(), features=feature, **given), probs
    )
    return np.round(visits, DIGITS)


def _target(random: np.random.Generator, env: TabularMDP, given: dict[str, Any]) -> Utility:
    return utilities.SetDistance(State(), Point(_somewhere(random, env, State(), given)))


def _constraint(random: np.random.Generator, env: TabularMDP, given: dict[str, Any]) -> Utility:
    uniform = np.full((env.num_states, env.num_actions), 1 / env.num_actions)
    while True:
        costs = Table((random.random((env.num_states, env.num_actions, 3)) < 0.2).astype(float))
        sums = _somewhere(random, env, costs, given)
        drawn = utilities.SetDistance(costs, Box((1 - SLACK) * sums, (1 + SLACK) * sums))
        if (
            exact.value(Problem(env, drawn, **given), uniform) < -SLACK
        ):  # otherwise there is nothing to learn
            return drawn


def _several(random: np.random.Generator, env: TabularMDP) -> np.ndarray:
    """Three rewards, each of them earned in a tenth of the states or so."""
    return (random.random((env.num_states, 1, 3)) < 0.1) * random.random(
        (env.num_states, env.num_actions, 3)
    )


def _visits(random: np.random.Generator, env: TabularMDP, given: dict[str, Any]) -> np.ndarray:
    """The distribution of the states that a drawn policy visits."""
    return (1 - given["discount"]) * _somewhere(random, env, State(), given)


def _ratio(random: np.random.Generator, env: TabularMDP, _: dict[str, Any]) -> Utility:
    gains, costs = random.random((2, env.num_states * env.num_actions))
    return utilities.Custom(Ratio(gains, costs), features=StateAction())


TABULAR: dict[str, Make] = {
    "return": lambda *_: utilities.Reward(),
    "log-coverage": lambda *_: utilities.LogCoverage(),
    "entropy": lambda *_: utilities.Entropy(),
    "target": _target,
    "constraint": _constraint,
    "sum": lambda *_: utilities.Reward() + utilities.Entropy(),
    "roots": lambda *_: utilities.Custom(roots, features=State(), concave=True),
    "ratio": _ratio,
    "soft-min": lambda random, env, _: utilities.SoftMin(_several(random, env)),
    "nash-welfare": lambda random, env, _: utilities.NashWelfare(_several(random, env)),
    "log-det": lambda random, env, _: utilities.LogDet(
        random.standard_normal((env.num_states, env.num_actions, 3))
    ),
    "kl": lambda random, env, given: utilities.KL(_visits(random, env, given)),
    "forward-kl": lambda random, env, given: utilities.ForwardKL(_visits(random, env, given)),
}
"""The utility of each name for a table: the return; coverage and entropy of the states; the
distance to the occupancy of a drawn policy; that of three drawn costs to a box around what a drawn
policy pays; return and entropy together; two custom functions, of which the second is not concave;
fair shares of three drawn rewards; the design of an experiment with three drawn regressors; and the
divergence, in both directions, from the visits of a drawn policy."""


def _upright_on_the_right(observation: Any, _: Any) -> Any:
    return jnp.stack([jnp.ones_like(observation[0]), observation[0]])


GRIDS = {
    "cartpole": Grid([-2.4, -0.2095], [2.4, 0.2095], [8, 8], [0, 2]),
    "acrobot": Grid([-6.0, -12.0], [6.0, 12.0], [8, 8], [4, 5]),
    "mountain-car": Grid([-1.2, -0.07], [0.6, 0.07], [16, 16]),
}
"""The cells that are counted where there is no table: position and angle, two speeds, position and
speed."""


def network_arguments(env: str, utility: str) -> dict[str, Any]:
    """What a problem without a table is made with, by the names of its environment and its utility."""
    if utility == "return":
        return {}
    if utility == "constraint":
        feedback = as_feature(_upright_on_the_right)
        return {"utility": utilities.SetDistance(feedback, Box([80.0, 30.0], [np.inf, np.inf]))}
    if utility == "sum":
        return {
            "utility": utilities.Reward()
            + 10.0 * utilities.Custom(spread, GRIDS[env], concave=True)
        }
    counted = {"entropy": utilities.Entropy(), "log-coverage": utilities.LogCoverage()}[utility]
    return {"utility": counted, "features": GRIDS[env]}

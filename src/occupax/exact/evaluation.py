"""What a policy is worth, exactly: its occupancy, value and gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occupax.exact.dynamics import Dynamics, StateActionArray, dynamics, read_probs
from occupax.policies import PolicyType, refuse_unless_fitting
from occupax.problem import Problem
from occupax.utilities.base import Utility


def occupancy(problem: Problem, probs: Any) -> StateActionArray:
    """The discounted state-action occupancy lambda, [S, A].

    Here and below, `probs` is a table of action probabilities [S, A]; with a horizon it may be one for each step, as
    `solve` returns it, [H, S, A].
    """
    model = dynamics(problem)
    return total_occupancy(model, read_probs(probs, model))


def feature_occupancy(problem: Problem, probs: Any) -> Float[np.ndarray, " d"]:
    """The occupancy u of the problem's features: what `estimators.occupancy` estimates."""
    model = dynamics(problem)
    return model.features.T @ total_occupancy(model, read_probs(probs, model)).ravel()


def value(problem: Problem, probs: Any) -> float:
    """The utility F(u) of a table of action probabilities."""
    return utility_value(problem.utility, feature_occupancy(problem, probs))


def gradient(problem: Problem, policy: PolicyType) -> PolicyType:
    """The exact gradient of F(u(theta)), with respect to each array of `policy`, as NumPy float64.

    The derivative with respect to the probabilities is that of the policy gradient theorem with the quasi-reward
    grad F(u); the policy's own derivative is taken by JAX.
    """
    model = dynamics(problem)
    refuse_unless_fitting(policy, problem.env)
    states = np.arange(model.shape[0])
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, policy)
        probs = np.asarray(jax.vmap(wide.probs)(states))
        lam = total_occupancy(model, probs)
        quasi_reward = utility_gradient(problem.utility, model.features.T @ lam.ravel())
        slope = _slope(model, probs, (model.features @ quasi_reward).reshape(model.shape))
        slopes = eqx.filter_grad(lambda it: jnp.sum(jax.vmap(it.probs)(states) * slope))(wide)
        return jax.tree.map(np.asarray, slopes)


def total_occupancy(model: Dynamics, probs: Float[np.ndarray, "*H S A"]) -> StateActionArray:
    """The occupancy of a table of probabilities, or of one for each step of a horizon."""
    if model.horizon is not None:
        return timed_occupancy(model, np.broadcast_to(probs, (model.horizon, *model.shape))).sum(0)
    flow = model.discounted_solve(model.under(probs).T.tocsr(), model.initial)
    return flow[:, None] * probs


def timed_occupancy(model: Dynamics, probs: Float[np.ndarray, "H S A"]) -> Float[np.ndarray, "H S A"]:
    """The discounted occupancy of each step, for a policy that may depend on time."""
    mass = np.empty(probs.shape)
    arriving = model.initial
    for t, table in enumerate(probs):
        mass[t] = model.discount**t * arriving[:, None] * table
        arriving = model.transition.T @ (arriving[:, None] * table).ravel()
    return mass


def _slope(model: Dynamics, probs: StateActionArray, reward: StateActionArray) -> StateActionArray:
    """The derivative of <occupancy, reward> with respect to the probabilities: sum_t gamma^t d_t(s) Q_t(s, a)."""
    if model.horizon is None:
        matrix = model.under(probs)
        flow = model.discounted_solve(matrix.T.tocsr(), model.initial)
        values = model.discounted_solve(matrix, (probs * reward).sum(1))
        return flow[:, None] * (reward + model.discount * model.following(values))
    mass = timed_occupancy(model, np.broadcast_to(probs, (model.horizon, *probs.shape))).sum(2)
    slope, values = np.zeros(model.shape), np.zeros(model.shape[0])
    for t in reversed(range(model.horizon)):
        action_values = reward + model.discount * model.following(values)
        slope += mass[t][:, None] * action_values
        values = (probs * action_values).sum(1)
    return slope


def utility_value(utility: Utility, features: Float[np.ndarray, " d"]) -> float:
    """The value F(u), computed in float64."""
    with jax.enable_x64(True):
        return float(_value(utility, features))


def utility_gradient(utility: Utility, features: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """The gradient of F at u, computed in float64."""
    with jax.enable_x64(True):
        return np.asarray(_gradient(utility, features))


_value = eqx.filter_jit(lambda utility, features: utility.value(features))
_gradient = eqx.filter_jit(lambda utility, features: utility.gradient(features))

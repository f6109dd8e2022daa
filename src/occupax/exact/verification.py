"""Certificate of an optimum recomputed from the environment, by a second program.

This module shares no code with the solver: dynamics, occupancy and bound are computed anew, from
the policy, the values of the states, the tangent point and the multipliers alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse import linalg

from occupax.envs.tabular import TabularMDP
from occupax.exact.evaluation import Certificate
from occupax.exact.optimum import Optimum
from occupax.problem import Problem

MACHINE_EPSILON = 2.0**-53
DENSE_STATES = 500
MAX_ITERATIONS = 200
RESTART = 50


class _Table(NamedTuple):
    """Discounted transitions, initial distribution and features of a problem."""

    transition: sparse.csr_array
    initial: Float[np.ndarray, " S"]
    features: sparse.csr_array
    live: Float[np.ndarray, " n"]


def verify(optimum: Optimum) -> Certificate:
    """Recompute value and upper bound of an optimum from its policy and its values alone.

    The value is that of the policy, whose occupancy is solved for anew; a bound of the error that
    the residual leaves is subtracted. The upper bound holds for any values of the states, because
    their Bellman residual, with its rounding errors, is added to them.

    Args:
        optimum: result of `occupax.solve`.

    Returns:
        The certificate. Its gap is that of the optimum but for rounding if the optimum is right.
    """
    problem = optimum.problem
    table = _read_table(problem)
    value, violation = _value(problem, table, optimum.policy)
    bound = _bound(problem, table, optimum)
    return Certificate(value, max(bound, value), max(bound - value, 0.0), violation)


def _read_table(problem: Problem) -> _Table:
    env = problem.env
    if not isinstance(env, TabularMDP):
        raise ValueError(f"verify needs a tabular environment, got {type(env).__name__}.")
    S, A = env.num_states, env.num_actions
    live = np.ones(S)
    if problem.termination == "episodic":
        live[env.terminal] = 0.0
    pairs = np.repeat(live, A)
    coordinates = sparse.coo_array(env.transition)
    rows, columns = coordinates.coords
    weights = problem.discount * coordinates.data * pairs[rows] * live[columns]
    transition = sparse.csr_array((weights, (rows, columns)), shape=(S * A, S))
    states, actions = np.divmod(np.arange(S * A), A)
    with jax.enable_x64(True):
        counts = jax.vmap(problem.count)(states, actions, np.asarray(env.reward).ravel())
    index = np.asarray(counts.index)
    entries = np.asarray(counts.value) * pairs[:, None]
    owners = np.repeat(np.arange(S * A), index.shape[1])
    features = sparse.csr_array(
        (entries.ravel(), (owners, index.ravel())), shape=(S * A, problem.size)
    )
    return _Table(transition, env.initial * live, features, pairs)


def _value(
    problem: Problem, table: _Table, policy: Float[np.ndarray, "*H S A"]
) -> tuple[float, float]:
    """Return a lower bound of the utility of a policy, and its largest violation."""
    if problem.horizon is None:
        mass, error = _endless_mass(problem, table, policy)
    else:
        mass, error = _timed_mass(problem, table, policy)
    features = table.features.T @ mass
    with jax.enable_x64(True):
        point = jnp.asarray(features)
        value = float(problem.utility.value(point))
        gradient = np.asarray(problem.utility.gradient(point))
        violation = 0.0
        if problem.constraints:
            violation = max(float(np.asarray(problem.excesses(point)).max()), 0.0)
    slope = float(np.abs(table.features @ gradient).max(initial=0.0))
    return value - slope * error, violation


def _timed_mass(
    problem: Problem, table: _Table, policy: Float[np.ndarray, "*H S A"]
) -> tuple[Float[np.ndarray, " n"], float]:
    horizon = problem.horizon or 0
    total = np.zeros(table.transition.shape[0])
    flow = table.initial
    for t in range(horizon):
        rule = policy[t] if policy.ndim == 3 else policy
        step = (flow[:, None] * rule).ravel()
        total += step
        flow = step @ table.transition
    return total, 0.0


def _endless_mass(
    problem: Problem, table: _Table, policy: Float[np.ndarray, "S A"]
) -> tuple[Float[np.ndarray, " n"], float]:
    S, A = policy.shape
    starts = np.arange(0, S * A + 1, A)
    choice = sparse.csr_array((policy.ravel(), np.arange(S * A), starts), shape=(S, S * A))
    onward = sparse.csr_array((choice @ table.transition).T)
    system = sparse.csr_array(sparse.eye_array(S) - onward)
    if S <= DENSE_STATES:
        flow = np.linalg.solve(system.toarray(), table.initial)
    else:
        flow, failed = linalg.gmres(
            system, table.initial, rtol=1e-13, atol=0.0, restart=RESTART, maxiter=MAX_ITERATIONS
        )
        if failed:
            flow = linalg.splu(sparse.csc_array(system)).solve(table.initial)
    flow = np.maximum(flow, 0.0)
    residual = float(np.abs(table.initial + onward @ flow - flow).sum())
    contraction = problem.discount * float(max(1.0, _largest_sum(problem, table)))
    return (flow[:, None] * policy).ravel(), residual / (1 - contraction)


def _largest_sum(problem: Problem, table: _Table) -> float:
    if problem.discount == 0:
        return 1.0
    return float(np.asarray(table.transition.sum(1)).max()) / problem.discount


def _bound(problem: Problem, table: _Table, optimum: Optimum) -> float:
    """Return the upper bound that values, tangent point and multipliers prove."""
    multipliers = np.array([optimum.multipliers[one.name] for one in problem.constraints])
    height, reward = _linearisation(problem, table, optimum.tangent, multipliers)
    reward = reward * table.live
    S = len(table.initial)
    factor = float(max(problem.discount * max(1.0, _largest_sum(problem, table)), 0.0))
    mass = float(table.initial.sum())
    if problem.horizon is None:
        values = optimum.values
        residual = _residual(table, reward, values, values)
        start = float(table.initial @ values)
        bound = start + mass * max(float(residual.max()), 0.0) / (1 - factor)
        if problem.termination == "absorbing" or not np.any(table.live == 0):
            sums = np.asarray(table.transition.sum(1))
            if np.abs(sums - problem.discount).max() <= 1e-12:
                span = problem.discount / (1 - problem.discount) * float(residual.max())
                step = float(table.initial @ residual)
                allowance = mass * abs(span) * 1e-12 / (1 - problem.discount)
                bound = min(bound, start + step + mass * span + allowance)
        return height + bound
    increase = 0.0
    for t in range(problem.horizon - 1, -1, -1):
        following = optimum.values[t + 1] if t + 1 < problem.horizon else np.zeros(S)
        residual = _residual(table, reward, optimum.values[t], following)
        increase = max(float(residual.max()), 0.0) + factor * increase
    return height + float(table.initial @ optimum.values[0]) + mass * increase


def _linearisation(
    problem: Problem,
    table: _Table,
    tangent: Float[np.ndarray, " d"],
    multipliers: Float[np.ndarray, " K"],
) -> tuple[float, Float[np.ndarray, " n"]]:
    """Return the height of the tangent plane at 0 and the reward of each pair."""
    with jax.enable_x64(True):
        point = jnp.asarray(tangent)
        value = float(problem.utility.value(point))
        gradient = np.asarray(problem.utility.gradient(point))
        if problem.constraints:
            lagrangian = problem.lagrangian(multipliers).utility
            gradient = np.asarray(lagrangian.gradient(point))
            value -= float(multipliers @ np.asarray(problem.excesses(point)))
    return value - float(gradient @ tangent), np.asarray(table.features @ gradient)


def _residual(
    table: _Table,
    reward: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " S"],
    following: Float[np.ndarray, " S"],
) -> Float[np.ndarray, " S"]:
    """Return the Bellman residual with a bound of its rounding errors."""
    action_values = reward + table.transition @ following
    best = action_values.reshape(len(values), -1).max(1)
    successors = int(np.diff(table.transition.indptr).max(initial=0))
    size = np.abs(reward).max() + np.abs(values).max() + np.abs(following).max()
    return best - values + (successors + 3) * MACHINE_EPSILON * float(size)

"""Maximum return of a tabular problem, with bounds that hold in float64.

Infinite horizon: inexact policy iteration (Gargiani et al., 2024). Each iteration takes the greedy
policy of the current values and solves (I - gamma P_pi) v = r_pi by a Krylov method, only as
accurately as the next greedy policy needs. Finite horizon: backward induction.
"""

from time import monotonic
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax.envs.tabular import TabularMDP
from occupax.exact.dynamics import Dynamics, StateActionArray, dynamics
from occupax.exact.sweeps import ActionArray, Backup, StateArray, table_sweeps
from occupax.problem import ProblemSource, as_problem

UNIT_ROUNDOFF = 2.0**-53
SUM_ROUNDING = 64 * UNIT_ROUNDOFF
"""Bound of the relative rounding error of a pairwise sum."""
MAX_SWEEPS = 1024
"""Least number of sweeps of value iteration without progress after which planning stops."""
KRYLOV_ACCURACY = 1e-2
"""Residual of a linear solve relative to the Bellman residual, while the policy changes."""
KRYLOV_STEPS = 30
"""Largest number of products of a Krylov method for each sweep of value iteration before it."""
MAX_KRYLOV_STEPS = 300
"""Largest number of products of a Krylov method between two policies."""


class BestResponse(NamedTuple):
    """Deterministic policy of maximum return, and bounds of the maximum return."""

    value: float
    """Lower bound of the return of `actions` from the initial distribution."""
    upper_bound: float
    """Upper bound of the return of every policy."""
    values: Float[np.ndarray, "*H S"]
    """Approximate return from each state, with a horizon at each step."""
    actions: Int[np.ndarray, "*H S"]
    """Action of each state, with a horizon at each step."""
    num_actions: int
    """Number of actions, A."""

    @property
    def gap(self) -> float:
        """Largest possible shortfall of the policy, `upper_bound - value`."""
        return self.upper_bound - self.value

    @property
    def policy(self) -> Float[np.ndarray, "*H S A"]:
        """Action probabilities, a dense table of zeros and ones."""
        table = np.zeros((*self.actions.shape, self.num_actions))
        np.put_along_axis(table, self.actions[..., None], 1.0, -1)
        return table


def value_iteration(problem: ProblemSource) -> BestResponse:
    """Return the maximum discounted return of a table's own reward, and a policy that attains it.

    Infinite horizon: inexact policy iteration. Horizon H: H steps of backward induction.

    Args:
        problem: tabular problem. An environment or its id stands for its discounted return.

    Returns:
        The deterministic policy, its return from each state and bounds of the maximum return.

    Raises:
        ValueError: if the environment is no table.
    """
    problem = as_problem(problem)
    model = dynamics(problem)
    assert isinstance(problem.env, TabularMDP)  # noqa: S101
    return best_response(model, np.asarray(problem.env.reward))


def best_response(
    model: Dynamics,
    reward: StateActionArray,
    values: Float[np.ndarray, "*H S"] | None = None,
    tolerance: float = 0.0,
    deadline: float | None = None,
) -> BestResponse:
    """Maximise <reward, lambda> over all occupancies.

    Args:
        model: dynamics of the problem.
        reward: reward of each state and action.
        values: initial values, such as those of a similar reward. No effect with a horizon.
            Default: zeros.
        tolerance: gap at which to stop. 0 stops at the rounding errors of float64.
        deadline: time of `time.monotonic` at which to stop. The bounds hold then, too. Default:
            none.

    Returns:
        The deterministic policy, its return from each state and bounds of the maximum return.
    """
    reward = reward * model.counting[:, None]
    if model.horizon is not None:
        return _backward_induction(model, reward, model.horizon)
    if values is None:
        values = np.zeros(model.shape[0])
    values = np.array(values, np.float64)
    return _policy_iteration(_Planner(model, reward), values, tolerance, deadline)


def bellman_bounds(
    model: Dynamics, reward: StateActionArray, values: StateArray
) -> tuple[float, float]:
    """Return bounds of the maximum return that follow from any values, by one Bellman backup.

    Args:
        model: dynamics of the problem, with an infinite horizon.
        reward: reward of each state and action.
        values: approximate return from each state.

    Returns:
        A lower bound of the return of the greedy policy, and an upper bound of all returns.
    """
    planner = _Planner(model, reward * model.counting[:, None])
    response = planner.response(values, planner.backup(values, None))
    return response.value, response.upper_bound


class _Planner:
    """Bellman backups, sweeps and bounds for one reward."""

    def __init__(self, model: Dynamics, reward: StateActionArray):
        self.model = model
        self.reward = reward
        self.sweeps = table_sweeps(model, reward)
        self.largest_reward = float(np.abs(reward).max())
        self.successors = int(np.diff(model.transition.indptr).max())

    def backup(self, values: StateArray, current: ActionArray | None) -> Backup:
        """Return the Bellman backup. The current action is kept unless it is surely worse."""
        return self.sweeps.backup(values, current, 2 * self.rounding(values))

    def response(self, values: StateArray, backup: Backup) -> BestResponse:
        """Return the greedy policy with a lower bound of its return and an upper bound for all.

        A shift of v by c changes the residual of a row with sum s by -c (1 - gamma s). The shift
        that makes all residuals at least 0 bounds the return of the policy from below. The shift
        that makes all residuals at most 0 bounds every return from above.
        """
        initial = self.model.initial
        rounding = self.rounding(values)
        lowest = backup.lowest - rounding
        highest = backup.highest + rounding
        lower_sum = backup.highest_sum
        if lowest > 0:
            lower_sum = backup.lowest_sum
        upper_sum = backup.highest_sum
        if highest < 0:
            upper_sum = backup.lowest_sum
        mass = float(initial.sum())
        discount = self.model.discount
        center = float((initial * values).sum())
        error = SUM_ROUNDING * float((initial * np.abs(values)).sum())
        lower = center - error + mass * lowest / (1 - discount * lower_sum)
        upper = center + error + mass * highest / (1 - discount * upper_sum)
        return BestResponse(lower, upper, values, backup.actions, self.model.shape[1])

    def rounding(self, values: StateArray) -> float:
        """Return a bound of the rounding error of the Bellman residual."""
        scale = self.largest_reward + float(np.abs(values).max())
        return (self.successors + 3) * UNIT_ROUNDOFF * scale

    def smallest_gap(self, values: StateArray, backup: Backup) -> float:
        """Return a gap that rounding errors alone explain."""
        mass = float(self.model.initial.sum())
        room = 1 - self.model.discount * backup.highest_sum
        return 4 * mass * self.rounding(values) / room


def _policy_iteration(
    planner: _Planner, values: StateArray, tolerance: float, deadline: float | None
) -> BestResponse:
    """Return the best response by inexact policy iteration.

    The number of sweeps of value iteration before each linear solve doubles until the gap halves.
    Sweeps carry rewards along a corridor, where each policy sees one state further. They also make
    the iteration converge where the linear solves do not.
    """
    backup = planner.backup(values, None)
    best = planner.response(values, backup)
    max_sweeps = MAX_SWEEPS + int(20 / (1 - planner.model.discount * backup.highest_sum))
    sweeps = 1
    while sweeps <= max_sweeps:
        if best.gap <= max(tolerance, planner.smallest_gap(best.values, backup)):
            break
        if deadline is not None and monotonic() >= deadline:
            break
        for count in range(sweeps):
            values = planner.sweeps.sweep(values, reverse=count % 2 == 1)
        backup = planner.backup(values, backup.actions)
        max_steps = min(KRYLOV_STEPS * sweeps, MAX_KRYLOV_STEPS)
        values = values + planner.sweeps.solve(
            backup.actions, backup.residual, KRYLOV_ACCURACY, max_steps
        )
        backup = planner.backup(values, backup.actions)
        response = planner.response(values, backup)
        sweeps *= 2
        if response.gap < 0.5 * best.gap:
            sweeps = 1
        if response.gap < best.gap:
            best = response
    return best


def _backward_induction(model: Dynamics, reward: StateActionArray, horizon: int) -> BestResponse:
    S, A = model.shape
    successors = int(np.diff(model.transition.indptr).max())
    values = np.zeros((horizon + 1, S))
    actions = np.zeros((horizon, S), np.int32)
    states = np.arange(S)
    largest_reward = float(np.abs(reward).max())
    error = 0.0
    for t in reversed(range(horizon)):
        action_values = reward + model.discount * model.following(values[t + 1])
        actions[t] = action_values.argmax(1)
        values[t] = action_values[states, actions[t]]
        scale = largest_reward + float(np.abs(values[t + 1]).max())
        error = model.discount * error + (successors + 3) * UNIT_ROUNDOFF * scale
    mass = float(model.initial.sum())
    best = float((model.initial * values[0]).sum())
    error = mass * error + SUM_ROUNDING * float((model.initial * np.abs(values[0])).sum())
    return BestResponse(best - error, best + error, values[:-1], actions, A)

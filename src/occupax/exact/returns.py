"""Maximum return of a tabular problem, with bounds that hold in float64.

Infinite horizon: inexact policy iteration (Gargiani et al., 2024). Each iteration takes the greedy
policy of the current values and solves (I - gamma P_pi) v = r_pi by a Krylov method, only as
accurately as the next greedy policy needs. Finite horizon: backward induction.
"""

from time import monotonic
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import linalg

from occupax.envs.tabular import TabularMDP
from occupax.exact.dynamics import Dynamics, StateActionArray, dynamics
from occupax.problem import ProblemSource, as_problem

UNIT_ROUNDOFF = 2.0**-53
SUM_ROUNDING = 64 * UNIT_ROUNDOFF
"""Bound of the relative rounding error of a pairwise sum."""
ADVANTAGE_ROUNDING = 4e-15
"""Relative advantage below which an action is not surely better than the current one."""
MAX_SWEEPS = 1024
"""Least number of sweeps of value iteration without progress after which planning stops."""
KRYLOV_ACCURACY = 1e-2
"""Residual of a linear solve relative to the Bellman residual, while the policy changes."""
KRYLOV_STEPS = 200
"""Largest number of steps of a Krylov method between two policies."""
RESTART = 30
"""Number of vectors that GMRES keeps."""
StateArray = Float[np.ndarray, " S"]
ActionArray = Int[np.ndarray, " S"]


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


class Backup(NamedTuple):
    """Bellman backup of values v: a greedy policy and its Bellman residual."""

    residual: StateArray
    """T_pi v - v, for the greedy policy pi."""
    actions: ActionArray
    """Greedy policy of v."""
    highest: float
    """Largest entry of T v - v."""


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
    return _policy_iteration(_Planner(model, reward), values, tolerance, deadline)


class _Planner:
    """Policy iteration for one reward."""

    def __init__(self, model: Dynamics, reward: StateActionArray):
        self.model = model
        self.reward = reward
        self.states = np.arange(model.shape[0])
        sums = model.transition.sum(axis=1)
        self.lowest_sum = float(sums.min())
        self.highest_sum = float(sums.max())
        self.largest_reward = float(np.abs(reward).max())
        room = 1 - model.discount * self.highest_sum
        self.max_sweeps = MAX_SWEEPS + int(20 / room)
        self.successors = int(np.diff(model.transition.indptr).max())

    def backup(self, values: StateArray, current: ActionArray | None) -> Backup:
        """Return the Bellman backup. The current action is kept unless it is surely worse."""
        action_values = self.reward + self.model.discount * self.model.following(values)
        actions = action_values.argmax(1)
        highest_values = action_values[self.states, actions]
        highest = float((highest_values - values).max())
        if current is None:
            return Backup(highest_values - values, actions, highest)
        current_values = action_values[self.states, current]
        scale = 1 + float(np.abs(highest_values).max())
        improves = highest_values - current_values > ADVANTAGE_ROUNDING * scale
        actions = np.where(improves, actions, current)
        greedy_values = np.where(improves, highest_values, current_values)
        return Backup(greedy_values - values, actions, highest)

    def response(self, values: StateArray, backup: Backup) -> BestResponse:
        """Return the greedy policy with a lower bound of its return and an upper bound for all.

        A shift of v by c changes the residual of a row with sum s by -c (1 - gamma s). The shift
        that makes all residuals at least 0 bounds the return of the policy from below. The shift
        that makes all residuals at most 0 bounds every return from above.
        """
        initial = self.model.initial
        rounding = self.rounding(values)
        lowest = float(backup.residual.min()) - rounding
        highest = backup.highest + rounding
        lower_sum = self.highest_sum
        if lowest > 0:
            lower_sum = self.lowest_sum
        upper_sum = self.highest_sum
        if highest < 0:
            upper_sum = self.lowest_sum
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

    def smallest_gap(self, values: StateArray) -> float:
        """Return a gap that rounding errors alone explain."""
        mass = float(self.model.initial.sum())
        room = 1 - self.model.discount * self.highest_sum
        return 4 * mass * self.rounding(values) / room

    def correction(self, backup: Backup, accuracy: float) -> StateArray:
        """Return e with (I - gamma P_pi) e = residual, up to a relative accuracy."""
        A = self.model.shape[1]
        rows = self.states * A + backup.actions
        matrix = self.model.transition[rows]
        return solve_krylov(matrix, self.model.discount, backup.residual, accuracy)


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
    sweeps = 1
    while sweeps <= planner.max_sweeps:
        if best.gap <= max(tolerance, planner.smallest_gap(best.values)):
            break
        if deadline is not None and monotonic() >= deadline:
            break
        for _ in range(sweeps):
            values = values + backup.residual
            previous = backup.actions
            backup = planner.backup(values, previous)
            if np.array_equal(backup.actions, previous):
                break
        values = values + planner.correction(backup, KRYLOV_ACCURACY)
        backup = planner.backup(values, backup.actions)
        response = planner.response(values, backup)
        sweeps *= 2
        if response.gap < 0.5 * best.gap:
            sweeps = 1
        if response.gap < best.gap:
            best = response
    return best


def solve_krylov(
    matrix: sparse.csr_array, discount: float, right: StateArray, accuracy: float
) -> StateArray:
    """Return an approximate solution of (I - discount * matrix) x = right.

    BiCGStab is faster, and GMRES takes over where BiCGStab breaks down.

    Args:
        matrix: transition probabilities [S, S] under a policy.
        discount: discount factor.
        right: right-hand side.
        accuracy: Euclidean norm of the residual relative to the right-hand side.

    Returns:
        The solution with the smaller residual, at worst `right`.
    """
    S = right.size

    def multiply(vector: StateArray) -> StateArray:
        return vector - discount * (matrix @ vector)

    system = linalg.LinearOperator((S, S), matvec=multiply, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    solution, _ = linalg.bicgstab(system, right, rtol=accuracy, atol=0.0, maxiter=KRYLOV_STEPS // 2)
    target = accuracy * float(np.linalg.norm(right))
    if np.linalg.norm(right - multiply(solution)) <= 2 * target:
        return solution
    solution, _ = linalg.gmres(
        system,
        right,
        rtol=accuracy,
        atol=0.0,
        restart=RESTART,
        maxiter=-(-KRYLOV_STEPS // RESTART),
    )
    return solution


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

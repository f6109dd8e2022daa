"""Mirror descent over policies for tables that are too large for factors (MD-CURL; Moreno, 2024).

Each iteration multiplies the policy by exp(step * advantage) for the quasi-reward at its
occupancy. Krylov methods solve for values and occupancies, from those of the last policy. The step
grows while the utility increases and shrinks otherwise.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from occupax.exact.dynamics import Dynamics
from occupax.exact.krylov import solve_krylov
from occupax.exact.occupancies import features_of, timed_mass, uniform_policy
from occupax.exact.returns import best_response
from occupax.exact.search import Search

ACCURACY = 1e-2
"""Residual of a linear solve relative to the residual that it starts from."""
FLOW_ACCURACY = 1e-9
"""Residual of an occupancy relative to the initial distribution."""
KRYLOV_STEPS = 60
MAX_SOLVES = 6
GROWTH = 2.0
SHRINKAGE = 0.25
SMALLEST_STEP = 1e-12
BOUND_SHARE = 0.3
"""Largest fraction of the time that is spent on bounds."""
ORACLE_SHARE = 0.1
"""Gap of a best response relative to the gap of the search."""
IDLE_BOUNDS = 60
"""Bounds without progress after which the method ends."""
PROGRESS = 0.97
MIN_PROBABILITY = 1e-300

Timed = Float[np.ndarray, "*H S A"]
Values = Float[np.ndarray, "*H S"]


class Iterate(NamedTuple):
    """Policy with its occupancy and utility."""

    policy: Timed
    flow: Values
    features: Float[np.ndarray, " d"]
    value: float

    @property
    def mass(self) -> Timed:
        """Occupancy of each pair."""
        return self.flow[..., None] * self.policy


def maximise(search: Search) -> None:
    """Improve the policy and the bound of a search until the method ends or stalls."""
    descent = _Descent(search)
    descent.run()
    search.propose_pending()


class _Descent:
    """State of mirror descent.

    Args:
        search: the search.
    """

    def __init__(self, search: Search):
        self._search = search
        self._model = search.model
        self._onward = sparse.csr_array(search.model.transition.T)
        times = () if search.model.horizon is None else (search.model.horizon,)
        self._values = np.zeros((*times, search.model.shape[0]))
        self._bound_values: Values | None = None
        self._bound_seconds = 0.0
        self._smallest = np.inf
        self._idle = 0

    def run(self) -> None:
        """Take steps until the search ends or nothing improves."""
        search = self._search
        flow = np.zeros_like(self._values)
        best = search.best
        policy = uniform_policy(self._model)
        if best is not None and best.violation == 0:
            policy = np.maximum(best.policy, 1e-6 / self._model.shape[1])
            policy = policy / policy.sum(-1, keepdims=True)
        iterate = self._evaluate(policy, flow)
        step = 0.0
        while step == 0.0 or step > SMALLEST_STEP:
            search.pending = iterate.mass
            reward = search.quasi_reward(iterate.features)
            if self._bound_is_due():
                self._bound(iterate, reward)
                if self._idle > IDLE_BOUNDS:
                    return
            search.check()
            advantage = self._advantage(iterate, reward)
            if step == 0.0:
                step = 1.0 / max(float(np.abs(advantage).max()), 1e-300)
            following = self._evaluate(_moved(iterate.policy, advantage, step), iterate.flow)
            if following.value > iterate.value:
                iterate = following
                step *= GROWTH
            else:
                step *= SHRINKAGE

    def _bound_is_due(self) -> bool:
        return self._bound_seconds <= BOUND_SHARE * self._search.elapsed

    def _bound(self, iterate: Iterate, reward: Float[np.ndarray, "S A"]) -> None:
        search = self._search
        start = search.elapsed
        tolerance = ORACLE_SHARE * max(search.target, min(self._smallest, 1e300))
        deadline = None
        if search.time_limit is not None:
            deadline = search.start + search.time_limit
        response = best_response(self._model, reward, self._bound_values, tolerance, deadline)
        self._bound_values = response.values
        bound = search.propose_bound(iterate.features, response.values)
        gap = bound - iterate.value
        self._idle = self._idle + 1 if gap > PROGRESS * self._smallest else 0
        self._smallest = min(gap, self._smallest)
        if search.bound is not None and search.bound.value - iterate.value <= search.target:
            search.propose_pending()
        self._bound_seconds += search.elapsed - start

    def _advantage(self, iterate: Iterate, reward: Float[np.ndarray, "S A"]) -> Timed:
        """Return Q - V of the policy for a reward."""
        model = self._model
        policy = iterate.policy
        if model.horizon is not None:
            return _timed_advantage(model, policy, reward)
        values = self._values

        def multiply(vector: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
            following = model.following(vector)
            return vector - model.discount * (policy * following).sum(1)

        residual = (policy * reward).sum(1) - multiply(values)
        values = values + solve_krylov(multiply, residual, ACCURACY, KRYLOV_STEPS)
        self._values = values
        action_values = reward + model.discount * model.following(values)
        return action_values - (policy * action_values).sum(1, keepdims=True)

    def _evaluate(self, policy: Timed, flow: Values) -> Iterate:
        """Return the occupancy of a policy, from that of a similar one."""
        model = self._model
        if model.horizon is not None:
            flow = timed_mass(model, policy).sum(-1)
        else:
            flow = self._flow(policy, flow)
        features = features_of(model, flow[..., None] * policy)
        return Iterate(policy, flow, features, self._search.objective.value(features))

    def _flow(
        self, policy: Float[np.ndarray, "S A"], flow: Float[np.ndarray, " S"]
    ) -> Float[np.ndarray, " S"]:
        model = self._model
        onward = self._onward

        def multiply(vector: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
            leaving = (vector[:, None] * policy).ravel()
            return vector - model.discount * (onward @ leaving)

        target = FLOW_ACCURACY * float(np.abs(model.initial).sum())
        for _ in range(MAX_SOLVES):
            residual = model.initial - multiply(flow)
            if float(np.abs(residual).sum()) <= target:
                break
            flow = flow + solve_krylov(multiply, residual, ACCURACY, KRYLOV_STEPS)
            flow = np.maximum(flow, 0.0)
        return flow


def _timed_advantage(
    model: Dynamics, policy: Float[np.ndarray, "H S A"], reward: Float[np.ndarray, "S A"]
) -> Float[np.ndarray, "H S A"]:
    advantages = np.empty_like(policy)
    values = np.zeros(model.shape[0])
    for t in reversed(range(len(policy))):
        action_values = reward + model.discount * model.following(values)
        values = (policy[t] * action_values).sum(1)
        advantages[t] = action_values - values[:, None]
    return advantages


def _moved(policy: Timed, advantage: Timed, step: float) -> Timed:
    """Return the policy times exp(step * advantage), normalised."""
    logits = np.log(np.maximum(policy, MIN_PROBABILITY)) + step * advantage
    logits -= logits.max(-1, keepdims=True)
    weights = np.exp(logits)
    return weights / weights.sum(-1, keepdims=True)

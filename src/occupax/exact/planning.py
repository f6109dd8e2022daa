"""The best policy for a reward: Howard's policy iteration, or backward induction for a finite horizon."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from occupax.exact.dynamics import Dynamics, StateActionArray, dynamics
from occupax.problem import Problem


class BestResponse(NamedTuple):
    """An optimal policy for a reward."""

    value: float
    """The optimal return from the initial distribution."""
    upper_bound: float
    """A bound of the optimal return that also covers what is left of the Bellman residual."""
    values: Float[np.ndarray, "*H S"]
    """The optimal return from each state; with a horizon, at each step."""
    policy: Float[np.ndarray, "*H S A"]
    """Action probabilities, all 0 or 1; with a horizon, at each step."""


def value_iteration(problem: Problem) -> BestResponse:
    """The best discounted return of the environment's own reward, and a policy that earns it.

    With an infinite horizon the fixed point of the Bellman operator is found by Howard's policy iteration; with a
    horizon H, by H steps of value iteration, and the policy depends on time.
    """
    return best_response(dynamics(problem), problem.env.reward)  # pyright: ignore[reportAttributeAccessIssue]


def best_response(model: Dynamics, reward: StateActionArray) -> BestResponse:
    """Maximise <reward, lambda> over all occupancies."""
    reward = reward * model.counting[:, None]
    return _policy_iteration(model, reward) if model.horizon is None else _backward_induction(model, reward)


def _policy_iteration(model: Dynamics, reward: StateActionArray) -> BestResponse:
    S, A = model.shape
    states = np.arange(S)
    choice, progress = reward.argmax(1), -np.inf
    while True:
        values = model.discounted_solve(model.under(np.eye(A)[choice]), reward[states, choice])
        action_values, improves = _look_ahead(model, reward, choice, values)
        if not improves.any() or values.sum() <= progress:  # among equal actions, rounding could go in circles
            break
        progress = values.sum()
        # sweeps of value iteration, as long as they change the policy, carry news along a corridor far more cheaply
        # than one linear system a step
        for _ in range(S):
            choice, values = np.where(improves, action_values.argmax(1), choice), action_values.max(1)
            action_values, improves = _look_ahead(model, reward, choice, values)
            if not improves.any():
                break
    residual = max(float((action_values.max(1) - values).max()), 0.0)
    best = float(model.initial @ values)
    unresolved = residual * float(model.initial.sum()) / (1 - model.discount)
    return BestResponse(best, best + unresolved, values, np.eye(A)[choice])


def _look_ahead(
    model: Dynamics, reward: StateActionArray, choice: Int[np.ndarray, " S"], values: Float[np.ndarray, " S"]
) -> tuple[StateActionArray, Bool[np.ndarray, " S"]]:
    """The value of each action, and where another one is better than the choice by more than its last digits."""
    action_values = reward + model.discount * model.following(values)
    gain = action_values.max(1) - action_values[np.arange(choice.size), choice]
    return action_values, gain > 4e-15 * (1 + np.abs(action_values).max())


def _backward_induction(model: Dynamics, reward: StateActionArray) -> BestResponse:
    S, A = model.shape
    horizon = model.horizon or 0
    values, policy = np.zeros((horizon + 1, S)), np.zeros((horizon, S, A))
    for t in reversed(range(horizon)):
        action_values = reward + model.discount * model.following(values[t + 1])
        policy[t] = np.eye(A)[action_values.argmax(1)]
        values[t] = action_values.max(1)
    best = float(model.initial @ values[0])
    return BestResponse(best, best, values[:-1], policy)

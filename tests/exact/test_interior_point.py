"""The interior-point method on utilities whose gradient turns within a step."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

import occupax as ox

DISCOUNT = 0.9
TEMPERATURE = 1e-3


def largest_smaller_return(env: ox.TabularMDP, rewards: list[np.ndarray]) -> float:
    """Return the largest possible minimum of two returns, by a linear program of HiGHS."""
    S, A = env.num_states, env.action_space.n
    leaving = sparse.kron(sparse.eye_array(S), np.ones((1, A)))
    flow = leaving - DISCOUNT * env.transition.T
    equations: Any = sparse.hstack([flow, np.zeros((S, 1))])
    limits = [np.append(-reward.ravel(), 1.0) for reward in rewards]
    cost = np.append(np.zeros(S * A), -1.0)
    bounds = [(0, None)] * (S * A) + [(None, None)]
    matrix = np.array(limits)
    upper = np.zeros(2)
    solution: Any = linprog(cost, matrix, upper, equations, env.initial, bounds)
    return -solution.fun


@pytest.mark.parametrize("method", ["auto", "frank-wolfe"])
def test_a_sharp_soft_minimum_is_solved(method):
    """The soft minimum of two returns lies below the minimum by at most temperature * log 2."""
    env = ox.TabularMDP.gridworld("S....\n.....\n.....", slip=0.1)
    column = np.arange(15) % 5
    left = np.repeat(column[:, None] == 0, 4, axis=1).astype(float)
    right = np.repeat(column[:, None] == 4, 4, axis=1).astype(float)
    utility = ox.utilities.SoftMin(left, right, temperature=TEMPERATURE)
    problem = ox.Problem(env, utility, discount=DISCOUNT, horizon=None)
    best = ox.solve(problem, method=method, progress=False)
    expected = largest_smaller_return(env, [left, right])
    assert best.status == "optimal"
    assert expected - TEMPERATURE * np.log(2) - 1e-5 <= best.value <= expected + 1e-9

"""Certificates of `solve`: random problems against an independent solver, `verify`, and limits."""

import os
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import occupax as ox
from occupax.exact.bounds import return_bound
from occupax.exact.conic import maximise as maximise_conic
from occupax.exact.dynamics import dynamics
from occupax.exact.occupancies import policy_of
from random_problems import random_problem

utilities = ox.utilities
SEEDS = range(10)


def independent_value(problem: ox.Problem) -> float | None:
    """Return the value of Clarabel's policy if it satisfies the constraints."""
    solution = maximise_conic(problem, dynamics(problem))
    if solution is None:
        return None
    policy = policy_of(solution.mass)
    if problem.constraints:
        features = ox.exact.feature_occupancy(problem, policy)
        if ox.exact.evaluation.excesses_of(problem, features).max() > 0:
            return None
    return ox.exact.value(problem, policy)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_policy_of_an_independent_solver_exceeds_the_bound(seed: int):
    problem = random_problem(seed)
    best = ox.solve(problem, progress=False, time_limit=200.0)
    size = max(1.0, abs(best.value))
    assert best.status == "optimal"
    assert best.gap <= 1e-6 * size
    assert max(best.excesses.values(), default=0.0) <= 1e-7
    other = independent_value(problem)
    if other is not None:
        assert other <= best.upper_bound + 1e-9 * size
    again = ox.exact.verify(best)
    assert again.value == pytest.approx(best.value, abs=1e-9 * size)
    assert again.upper_bound == pytest.approx(best.upper_bound, abs=1e-8 * size)
    assert best.value <= again.upper_bound + 1e-9 * size


@pytest.mark.parametrize("horizon", [None, 7])
@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_any_values_bound_all_returns(termination: Any, horizon: int | None):
    random = np.random.default_rng(0)
    source = ox.TabularMDP.garnet(8, 3, 2, jax.random.key(2))
    env = ox.TabularMDP(source.transition, source.reward, source.initial, np.arange(8) == 7)
    problem = ox.Problem(env, discount=0.9, horizon=horizon, termination=termination)
    model = dynamics(problem)
    best = ox.exact.value_iteration(problem)
    for size in (0.0, 1e-6, 0.1, 10.0):
        noise = size * random.normal(size=best.values.shape)
        bound = return_bound(model, np.asarray(env.reward), best.values + noise)
        assert bound >= best.value - 1e-12
        assert bound <= best.upper_bound + 1e3 * size + 1e-9


def test_verify_notices_a_wrong_value_and_wrong_values_of_states():
    problem = ox.Problem("FrozenLake-v1", utilities.LogCoverage(), discount=0.95)
    best = ox.solve(problem)
    wrong = replace(best, value=best.value + 0.1, values=best.values - 1.0)
    again = ox.exact.verify(wrong)
    assert again.value == pytest.approx(best.value, abs=1e-9)
    assert again.upper_bound >= best.value


def slow_problem() -> ox.Problem:
    env = ox.TabularMDP.garnet(300, 4, 5, jax.random.key(0))
    return ox.Problem(env, utilities.LogCoverage(0.01), discount=0.99, horizon=40)


def test_a_time_limit_returns_the_best_policy_so_far():
    problem = slow_problem()
    start = time.monotonic()
    best = ox.solve(problem, 1e-15, time_limit=0.5, progress=False, method="mirror-descent")
    assert time.monotonic() - start < 20
    assert best.status == "time limit"
    assert 0 < best.gap < np.inf
    assert ox.exact.value(problem, best.policy) == pytest.approx(best.value)


def test_ctrl_c_returns_the_best_policy_so_far():
    problem = slow_problem()
    ox.solve(problem, 0.5, time_limit=0.1, progress=False)  # compile
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    best = ox.solve(problem, 1e-15, progress=False, method="mirror-descent")
    timer.cancel()
    assert best.status == "interrupted"
    assert ox.exact.verify(best).value == pytest.approx(best.value)

"""Maximum returns: against linear programs, enumeration, perturbed values and starts."""

from itertools import product
from time import monotonic
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse

import occupax as ox
from occupax.exact import sweeps
from occupax.exact.dynamics import Dynamics, dynamics
from occupax.exact.krylov import solve_krylov
from occupax.exact.returns import bellman_bounds, best_response


def random_model(random, states, actions=3, discount=0.95, loss=0.0):
    """Return a random dense table whose rows sum to 1 or lose mass."""
    transition = random.dirichlet(np.full(states, 0.3), states * actions)
    transition *= 1 - loss * random.random((states * actions, 1))
    initial = random.dirichlet(np.ones(states))
    features = sparse.csr_array((states * actions, 1))
    return Dynamics(
        sparse.csr_array(transition), initial, features, np.ones(states), discount, None
    )


def optimum_by_linear_program(model, reward):
    """Return the optimum of the dual linear program: min xi v with v >= r + gamma P v."""
    states, actions = model.shape
    leaving = np.repeat(np.eye(states), actions, axis=0)
    matrix = model.discount * model.transition.toarray() - leaving
    solution: Any = optimize.linprog(model.initial, matrix, -reward.ravel(), bounds=(None, None))
    return solution.fun


def policy_return(model, actions, reward):
    """Return the exact return of a deterministic policy."""
    states, num_actions = model.shape
    rows = np.arange(states) * num_actions + actions
    chain = model.transition.toarray()[rows]
    values = np.linalg.solve(np.eye(states) - model.discount * chain, reward.ravel()[rows])
    return model.initial @ values


@pytest.fixture(params=["kernel", "arrays"])
def implementation(request, monkeypatch):
    """Plan with the kernel and without."""
    if request.param == "arrays":
        monkeypatch.setattr(sweeps.planning, "library", lambda: None)
    elif sweeps.planning.library() is None:
        pytest.skip("the kernels are not compiled")


@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_best_response_matches_linear_program(implementation, loss):
    random = np.random.default_rng(1)
    for states in (2, 5, 20):
        model = random_model(random, states, loss=loss)
        reward = random.normal(size=model.shape)
        best = best_response(model, reward)
        optimum = optimum_by_linear_program(model, reward)
        assert best.value <= optimum + 1e-8
        assert best.upper_bound >= optimum - 1e-8
        assert best.gap <= 1e-11
        exact = policy_return(model, best.actions, reward)
        assert best.value <= exact <= best.upper_bound
        assert best.policy.argmax(1).tolist() == best.actions.tolist()


def test_best_response_is_best_of_all_policies(implementation):
    random = np.random.default_rng(2)
    model = random_model(random, 4, actions=2)
    reward = random.normal(size=model.shape)
    policies = product(range(2), repeat=4)
    returns = [policy_return(model, np.array(actions), reward) for actions in policies]
    assert best_response(model, reward).value == pytest.approx(max(returns), abs=1e-11)


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("size", [1e-8, 1.0, 100.0])
def test_bounds_hold_for_any_values(implementation, loss, size):
    random = np.random.default_rng(3)
    for _ in range(20):
        model = random_model(random, 8, loss=loss)
        reward = random.normal(size=model.shape)
        best = best_response(model, reward)
        values = best.values + size * random.normal() + size * random.normal(size=8)
        lower, upper = bellman_bounds(model, reward, values)
        assert lower <= best.upper_bound
        assert upper >= best.value
        greedy = (reward + model.discount * model.following(values)).argmax(1)
        assert lower <= policy_return(model, greedy, reward) + 1e-12


def test_span_bound_ignores_constants(implementation):
    random = np.random.default_rng(4)
    model = random_model(random, 6)
    reward = random.normal(size=model.shape)
    best = best_response(model, reward)
    lower, upper = bellman_bounds(model, reward, best.values + 10.0)
    assert upper - lower < 1e-9


def test_warm_start_and_tolerance_and_deadline():
    random = np.random.default_rng(5)
    model = random_model(random, 50, discount=0.99)
    reward = random.random(model.shape)
    best = best_response(model, reward)
    changed = reward + 1e-3 * random.random(model.shape)
    warm = best_response(model, changed, values=best.values)
    assert warm.value == pytest.approx(best_response(model, changed).value, abs=1e-10)
    rough = best_response(model, reward, tolerance=0.1)
    assert rough.gap <= 0.1
    assert rough.value <= best.upper_bound
    assert rough.upper_bound >= best.value
    late = best_response(model, reward, deadline=monotonic())
    assert late.value <= best.value
    assert late.upper_bound >= best.upper_bound - 1e-10


def test_long_corridor_is_planned():
    problem = ox.Problem(ox.TabularMDP.chain(400), discount=0.99)
    best = ox.exact.value_iteration(problem)
    assert best.value == pytest.approx(0.99**399 / 0.01, rel=1e-10)
    assert (best.actions == 1).all()


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_both_terminations_match_linear_program(termination):
    lake = ox.Problem("FrozenLake8x8-v1", discount=0.99, termination=termination)
    model = dynamics(lake)
    infinite = model._replace(horizon=None)
    reward = np.asarray(lake.env.reward) * model.counting[:, None]
    best = best_response(infinite, reward)
    assert best.value == pytest.approx(optimum_by_linear_program(infinite, reward), abs=1e-8)


def test_finite_horizon_bounds_enclose_policy_of_each_step():
    random = np.random.default_rng(6)
    model = random_model(random, 5)._replace(horizon=7)
    reward = random.normal(size=model.shape)
    best = best_response(model, reward)
    values = np.zeros(5)
    transition = model.transition.toarray().reshape(*model.shape, 5)
    for _ in range(7):
        values = (reward + model.discount * transition @ values).max(1)
    assert best.value <= model.initial @ values <= best.upper_bound
    assert best.gap < 1e-12
    assert best.policy.shape == (7, *model.shape)


def test_kernel_and_arrays_agree(monkeypatch):
    random = np.random.default_rng(7)
    model = random_model(random, 30)
    reward = random.normal(size=model.shape)
    values = random.normal(size=30)
    vector = random.normal(size=30)
    if sweeps.planning.library() is None:
        pytest.skip("the kernels are not compiled")
    kernel = sweeps.KernelSweeps(model, reward)
    arrays = sweeps.ArraySweeps(model, reward)
    current = random.integers(0, 3, 30).astype(np.int32)
    for start, margin in ((None, 0.0), (current, 0.0), (current, 0.5)):
        one = kernel.backup(values, start, margin)
        other = arrays.backup(values, start, margin)
        assert (one.actions == other.actions).all()
        np.testing.assert_allclose(one.residual, other.residual, atol=1e-13)
        np.testing.assert_allclose(one[2:], other[2:], atol=1e-13)
    np.testing.assert_allclose(
        kernel.apply(current, vector), arrays.apply(current, vector), atol=1e-13
    )


def test_gauss_seidel_sweep_matches_loop():
    random = np.random.default_rng(8)
    model = random_model(random, 6)
    reward = random.normal(size=model.shape)
    if sweeps.planning.library() is None:
        pytest.skip("the kernels are not compiled")
    kernel = sweeps.KernelSweeps(model, reward)
    transition = model.transition.toarray().reshape(*model.shape, 6)
    for reverse in (False, True):
        expected = random.normal(size=6)
        swept = kernel.sweep(expected, reverse)
        for state in range(6)[:: -1 if reverse else 1]:
            expected[state] = (reward[state] + model.discount * transition[state] @ expected).max()
        np.testing.assert_allclose(swept, expected, atol=1e-13)


def test_results_do_not_depend_on_threads(monkeypatch):
    random = np.random.default_rng(9)
    states = 40_000
    pairs = states * 4
    columns = random.integers(0, states, (pairs, 5))
    data = random.dirichlet(np.ones(5), pairs)
    starts = np.arange(0, 5 * pairs + 1, 5)
    matrix = sparse.csr_array((data.ravel(), columns.ravel(), starts), shape=(pairs, states))
    no_features = sparse.csr_array((pairs, 1))
    model = Dynamics(matrix, np.full(states, 1 / states), no_features, np.ones(states), 0.9, None)
    reward = random.random((states, 4))
    values = random.random(states)
    residuals = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        residuals.append(sweeps.table_sweeps(model, reward).backup(values, None, 0.0).residual)
    np.testing.assert_array_equal(*residuals)
    best = best_response(model, reward, tolerance=1e-8)
    assert best.gap <= 1e-8


def test_krylov_solves_rotations_where_bicgstab_breaks_down():
    matrix = np.array([[0.0, 1.0], [-1.0, 0.0]])
    right = np.array([1.0, 0.0])
    solution = solve_krylov(lambda vector: matrix @ vector, right, 1e-10, 20)
    np.testing.assert_allclose(matrix @ solution, right, atol=1e-8)


def test_linear_solves_agree(implementation):
    random = np.random.default_rng(10)
    model = random_model(random, 30)
    solver = sweeps.table_sweeps(model, np.zeros(model.shape))
    actions = random.integers(0, 3, 30).astype(np.int32)
    right = random.normal(size=30)
    rows = 3 * np.arange(30) + actions
    matrix = np.eye(30) - model.discount * model.transition.toarray()[rows]
    solution = solver.solve(actions, right, 1e-12, 200)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-9)
    rough = solver.solve(actions, right, 1e-2, 200)
    assert np.linalg.norm(matrix @ rough - right) <= 1e-2 * np.linalg.norm(right)
    assert (solver.solve(actions, np.zeros(30), 1e-2, 200) == 0).all()

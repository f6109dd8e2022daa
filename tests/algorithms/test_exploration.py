"""Optimistic exploration of PlugIn against NumPy value iteration and exact optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.algorithms import exploration, planning
from occupax.algorithms.planning import Model
from occupax.batches import Transitions

pytestmark = pytest.mark.usefixtures("x64")


def lake_problem(utility=None, horizon=10):
    env = ox.TabularMDP.garnet(5, 3, 2, jax.random.key(0))
    return ox.Problem(env, utility, discount=0.9, horizon=horizon)


def random_counts(random, states=5, actions=3):
    counts = random.integers(0, 4, (states, actions, states)).astype(float)
    counts[0, 1] = 0.0
    rewards = random.normal(size=(states, actions)) * (counts.sum(2) > 0)
    ends = np.zeros(states)
    ends[3] = 2.0
    initial = np.eye(states)[0]
    return Transitions(initial=initial, counts=counts, rewards=rewards, ends=ends)


def optimistic_sweep(transitions, values, hope, eta, discount):
    """Return action values by loops over states, actions and next states."""
    states, actions, _ = transitions.counts.shape
    result = np.zeros((states, actions))
    for s, a in np.ndindex(states, actions):
        total = transitions.rewards[s, a] / hope + eta
        for t in range(states):
            if not transitions.ends[t]:
                total += discount * transitions.counts[s, a, t] * values[t]
        total += discount * eta * values.max()
        result[s, a] = total / (transitions.counts[s, a].sum() + eta)
    return result


@pytest.mark.parametrize("scale", [1.0, -2.0])
def test_values_are_those_of_optimistic_value_iteration(scale):
    problem = lake_problem(scale * ox.utilities.Reward())
    transitions = random_counts(np.random.default_rng(0))
    values = exploration.initial_values(problem, 5)
    assert values[0] == pytest.approx(10.0)  # 1 / (1 - min(0.9, 1 - 1 / 10))
    outlook, action_values = exploration.improve_values(problem, transitions, values, 0.5)
    rewards = scale * transitions.rewards
    means = np.abs(rewards) / np.maximum(transitions.counts.sum(2), 1)
    expected = np.asarray(values)
    scaled = Transitions(
        initial=transitions.initial,
        counts=transitions.counts,
        rewards=rewards,
        ends=transitions.ends,
    )
    for _ in range(exploration.SWEEPS):
        expected = optimistic_sweep(scaled, expected, 10 * means.max(), 0.5, 0.9).max(1)
    np.testing.assert_allclose(outlook, expected, rtol=1e-9)
    last = optimistic_sweep(scaled, expected, 10 * means.max(), 0.5, 0.9)
    np.testing.assert_allclose(action_values, last, rtol=1e-9)


def test_untried_pairs_have_the_highest_values():
    problem = lake_problem()
    transitions = random_counts(np.random.default_rng(1))
    values = exploration.initial_values(problem, 5)
    _, action_values = exploration.improve_values(problem, transitions, values, 1.0)
    assert action_values[0].argmax() == 1


def test_zero_rewards_have_a_hope_of_one():
    problem = lake_problem()
    transitions = random_counts(np.random.default_rng(2))
    silent = Transitions(
        initial=transitions.initial,
        counts=transitions.counts,
        rewards=jnp.zeros((5, 3)),
        ends=transitions.ends,
    )
    values = exploration.initial_values(problem, 5)
    outlook, _ = exploration.improve_values(problem, silent, values, 1.0)
    assert np.isfinite(outlook).all()
    assert outlook[0] == pytest.approx(10.0)


def test_greedy_plan_is_the_first_step_of_backward_induction():
    problem = lake_problem(horizon=12)
    env = problem.env
    transition = env.transition.toarray().reshape(5, 3, 5)
    tried = np.ones((5, 3, 5))
    model = Model(transition, env.reward, env.initial, env.terminal, None, tried)
    logits = planning.greedy_plan(problem, model, jnp.zeros((5, 3)))
    best = ox.exact.value_iteration(problem)
    assert np.asarray(logits).argmax(1).tolist() == best.actions[0].tolist()
    untried = tried.copy()
    untried[2, best.actions[0][2]] = 0.0
    model = Model(transition, env.reward, env.initial, env.terminal, None, untried)
    without = planning.greedy_plan(problem, model, jnp.zeros((5, 3)))
    assert np.asarray(without)[2].argmax() != best.actions[0][2]
    policy = jnp.asarray(logits)
    kept = planning.greedy_plan(problem, model, policy)
    np.testing.assert_array_equal(kept, policy)


def test_reward_prior_is_the_lowest_mean_where_another_policy_explores():
    problem = lake_problem()
    transitions = random_counts(np.random.default_rng(3))
    model = planning.posterior(problem, transitions, 0.1, optimistic=False)
    tried = transitions.counts.sum(2)
    lowest = (transitions.rewards / np.maximum(tried, 1))[tried > 0].min()
    assert model.reward[0, 1] == pytest.approx(min(lowest, 0.0))
    assert planning.posterior(problem, transitions, 0.1).reward[0, 1] > model.reward[0, 1]


def test_returns_alone_have_an_explorer():
    coverage = lake_problem(ox.utilities.LogCoverage(0.1))
    limit = ox.Constraint(ox.utilities.Entropy(0.1), at_least=0.0)
    limited = ox.Problem(coverage.env, horizon=10, constraints=[limit])
    assert exploration.is_return(lake_problem())
    assert not exploration.is_return(coverage)
    assert not exploration.is_return(limited)
    policy = ox.policies.tabular()(coverage.env, jax.random.key(0))
    assert ox.PlugIn().resolve(coverage, policy).batch == 20
    assert ox.PlugIn().resolve(lake_problem(), policy).batch == 1
    assert ox.PlugIn(optimism=0.0).resolve(lake_problem(), policy).batch == 20


def test_optimism_must_not_be_negative():
    with pytest.raises(ValueError, match="optimism must be"):
        ox.PlugIn(optimism=-1.0)


def deep_sea(rows):
    """Return a deep sea: only moves to the right in every row reach the treasure."""
    transition = np.zeros((rows * rows + 1, 2, rows * rows + 1))
    reward = np.zeros((rows * rows + 1, 2))
    for row, column in np.ndindex(rows, rows):
        state = row * rows + column
        for action, move in enumerate((-1, 1)):
            target = (row + 1) * rows + min(max(column + move, 0), rows - 1)
            transition[state, action, min(target, rows * rows)] = 1.0
        reward[state, 1] = -0.01 / rows
    reward[rows * rows - 1, 1] += 1.0
    end = np.arange(rows * rows + 1) == rows * rows
    initial = np.zeros(rows * rows + 1)
    initial[0] = 1.0
    return ox.Problem(ox.TabularMDP(transition, reward, initial, end), horizon=rows)


def test_deep_sea_is_solved():
    problem = deep_sea(5)
    best = ox.exact.value_iteration(problem).value
    result = ox.train(problem, ox.PlugIn(), episodes=120, seeds=2, progress=False)
    for seed in range(2):
        assert ox.exact.value(problem, result.policy(seed)) > 0.95 * best

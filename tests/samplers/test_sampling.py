import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.envs import ActionSpace, DiscreteActions
from occupax.envs.base import Environment


@pytest.fixture(scope="module")
def lake():
    return ox.Problem(
        ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), discount=0.95, horizon=30
    )


@pytest.fixture(scope="module")
def uniform(lake):
    return ox.policies.tabular()(lake.env, jax.random.key(0))


@pytest.fixture(scope="module")
def batch(lake, uniform):
    return ox.sample(lake, uniform, 4000, jax.random.key(1))


def test_every_sampled_step_is_possible_and_nothing_happens_after_the_end(lake, batch):
    env = lake.env
    table = env.transition.toarray().reshape(16, 4, 16)
    s, a, live = np.asarray(batch.observations), np.asarray(batch.actions), np.asarray(batch.live)
    following = np.concatenate([s[:, 1:], np.asarray(batch.final_observations)[:, None]], 1)
    assert (table[s[live], a[live], following[live]] > 0).all()
    assert not env.terminal[s[live]].any()
    assert env.terminal[s[~live]].all()
    assert (np.diff(live.astype(int), axis=1) <= 0).all()
    assert (np.asarray(batch.rewards)[~live] == 0).all()
    assert (np.asarray(batch.terminated) == env.terminal[following[:, -1]]).all()
    assert (np.asarray(batch.lengths) == live.sum(1)).all()
    np.testing.assert_allclose(
        np.asarray(batch.log_probs), np.where(live, np.log(0.25), 0.0), rtol=1e-6
    )


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_the_mean_over_many_trajectories_is_the_exact_occupancy(lake, uniform, batch, termination):
    problem = ox.Problem(lake.env, lake.utility, discount=0.95, horizon=30, termination=termination)
    alone = jax.tree.map(lambda leaf: leaf[:, None], batch)
    single = np.asarray(jax.vmap(lambda one: ox.estimators.occupancy(problem, one, uniform))(alone))
    exact = ox.exact.feature_occupancy(problem, np.full((16, 4), 0.25))
    deviations = np.abs(single.mean(0) - exact) / (single.std(0) / np.sqrt(len(single)) + 1e-9)
    assert (
        deviations.max() < 4.0
    )  # the largest of 16 standard normal deviations exceeds 4 once in a thousand seeds


def test_a_trajectory_depends_on_its_key_and_number_only(lake, uniform, batch):
    fewer = ox.sample(lake, uniform, 7, jax.random.key(1))
    assert eqx.tree_equal(fewer, jax.tree.map(lambda leaf: leaf[:7], batch))
    other = ox.sample(lake, uniform, 7, jax.random.key(2))
    assert not eqx.tree_equal(fewer, other)


def test_sampling_runs_inside_jit_and_vmap(lake, uniform):
    keys = jax.random.split(jax.random.key(3), 3)
    together = jax.jit(jax.vmap(lambda key: ox.sample(lake, uniform, 7, key)))(keys)
    for i, key in enumerate(keys):
        one = ox.sample(lake, uniform, 7, key)
        assert eqx.tree_equal(one, jax.tree.map(lambda leaf, i=i: leaf[i], together))


class Walk(Environment):
    """Goes up by a number of its own until it is above 1."""

    pace: jax.Array
    action_space: ActionSpace = DiscreteActions(2)
    time_limit: int | None = None

    def reset(self, key):
        return jnp.zeros(())

    def step(self, state, action, key):
        return state + self.pace, self.pace

    def observe(self, state):
        return state[None]

    def terminated(self, state):
        return state > 1

    def truncated(self, state):
        return jnp.zeros((), bool)


def test_several_environments_are_sampled_by_one_vmap():
    policy = ox.policies.linear()(Walk(pace=jnp.ones(())), jax.random.key(0))

    def lengths(pace, key):
        return ox.sample(
            ox.Problem(Walk(pace=pace), discount=0.9, horizon=9), policy, 2, key
        ).lengths

    paces, keys = jnp.array([0.3, 0.6]), jax.random.split(jax.random.key(0), 3)
    np.testing.assert_array_equal(jax.vmap(lengths, (0, None))(paces, keys[0]), [[4, 4], [2, 2]])
    both = jax.vmap(jax.vmap(lengths, (None, 0)), (0, None))(paces, keys)
    np.testing.assert_array_equal(both, np.broadcast_to([[[4]], [[2]]], (2, 3, 2)))


def test_episodes_that_begin_at_the_end_have_no_live_step():
    env = ox.TabularMDP(np.full((2, 1, 2), 0.5), np.ones((2, 1)), [0.0, 1.0], [False, True])
    policy = ox.policies.tabular()(env, jax.random.key(0))
    for termination, expected in (("episodic", [0.0, 0.0]), ("absorbing", [0.0, 1.75])):
        problem = ox.Problem(
            env, ox.utilities.LogCoverage(), discount=0.5, horizon=3, termination=termination
        )
        batch = ox.sample(problem, policy, 2, jax.random.key(0))
        assert not batch.live.any()
        np.testing.assert_allclose(ox.estimators.occupancy(problem, batch, policy), expected)
        np.testing.assert_allclose(ox.exact.feature_occupancy(problem, np.ones((2, 1))), expected)


def test_cartpole_ends_early_or_at_its_time_limit():
    problem = ox.Problem(ox.make("CartPole-v0"), discount=0.9)
    assert problem.horizon == 200
    always_left = ox.policies.Softmax(
        lambda observation: jnp.array([1e4, 0.0]) + 0 * observation[:2]
    )
    falls = ox.sample(problem, always_left, 5, jax.random.key(0))
    assert falls.terminated.all()
    assert (
        np.asarray(falls.lengths) < 12
    ).all()  # pushed one way, the pole falls within 12 steps from any start
    balance = ox.policies.Softmax(
        lambda o: 1e4 * jnp.array([0.0, 1.0]) * (o @ jnp.array([0.1, 0.5, 3.0, 1.0]))
    )
    lasts = ox.sample(problem, balance, 5, jax.random.key(0))
    assert not lasts.terminated.any()
    assert (np.asarray(lasts.lengths) == 200).all()
    returns = ox.estimators.occupancy(problem, lasts, balance)
    np.testing.assert_allclose(returns, [(1 - 0.9**200) / (1 - 0.9)], rtol=1e-5)

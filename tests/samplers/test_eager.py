"""Training on batches sampled outside of the compiled program, compared with that program."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import occupax as ox
from occupax.batches import Gradient, TargetQuery, parted
from occupax.samplers import host
from simulators import CALLS, Chain, Diary, key_of, seeds_of

LAKE = ox.make("FrozenLake-v1")
SIZES = {"snapshot_batch": 6, "batch": 4, "epoch_length": 3}
START = ox.policies.tabular(0.5)
KINK, ABOVE, BELOW = 0.5, 3.0, -1.0

lake = partial(ox.Problem, LAKE, discount=0.95, horizon=20)
coverage = lake(ox.utilities.LogCoverage(0.1))


def kinked(u):
    """Two slopes, so that the quasi-reward tells on which side of the kink an occupancy is."""
    return jnp.sum(jnp.where(u > KINK, ABOVE * u, BELOW * u))


RUNS = {
    "reinforce": (coverage, ox.REINFORCE(batch=6)),
    "svrpg": (coverage, ox.SVRPG(**SIZES)),
    "srvr-pg": (coverage, ox.SRVRPG(**SIZES)),
    "hspga": (coverage, ox.HSPGA(**SIZES)),
    "tsivr-pg": (coverage, ox.TSIVRPG(**SIZES)),
    "maxent": (coverage, ox.MaxEnt(batch=6)),
    "best output": (coverage, ox.TSIVRPG(**SIZES, output="best")),
    "adam, uniform output, baseline": (
        coverage,
        ox.REINFORCE(
            batch=6, step_size=1.0, rule=optax.adam(0.1), output="uniform", baseline="mean"
        ),
    ),
    "linear baseline": (coverage, ox.REINFORCE(batch=6, baseline="linear", mixing=1.0)),
    "linear utility": (lake(ox.utilities.Linear(np.arange(64.0) / 64)), ox.SRVRPG(**SIZES)),
    "kink": (lake(kinked), ox.SVRPG(**SIZES)),
}


def train(problem, algorithm, sampler="auto", episodes=28, seeds=2, policy=START, **options):
    settings = {"policy": policy, "sampler": sampler, "progress": False, **options}
    return ox.train(problem, algorithm, episodes, seeds, **settings)


def numbers(result):
    """Everything that was recorded, and all parameters."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result.policies) if eqx.is_array(leaf)]
    return (
        result.metrics
        | {"steps": result.steps}
        | {f"parameters {i}": leaf for i, leaf in enumerate(leaves)}
    )


def assert_close(one, other):
    assert one.status == other.status
    np.testing.assert_array_equal(one.episodes, other.episodes)
    for name, values in numbers(one).items():
        np.testing.assert_allclose(values, numbers(other)[name], rtol=1e-4, atol=2e-5, err_msg=name)


def apart(one, other):
    """The largest difference of a parameter."""
    there = numbers(other)
    return max(
        np.abs(it - there[name]).max()
        for name, it in numbers(one).items()
        if name.startswith("parameters")
    )


def assert_same_bits(one, other):
    assert one.status == other.status
    for name, values in numbers(one).items():
        assert values.tobytes() == numbers(other)[name].tobytes(), name


@pytest.mark.parametrize("name", RUNS)
def test_training_is_that_of_the_compiled_program(name):
    problem, algorithm = RUNS[name]
    compiled = train(problem, algorithm)
    assert len(compiled.episodes) >= 4
    shards = (
        1 if name in ("hspga", "linear utility") else 3
    )  # the halves of one shard, and of several
    assert_close(train(problem, algorithm, ox.samplers.Host(shards=shards)), compiled)


def another_reward(block, query):
    if not isinstance(query, Gradient):
        return block, query
    return block, replace(query, quasi_reward=1.01 * query.quasi_reward)


def the_policy_that_acted(block, query):
    return block, replace(query, target=None) if isinstance(query, TargetQuery) else query


def the_policies_swapped(block, query):
    if not isinstance(query, TargetQuery) or query.target is None:
        return block, query
    return eqx.tree_at(lambda it: it.policy, block, query.target), replace(
        query, target=block.policy
    )


@pytest.mark.parametrize("mutate", [another_reward, the_policy_that_acted, the_policies_swapped])
def test_wrong_answers_are_noticed(mutate, monkeypatch):
    problem, algorithm = RUNS["tsivr-pg"]
    compiled, compiled_answers = train(problem, algorithm, "jax"), parted.compiled_answers
    plain = ox.samplers.Host(engine="jax")
    assert_close(train(problem, algorithm, plain), compiled)

    def wrong(block):
        def ask(query, path):
            changed, other = mutate(block, query)
            return compiled_answers(changed)(other, path)

        return ask

    monkeypatch.setattr(host, "compiled_answers", wrong)
    with pytest.raises(AssertionError):
        assert_close(train(problem, algorithm, plain), compiled)


def test_a_batch_is_asked_eagerly_and_answers_with_numbers(monkeypatch):
    problem, algorithm = RUNS["kink"]
    compiled_answers, rewards = parted.compiled_answers, []

    def listen(block):
        def ask(query, path):
            if isinstance(query, Gradient):
                rewards.append(np.asarray(query.quasi_reward))
            return compiled_answers(block)(query, path)

        return ask

    monkeypatch.setattr(host, "compiled_answers", listen)
    train(problem, algorithm, ox.samplers.Host(), 6, seeds=1)
    assert [set(reward.tolist()) for reward in rewards] == [
        {BELOW, ABOVE}
    ]  # one gradient, asked once


def test_a_mean_baseline_does_not_depend_on_the_number_of_shards():
    problem, _ = RUNS["reinforce"]
    algorithm = ox.TSIVRPG(**SIZES, baseline="mean", step_size=0.3)
    whole = train(problem, algorithm)
    for shards in (2, 6):  # of six trajectories: down to shards of one, which has no others
        assert_close(train(problem, algorithm, ox.samplers.Host(shards=shards)), whole)
    assert (
        apart(train(problem, ox.TSIVRPG(**SIZES, baseline="none", step_size=0.3)), whole) > 1e-3
    )  # and the baseline matters


@pytest.mark.filterwarnings("ignore:the gradient of the utility Custom is not finite")
def test_runs_that_fail_are_told_apart_as_in_the_compiled_program():
    # a derivative that is infinite where a pair is not visited, which only some runs do
    root = lake(lambda u: jnp.sum(jnp.sqrt(u[4:6])), horizon=3)
    results = [
        train(root, ox.TSIVRPG(**SIZES), sampler, seeds=4)
        for sampler in ("auto", ox.samplers.Host())
    ]
    assert_close(*results)
    assert len({*results[0].status}) > 1


# Environments of Gymnasium


def chain(env):
    return ox.Problem(env, ox.utilities.LogCoverage(0.1), discount=0.9, horizon=6)


@pytest.fixture(scope="module")
def trained():
    return train(chain(ox.GymnasiumEnv(Chain)), ox.TSIVRPG(**SIZES))


def test_a_simulator_is_trained_like_the_table_of_it(trained):
    transition = np.zeros((5, 2, 5))
    for state in range(5):
        transition[state, 0, state] = transition[state, 1, min(state + 1, 4)] = 1.0
    table = ox.TabularMDP(transition, Chain.REWARDS, [1, 0, 0, 0, 0], [False] * 4 + [True])
    result = train(chain(table), ox.TSIVRPG(**SIZES), "jax")
    assert_close(trained, result)
    assert apart(trained, train(chain(table), ox.TSIVRPG(**SIZES), "jax", seed=1)) > 1e-2


@pytest.mark.parametrize(
    "sampler",
    [ox.samplers.Host(envs=1), ox.samplers.Host(envs=3), ox.samplers.Host(envs=3, processes=2)],
    ids=str,
)
def test_it_makes_no_difference_how_many_environments_there_are_nor_where(trained, sampler):
    assert_same_bits(train(chain(ox.GymnasiumEnv(Chain)), ox.TSIVRPG(**SIZES), sampler), trained)


def test_shards_of_a_simulator_add_up(trained):
    assert_close(
        train(chain(ox.GymnasiumEnv(Chain)), ox.TSIVRPG(**SIZES), ox.samplers.Host(shards=4)),
        trained,
    )


def test_every_episode_is_played_once_and_from_its_own_seed():
    problem = ox.Problem(
        ox.GymnasiumEnv(Diary),
        lambda u: -jnp.sum((u - 3.0) ** 2),
        horizon=4,
        features=ox.features.Reward(),
    )
    CALLS.clear()
    train(
        problem,
        ox.REINFORCE(batch=5, step_size=1e-9),
        ox.samplers.Host(shards=2),
        10,
        policy=ox.policies.linear(),
    )
    resets = [call[1] for call in CALLS if call[0] == "reset"]
    expected = [
        seed
        for iteration in range(2)
        for run in range(2)
        for seed in seeds_of(key_of(run, iteration), 5)
    ]
    assert sorted(resets) == sorted(expected)


# Constraints on what a simulator reports


def discounted_costs(problem, policy, n=200):
    """The mean discounted sum of the costs, by hand and as it is estimated."""
    drawn = ox.sample(problem, policy, n, jax.random.key(5))
    costs = np.where(drawn.live, 1.0 + 2.0 * np.asarray(drawn.actions), 0.0)
    by_hand = (costs * problem.discount ** np.arange(problem.horizon)).sum(1).mean()
    return by_hand, ox.estimators.occupancy(problem, drawn, policy)


def test_a_constraint_on_a_cost_is_met_by_training():
    env = ox.GymnasiumEnv(Chain, info=["state", "cost"])
    limit = 7.0
    inside = ox.utilities.SetDistance(
        ox.features.Info("cost"), ox.utilities.Halfspace([1.0], limit)
    )
    problem = ox.Problem(env, inside, discount=0.9, horizon=8)
    algorithm = ox.REINFORCE(batch=20, step_size=0.05, baseline="mean")
    result = train(problem, algorithm, episodes=400, seeds=1, policy=ox.policies.tabular())
    before, estimate = discounted_costs(problem, ox.policies.tabular()(env, jax.random.key(0)))
    np.testing.assert_allclose(estimate, [before], rtol=1e-5)
    after, estimate = discounted_costs(problem, result.policy())
    np.testing.assert_allclose(estimate, [after], rtol=1e-5)
    assert before > limit + 1
    assert after < limit + 0.3
    np.testing.assert_allclose(
        problem.estimated_utility(estimate), -(max(0.0, after - limit) ** 2), atol=1e-4
    )


def test_info_is_counted_by_name_and_only_where_it_is_recorded():
    env = ox.GymnasiumEnv(Chain, info=["state", "cost"])
    both = ox.Problem(
        env, lambda u: u[0], horizon=8, discount=0.9, features=ox.features.Info("cost", "state")
    )
    policy = ox.policies.tabular()(env, jax.random.key(0))
    drawn = ox.sample(both, policy, 5, jax.random.key(0))
    assert drawn.info is not None
    states = np.cumsum(drawn.actions, 1) * np.asarray(drawn.live)
    np.testing.assert_array_equal(drawn.info[..., 0], states)
    np.testing.assert_array_equal(
        drawn.info[..., 1], np.where(drawn.live, 1 + 2 * drawn.actions, 0)
    )
    mass = 0.9 ** np.arange(8)
    np.testing.assert_allclose(
        ox.estimators.occupancy(both, drawn, policy),
        [(np.asarray(drawn.info[..., place]) * mass).sum(1).mean() for place in (1, 0)],
        rtol=1e-5,
    )
    with pytest.raises(
        ValueError, match=r"'price' is not recorded: .*info=\['cost', 'price', 'state'\]"
    ):
        ox.Problem(env, lambda u: u[0], features=ox.features.Info("price"))
    with pytest.raises(ValueError, match="'cost' is not recorded"):
        ox.Problem(LAKE, lambda u: u[0], features=ox.features.Info("cost"))


# Folders


def test_a_run_of_an_id_is_saved_loaded_and_resumed(tmp_path):
    problem = ox.Problem(
        ox.GymnasiumEnv("CartPole-v1", sutton_barto_reward=True), discount=0.9, horizon=9
    )
    run = partial(
        train, problem, ox.REINFORCE(batch=4), seeds=2, policy=ox.policies.mlp(hidden=(4,))
    )
    whole = run(episodes=16)
    run(episodes=8, out=tmp_path / "run")
    resumed = run(episodes=16, out=tmp_path / "run", resume=True, sampler=ox.samplers.Host(envs=2))
    loaded = ox.load_result(tmp_path / "run")
    for result in (resumed, loaded):
        assert_same_bits(result, whole)
    assert loaded.problem is not None
    assert loaded.problem.env == problem.env
    assert loaded.problem.env.make().spec.kwargs == {"sutton_barto_reward": True}
    seen = np.array([0.1, -0.2, 0.03, 0.0], np.float32)
    np.testing.assert_array_equal(loaded.policy().probs(seen), whole.policy().probs(seen))

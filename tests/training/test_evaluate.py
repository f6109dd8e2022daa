import sys
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.training.evaluation import Evaluation, evaluate

MODULE = sys.modules["occupax.training.evaluation"]
KEY = jax.random.key(0)
LAKE = ox.make("FrozenLake-v1")
CART = ox.make("CartPole-v1")
UNIFORM = ox.policies.tabular()(LAKE, KEY)
BALANCED = ox.policies.linear()(CART, KEY)


class Countdown(gym.Env[Any, Any]):
    """Environment with states 5, 6 and 7 and reward 1. In state 7, action 3 terminates with 10."""

    def __init__(self, time_limit=None):
        self.observation_space = gym.spaces.Discrete(3, start=5)
        self.action_space = gym.spaces.Discrete(2, start=3)
        self.time_limit = time_limit
        self.closed = False
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.time = 0
        return 5, {}

    def step(self, action):
        assert action in self.action_space
        ends = self.time >= 2 and action == 3
        self.time += 1
        return min(5 + self.time, 7), 1 + 10 * ends, ends, self.time == self.time_limit, {}

    def close(self):
        self.closed = True


def certain(*actions):
    return ox.policies.Tabular(
        jnp.array([[0.0, 100.0] if action else [100.0, 0.0] for action in actions])
    )


def truth_in_the_lake(steps):
    """Return the mean return of the uniform policy over `steps` steps, from Gymnasium's table."""
    env = gym.make("FrozenLake-v1").unwrapped
    moves, pays = np.zeros((16, 16)), np.zeros(16)
    for state in range(16):
        for action in range(4):
            for probability, following, reward, ended in env.P[state][action]:
                pays[state] += probability * reward / 4
                moves[state, following] += 0 if ended else probability / 4
    mass, total = env.initial_state_distrib, 0.0
    for _ in range(steps):
        total, mass = total + mass @ pays, mass @ moves
    return total


@pytest.mark.parametrize("env", ["FrozenLake-v1", LAKE], ids=["Gymnasium", "occupax"])
def test_the_return_of_chance_in_the_lake_is_the_true_one(env):
    result = evaluate(UNIFORM, env, episodes=2000, max_steps=100)
    truth = truth_in_the_lake(100)
    assert 0.01 < truth < 0.02
    assert result.standard_error == pytest.approx(np.sqrt(truth * (1 - truth) / 2000), rel=0.3)
    assert abs(result.mean - truth) < 4 * np.sqrt(truth * (1 - truth) / 2000)
    problem = ox.Problem(LAKE, discount=0.99, horizon=100)
    assert ox.exact.value(problem, np.full((16, 4), 0.25)) < truth


def test_chance_in_the_cart_does_as_well_in_gymnasium_as_in_occupax():
    there, here = (
        evaluate(BALANCED, env, episodes=300, seed=3, max_steps=1000)
        for env in ("CartPole-v1", CART)
    )
    assert there.terminated.all()
    assert here.terminated.all()
    np.testing.assert_array_equal(there.returns, there.lengths)
    np.testing.assert_array_equal(here.returns, here.lengths)
    assert abs(there.mean - here.mean) < 4 * np.hypot(there.standard_error, here.standard_error)
    assert 20 < here.mean < 25


@pytest.mark.parametrize("env", ["FrozenLake-v1", LAKE], ids=["Gymnasium", "occupax"])
def test_an_episode_depends_on_the_seed_and_its_number_only(env):
    many = evaluate(UNIFORM, env, episodes=30, seed=1, max_steps=20)
    few = evaluate(UNIFORM, env, episodes=7, seed=1, max_steps=20)
    for all_of_them, first in zip(many, few, strict=True):
        np.testing.assert_array_equal(all_of_them[:7], first)
    assert not np.array_equal(
        evaluate(UNIFORM, env, episodes=30, seed=2, max_steps=20).lengths, many.lengths
    )
    assert len(set(many.lengths.tolist())) > 5
    assert many.lengths.max() == 20
    assert many.terminated[many.lengths < 20].all()
    assert not many.terminated.all()


def test_blocks_bound_the_memory_and_are_all_different(monkeypatch):
    monkeypatch.setattr(
        MODULE, "MAX_BLOCK_NUMBERS", 20 * 6 * 7
    )  # 20 steps of 6 numbers: blocks of 7 episodes
    sizes = []
    monkeypatch.setattr(
        MODULE, "sample", lambda *arguments: sizes.append(arguments[2]) or ox.sample(*arguments)
    )
    result = evaluate(UNIFORM, LAKE, episodes=25, max_steps=20)
    assert sizes == [7, 7, 7, 7]
    assert [len(column) for column in result] == [25, 25, 25]
    assert not np.array_equal(result.lengths[:7], result.lengths[7:14])


def test_a_known_environment_gives_the_known_answer():
    env = Countdown()
    result = evaluate(certain(0, 1, 0), env, episodes=4, seed=9)
    assert result.returns.tolist() == [13.0] * 4
    assert result.lengths.tolist() == [3] * 4
    assert result.terminated.tolist() == [True] * 4
    assert [column.dtype for column in result] == [np.float64, np.int64, np.bool_]
    assert len(set(env.seeds)) == 4
    assert not env.closed


def test_a_cut_episode_has_not_ended_by_itself():
    never = certain(0, 0, 1)
    by_caller = evaluate(never, Countdown(), episodes=2, max_steps=6)
    by_env = evaluate(never, Countdown(time_limit=4), episodes=2, max_steps=6)
    assert (by_caller.lengths.tolist(), by_caller.terminated.tolist()) == ([6, 6], [False, False])
    assert (by_env.lengths.tolist(), by_env.terminated.tolist()) == ([4, 4], [False, False])


def test_the_half_way_policy_ends_half_the_time():
    indifferent = ox.policies.Tabular(jnp.zeros((3, 2)))
    lengths = evaluate(indifferent, Countdown(), episodes=2000).lengths
    assert lengths.min() == 3
    assert abs(lengths.mean() - 4) < 4 * np.sqrt(
        2 / 2000
    )  # two, and a geometric law of mean 2 and variance 2


def test_environments_made_here_are_closed(monkeypatch):
    monkeypatch.setitem(
        gym.registry, "Countdown-v0", gym.envs.registration.EnvSpec("Countdown-v0", Countdown)
    )
    made, closed, make = [], [], Countdown.__init__
    monkeypatch.setattr(Countdown, "__init__", lambda self: make(self) or made.append(self))
    monkeypatch.setattr(Countdown, "close", lambda self: closed.append(id(self)))
    evaluate(certain(0, 0, 0), "Countdown-v0", episodes=3)
    assert len(made) > 3
    assert {*closed} == {*map(id, made)}
    with pytest.raises(ValueError, match="policy was made for 16 states"):
        evaluate(UNIFORM, "Countdown-v0")
    assert {*closed} == {*map(id, made)}


def test_observations_of_several_parts_reach_a_policy_made_for_them():
    class Hand(ox.policies.Categorical):
        weight: jax.Array

        def logits(self, observation):
            total, dealer, _ = observation
            return self.weight * (total + dealer)

    result = evaluate(Hand(jnp.array([1.0, -1.0])), "Blackjack-v1", episodes=20)
    assert set(result.returns.tolist()) <= {-1.0, 0.0, 1.0, 1.5}
    assert result.lengths.tolist() == [1] * 20


class Careless(ox.policies.Policy):
    """Policy without logits that draws action 1 with a constant probability."""

    action_space = "discrete"
    chance: jax.Array

    def draw(self, observation, key):
        action = jax.random.bernoulli(key, self.chance).astype(jnp.int32)
        return action, self.log_prob(observation, action)

    def log_prob(self, observation, action):
        del observation
        return jnp.log(jnp.where(action == 1, self.chance, 1 - self.chance))


@pytest.mark.parametrize("env", ["CartPole-v1", CART], ids=["Gymnasium", "occupax"])
def test_a_policy_that_can_only_draw_is_evaluated_by_what_it_draws(env):
    always, chance = (evaluate(Careless(jnp.array(p)), env, episodes=20) for p in (1 - 1e-6, 0.5))
    assert always.lengths.max() <= 11  # pushing to one side lets the pole fall at once
    assert chance.mean > 15


class Paying(gym.Env[Any, Any]):
    """Five-step environment with random observations, rewarding the weighted sum of the action."""

    def __init__(self, actions):
        self.observation_space, self.action_space, self._time = (
            gym.spaces.Box(-1.0, 1.0, (3,)),
            actions,
            0,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._look(), {}

    def step(self, action):
        assert action in self.action_space
        self._time += 1
        entries = np.ravel(action).astype(float)
        return (
            self._look(),
            float(entries @ np.arange(1, entries.size + 1)),
            self._time == 5,
            False,
            {},
        )

    def _look(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


MOST_PROBABLE = {
    "discrete": (gym.spaces.Discrete(4, start=2), ox.policies.mlp((8,), scale=1.0)),
    "several": (gym.spaces.MultiDiscrete([2, 5, 3]), ox.policies.mlp((8,), scale=1.0)),
    "box": (gym.spaces.Box(-1.0, 3.0, (2,)), ox.policies.gaussian((8,), by_observation=True)),
    "squashed": (gym.spaces.Box(-1.0, 3.0, (2,)), ox.policies.squashed((8,))),
}


@pytest.mark.parametrize("kind", MOST_PROBABLE)
def test_the_most_probable_actions_are_those_of_predict(kind):
    """`predict` and the features of the problem use the same actions."""
    space, make = MOST_PROBABLE[kind]
    env = ox.make(lambda: Paying(space))
    policy = make(env, KEY).for_env(env)
    policy = jax.tree.map(lambda leaf: 10 * leaf if eqx.is_array(leaf) else leaf, policy).for_env(
        env
    )
    problem = ox.Problem(
        env, lambda counts: counts.sum(), features=lambda _, a: 1.0 * a.reshape(-1), horizon=5
    )
    for where in (Paying(space), problem):
        found = evaluate(policy, where, episodes=4, deterministic=True)
        predicted = evaluate(
            lambda seen: policy.predict(seen, deterministic=True), where, episodes=4
        )
        np.testing.assert_allclose(found.returns, predicted.returns, rtol=1e-5)
        assert not np.allclose(found.returns, evaluate(policy, where, episodes=4).returns)
        for name, estimate in predicted.objective.items():
            np.testing.assert_allclose(found.objective[name], estimate, rtol=1e-5)


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_the_most_probable_actions_on_a_table_are_those_of_its_rows(termination):
    """The estimates match the exact values of the deterministic table at 99.99%."""
    policy = ox.policies.tabular(1.0)(LAKE, KEY)
    table = np.eye(4)[np.asarray(policy.table).argmax(1)]
    problem = ox.Problem(LAKE, "entropy", discount=0.9, horizon=20, termination=termination)
    found = evaluate(policy, problem, episodes=2000, deterministic=True).utility
    assert (
        abs(found.value - ox.exact.value(problem, table)) < 2 * (found.upper - found.value) + 1e-3
    )


def test_the_most_probable_action_is_found_by_probabilities_or_not_at_all():
    careless = Careless(jnp.array(0.6))
    for env in ("CartPole-v1", CART):
        found = evaluate(careless, env, episodes=20, deterministic=True)
        assert found.lengths.max() <= 11  # pushing to one side lets the pole fall at once

    class Walk(Careless):
        action_space = "box"

        def draw(self, observation, key):
            return jax.random.normal(key, (1,)), self.log_prob(observation, None)

        def log_prob(self, observation, action):
            del observation, action
            return jnp.zeros(())

    with pytest.raises(
        ValueError, match="deterministic must be False, because the most probable action of Walk is"
    ):
        evaluate(Walk(jnp.array(0.6)), "Pendulum-v1", deterministic=True)


@pytest.mark.parametrize("env", ["FrozenLake-v1", LAKE], ids=["Gymnasium", "occupax"])
def test_probabilities_that_are_not_numbers_are_refused_where_nothing_is_drawn(env):
    broken = eqx.tree_at(lambda policy: policy.table, UNIFORM, jnp.full((16, 4), jnp.nan))
    with pytest.raises(ValueError, match="policy must return finite probabilities"):
        evaluate(broken, env, max_steps=5, deterministic=True)


def test_an_old_version_is_run_without_a_warning():
    assert evaluate(BALANCED, "CartPole-v0", episodes=1, max_steps=2).lengths.tolist() == [2]


def test_a_problem_is_evaluated_with_its_utility_and_its_limits():
    """The exact values lie within twice the intervals of 4,000 episodes."""
    limit, uniform = ox.Constraint(LAKE.reward + 0.5, at_most=2.0), np.full((16, 4), 0.25)
    problem = ox.Problem(LAKE, "entropy", discount=0.9, horizon=8, constraints=[limit])
    found = evaluate(UNIFORM, problem, episodes=4000)
    exact = ox.exact.feature_occupancy(problem, uniform)
    (name,) = found.constraints
    known = {
        "utility": ox.exact.value(problem, uniform),
        name: 2.0 + float(problem.excesses(jnp.asarray(exact))[0]),
    }
    for what, value in known.items():
        estimate = found.objective[what]
        width = estimate.upper - estimate.value
        assert 0 < width < 0.2
        assert abs(estimate.value - value) < 2.05 * width
    assert found.interval.upper - found.mean == pytest.approx(1.96 * found.standard_error)
    assert "utility" in str(found)
    assert repr(found).splitlines()[0] == "Evaluation: 4,000 episodes"
    assert "table" in found._repr_html_()
    with pytest.raises(ValueError, match="max_steps must be None for a problem"):
        evaluate(UNIFORM, problem, max_steps=3)


def test_intervals_cover_what_is_true():
    """Of 60 intervals of 95%, fewer than 50 cover the truth with a probability of 1e-4."""
    problem = ox.Problem(
        LAKE, lambda u: -jnp.sum(u**2), features=ox.features.State(), discount=0.9, horizon=4
    )
    true = ox.exact.value(problem, np.full((16, 4), 0.25))
    found = [evaluate(UNIFORM, problem, episodes=200, seed=seed).utility for seed in range(60)]
    assert sum(it.lower <= true <= it.upper for it in found) >= 50


def test_a_problem_in_gymnasium_is_evaluated_there():
    env = ox.make(lambda: Countdown())  # noqa: PLW0108
    problem = ox.Problem(env, ox.utilities.Reward(), discount=0.5, horizon=5)
    found = evaluate(certain(0, 0, 0), problem, episodes=4)
    assert found.utility.value == pytest.approx(1 + 0.5 + 11 * 0.25)
    assert found.returns.tolist() == [13.0] * 4


def test_an_evaluation_reads_well():
    result = Evaluation(
        np.array([0.0, 1.0, 1.0, 1.0]), np.array([1, 2, 3, 5]), np.array([True, True, False, True])
    )
    assert (result.mean, result.standard_error, result.mean_length) == (0.75, 0.25, 2.75)
    assert str(result) == "return 0.75 +- 0.25 (4 episodes of 2.8 steps on average, 75% terminated)"
    alone = Evaluation(np.array([2.0]), np.array([1]), np.array([True]))
    assert str(alone) == "return 2 +- nan (1 episode of 1.0 steps on average, 100% terminated)"


@pytest.mark.parametrize(
    ("policy", "env", "options", "sentence"),
    [
        (
            BALANCED,
            "CartPol-v1",
            {},
            r"id 'CartPol-v1' is not known\. Did you mean 'CartPole-v1'\? Known: \S+, \S+\.$",
        ),
        (
            BALANCED,
            "CartPole-v9",
            {},
            r"^'CartPole-v9' is not offered by what is installed: use 'CartPole-v1'\.$",
        ),
        (
            BALANCED,
            "Zzz-v0",
            {},
            r"^Gymnasium id 'Zzz-v0' is not known; gymnasium\.pprint_registry\(\) lists",
        ),
        (BALANCED, "LunarLander-v0", {}, r"LunarLander-v\d"),
        (BALANCED, "", {}, "Malformed environment ID"),
        (
            BALANCED,
            3,
            {},
            r"^env must be a Gymnasium id, or an environment of Gymnasium or occupax, got 3\.$",
        ),
        (BALANCED, "Acrobot-v1", {}, r"^policy does not take the observations of env, Box\("),
        (
            BALANCED,
            "FrozenLake-v1",
            {},
            r"^policy does not take the observations of env, Discrete\(16\): ",
        ),
        (BALANCED, LAKE, {"max_steps": 3}, "^policy does not take the observations of env, "),
        (BALANCED, "Blackjack-v1", {}, r"^policy does not take the observations of env, Tuple\("),
        (
            ox.policies.Softmax(lambda _: jnp.zeros(3)),
            "CartPole-v1",
            {},
            r"logits for 2 actions, got shape \(3,\)\.$",
        ),
        (
            ox.policies.Softmax(lambda _: jnp.zeros(3)),
            CART,
            {},
            r"logits for 2 actions, got shape \(3,\)\.$",
        ),
        (
            UNIFORM,
            "FrozenLake8x8-v1",
            {},
            r"^policy was made for 16 states, but env has 64 states\.$",
        ),
        (
            UNIFORM,
            ox.make("FrozenLake8x8-v1"),
            {},
            r"^policy was made for 16 states, but env has 64 states\.$",
        ),
        (
            UNIFORM,
            "CartPole-v1",
            {},
            r"^policy was made for 16 states, but env has observations that are not states\.$",
        ),
        (
            UNIFORM,
            CART,
            {},
            r"^policy was made for 16 states, but env has observations that are not states\.$",
        ),
        (
            ox.policies.mlp()(LAKE, KEY),
            "Taxi-v4",
            {},
            r"^policy was made for 16 states, but env has 500 states\.$",
        ),
        (
            ox.policies.tabular(),
            CART,
            {},
            r"^policy must be an occupax policy, got an initialiser; call the initialiser",
        ),
        (
            UNIFORM,
            LAKE,
            {},
            r"^max_steps must be given for an environment without a time limit, got None\.$",
        ),
        (
            UNIFORM,
            LAKE,
            {"episodes": 0},
            r"^episodes must be an integer of at least 1, got 0\.$",
        ),
        (UNIFORM, LAKE, {"seed": -1}, r"^seed must be an integer of at least 0, got -1\.$"),
        (
            UNIFORM,
            LAKE,
            {"max_steps": 2.5},
            r"^max_steps must be an integer of at least 1, got 2\.5\.$",
        ),
        (
            eqx.tree_at(lambda p: p.table, UNIFORM, jnp.full((16, 4), jnp.nan)),
            "FrozenLake-v1",
            {},
            "return finite prob",
        ),
    ],
)
def test_bad_input_is_answered_with_a_sentence(policy, env, options, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        evaluate(policy, env, **options)
    assert len(str(caught.value)) < 400

"""Rewards that are vectors: each is counted, and their sum is the return."""

import importlib
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.envs.episode import episode_seeds

KEY = jax.random.key(5)


class Choice(gym.Env[Any, Any]):
    """Two-step environment. Action 0 has the reward (1, 0), action 1 the reward (0, 2)."""

    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)
    reward_space = gym.spaces.Box(0.0, 2.0, (2,))

    def __init__(self, length: int = 2):
        self.length, self.time = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.time = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        paid = np.zeros(self.length, np.float32)
        paid[action] = (1.0, 2.0)[action]
        return self.time, paid, self.time == 2, False, {"bonus": 3.0}


class Undeclared(Choice):
    """Choice without a declared reward space."""

    @property
    def reward_space(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise AttributeError


def problem(utility: Any = jnp.sum, **options: Any) -> ox.Problem:
    return ox.Problem(
        ox.GymnasiumEnv(Choice, **options), utility, 0.5, horizon=2, features=ox.features.Rewards()
    )


def test_each_reward_is_counted_and_their_sum_is_the_reward():
    posed = problem(info=["bonus"])
    assert (posed.size, posed.env.info) == (2, ("bonus", "reward[0]", "reward[1]"))
    policy = ox.policies.tabular()(posed.env, KEY)
    drawn = ox.sample(posed, policy, 40, KEY)
    actions, weights = np.asarray(drawn.actions), np.array([1.0, 0.5])
    expected = [((actions == 0) @ weights).mean(), 2 * ((actions == 1) @ weights).mean()]
    assert 0 < expected[0] < 1.5
    np.testing.assert_allclose(ox.estimators.occupancy(posed, drawn, policy), expected, rtol=1e-6)
    np.testing.assert_array_equal(drawn.rewards, np.where(actions == 0, 1.0, 2.0))
    both = ox.Problem(
        posed.env,
        jnp.sum,
        0.5,
        2,
        features=ox.features.Stack(ox.features.Info("bonus"), ox.features.Rewards()),
    )
    np.testing.assert_allclose(
        ox.estimators.occupancy(both, drawn, policy), [4.5, *expected], rtol=1e-6
    )


def test_a_utility_of_both_returns_is_maximised():
    # with x the share of action 0 in both steps: log(0.1 + 1.5 x) + log(0.1 + 3 (1 - x)) is largest
    # at x = 0.4833
    posed = problem(lambda returns: jnp.log(0.1 + returns).sum())
    result = ox.train(
        posed, ox.REINFORCE(batch=40, step_size=0.05), 1_600, policy="tabular", progress=False
    )
    best = max(
        float(np.log(0.1 + 1.5 * x) + np.log(0.1 + 3 * (1 - x))) for x in np.linspace(0, 1, 1_001)
    )
    assert result.metrics["utility"][0, -10:].mean() == pytest.approx(
        best, abs=0.05
    )  # by chance alone 0.02
    only_second = float(np.log(0.1) + np.log(3.1))  # where the sum of the rewards is largest
    assert best > only_second + 1


@pytest.mark.filterwarnings("ignore:.*precision lowered")  # of bounds, in the package
def test_rewards_of_mo_gymnasium_are_the_same_as_there():
    there: Any = importlib.import_module("mo_gymnasium").make("resource-gathering-v0")

    posed = ox.Problem(
        "mo_gymnasium:resource-gathering-v0", jnp.sum, horizon=12, features=ox.features.Rewards()
    )
    drawn = ox.sample(posed, ox.policies.linear()(posed.env, KEY), 6, KEY)
    seeds = episode_seeds(np.asarray(jax.random.key_data(KEY)), 0, 6)
    paid = np.zeros((6, 12, 3))
    for number, seed in enumerate(seeds):
        there.reset(seed=seed)
        for step in range(int(drawn.lengths[number])):
            paid[number, step] = there.step(int(drawn.actions[number, step]))[1]
    assert drawn.info is not None
    np.testing.assert_array_equal(drawn.info, paid.astype(np.float32))
    np.testing.assert_allclose(drawn.rewards, paid.sum(-1))


def test_a_wrapper_that_makes_numbers_of_them_makes_a_reward_that_is_a_number():
    def summed() -> Any:
        return gym.wrappers.TransformReward(
            Choice(), lambda rewards: float(np.asarray(rewards).sum())
        )

    env = ox.GymnasiumEnv(summed)
    assert (env.reward_size, env.info) == (None, ())
    assert ox.Problem(env, horizon=2).size == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ox.Problem(ox.GymnasiumEnv(Choice)),
            "Reward features need a reward that is a number, got a vector of 2",
        ),
        (
            lambda: ox.Problem("CartPole-v1", jnp.sum, features=ox.features.Rewards()),
            "Rewards features need an environ",
        ),
    ],
)
def test_the_wrong_feature_says_which_is_right(make: Any, said: str):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_vector_of_another_length_is_refused_where_it_is_met():
    lengths = iter([2] + 8 * [3])  # the first one is made to see what it is like

    def changing() -> Any:
        return Choice(next(lengths))

    posed = ox.Problem(
        ox.GymnasiumEnv(changing), jnp.sum, horizon=2, features=ox.features.Rewards()
    )
    with pytest.raises(ox.samplers.EpisodeError, match="reward_size was 2, and is 3"):
        ox.sample(posed, ox.policies.tabular()(posed.env, KEY), 1, KEY)


def test_check_env_takes_vectors_that_are_declared():
    assert ox.check_env(Choice, episodes=2) == ()
    (wrong,) = ox.check_env(partial(Choice, 3), episodes=1)
    assert (wrong.what, wrong.expected, wrong.actual) == (
        "reward has the wrong shape",
        "(2,)",
        "(3,)",
    )
    (undeclared,) = ox.check_env(Undeclared, episodes=1)
    assert undeclared.what == "reward is not a number"
    assert "reward_space" in undeclared.remedy

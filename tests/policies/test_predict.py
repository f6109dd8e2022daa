"""Policies in plain Gymnasium: `predict` returns valid actions with the policy's probabilities."""

import copy
from typing import Any

import cloudpickle
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import occupax as ox
from occupax.policies import with_spaces
from spaces_of_all_kinds import PARTS, Anything

KEY = jax.random.key(0)


ACTIONS = {
    "discrete from 2 on": (spaces.Discrete(3, start=2), ox.policies.mlp((4,))),
    "several": (spaces.MultiDiscrete([[2, 3], [4, 2]]), ox.policies.mlp((4,))),
    "binary": (spaces.MultiBinary(3), ox.policies.mlp((4,))),
    "box": (spaces.Box(-0.1, 0.1, (2, 1), np.float32), ox.policies.gaussian((4,), deviation=5.0)),
    "squashed": (spaces.Box(-2.0, 3.0, (2,), np.float64), ox.policies.squashed((4,))),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_what_is_predicted_is_what_step_takes(kind):
    action, make = ACTIONS[kind]
    env = Anything(spaces.Dict(PARTS), action)
    policy = make(ox.make(lambda: Anything(spaces.Dict(PARTS), action)), KEY).for_env(env)
    seen, over = env.reset(seed=0)[0], False
    while not over:
        seen, _, over, _, _ = env.step(policy.predict(seen))
    assert action.contains(policy.predict(seen, deterministic=True))
    several = [env.observation_space.sample() for _ in range(5)]
    batch = jax.tree.map(lambda *parts: np.stack(parts), *several)
    chosen = policy.predict(batch, deterministic=True)
    assert chosen.shape == (5, *(action.shape or ()))
    for one, taken in zip(several, chosen, strict=True):
        np.testing.assert_allclose(policy.predict(one, deterministic=True), taken, rtol=1e-6)


def test_observations_are_encoded_as_gymnasium_flattens_them():
    seen = spaces.Dict(PARTS)
    env = Anything(seen, spaces.Discrete(4))
    policy = ox.policies.mlp((8,), scale=3.0)(
        ox.make(lambda: Anything(seen, spaces.Discrete(4))), KEY
    ).for_env(env)
    for seed in range(20):
        seen.seed(seed)
        observation = seen.sample()
        logits = policy.logits(jnp.asarray(spaces.flatten(seen, observation)))
        assert policy.predict(observation, deterministic=True) == int(jnp.argmax(logits))


@pytest.mark.parametrize("by_host", [True, False])
def test_actions_are_drawn_with_the_probabilities_of_the_policy(by_host):
    """Of 4,000 draws a frequency is within four standard errors, 0.032, of its probability."""
    env = ox.make("FrozenLake-v1")
    policy = ox.policies.tabular(scale=1.0)(env, KEY)
    policy = (policy if by_host else ox.policies.Softmax(policy.logits)).for_env(env)
    drawn = policy.predict(np.full(4000, 6), seed=0)
    assert np.bincount(drawn, minlength=4) / 4000 == pytest.approx(
        np.asarray(policy.probs(6)), abs=0.032
    )
    assert policy.predict(6, deterministic=True) == int(np.argmax(policy.probs(6)))


def test_a_policy_that_only_draws_predicts_too():
    class Own(ox.policies.Policy):
        action_space = "discrete"
        table: Any

        def draw(self, observation, key):
            action = jax.random.categorical(key, self.table)
            return action, self.log_prob(observation, action)

        def log_prob(self, observation, action):
            return jax.nn.log_softmax(self.table)[action]

    policy = Own(jnp.array([0.0, 3.0, 0.0, 0.0])).for_env("FrozenLake-v1")
    assert policy.predict(0, deterministic=True) == 1
    assert set(policy.predict(np.zeros(200, int), seed=1).tolist()) == {0, 1, 2, 3}


def test_normal_laws_have_their_mean_and_are_clipped():
    env = ox.make("Pendulum-v1")
    own = ox.policies.gaussian((4,))(env, KEY)
    wrapped = ox.policies.Gaussian(
        lambda seen: 1.0 * own.psi(seen), own.log_deviation, own.box
    )  # not known to NumPy
    seen = np.array([1.0, 0.0, 0.3], np.float32)
    mean = 2.0 * float(own.distribution(jnp.asarray(seen))[0][0])
    for policy in (own.for_env(env), wrapped.for_env(env)):
        assert policy.predict(seen, deterministic=True) == pytest.approx(np.array([mean]), rel=1e-5)
        drawn = policy.predict(np.tile(seen, (2000, 1)), seed=0)
        assert drawn.dtype == np.float32
        assert drawn.shape == (2000, 1)
        assert abs(drawn).max() == 2.0  # four deviations of 0.5 and more, clipped
        assert np.median(drawn) == pytest.approx(mean, abs=0.15)


def test_normalised_observations_are_normalised():
    env = ox.make("CartPole-v1", backend="gymnasium")
    policy = ox.policies.mlp((8,), scale=3.0, normalise=True)(env, KEY)
    network = ox.policies.normaliser_of(policy).network  # pyright: ignore[reportOptionalMemberAccess]
    psi = ox.policies.Normalised(network, jnp.full(4, 2.0), jnp.full(4, 9.0), jnp.array(5.0))
    policy = ox.policies.Softmax(psi).for_env(env)
    seen = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    expected = [int(jnp.argmax(network((one - 2.0) / 3.0))) for one in seen]
    assert len(set(expected)) == 2
    assert policy.predict(seen, deterministic=True).tolist() == expected


def test_a_policy_that_has_predicted_is_trained_mapped_and_sent():
    """JAX compares structures: predicting leaves nothing in a policy, and its spaces go with it."""
    lake = ox.Problem("FrozenLake-v1", horizon=5)
    bare = ox.policies.tabular(1.0)(lake.env, KEY)
    policy = bare.for_env("FrozenLake-v1")
    before = jax.tree.structure(policy)
    policy.predict(0)
    assert jax.tree.structure(policy) == before
    assert jax.tree.map(jnp.asarray, policy).spaces == policy.spaces
    for copied in (cloudpickle.loads(cloudpickle.dumps(policy)), copy.deepcopy(policy)):
        assert copied.predict(3, seed=0) == policy.predict(3, seed=0)
        assert jax.tree.structure(copied) == before
    ours, theirs = (
        ox.train(lake, policy=it, episodes=20, progress=False).policies[0] for it in (policy, bare)
    )
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    np.testing.assert_array_equal(ours.table, theirs.table)


def test_a_policy_trained_elsewhere_predicts_for_its_new_environment():
    here = ox.make("FrozenLake-v1")
    policy = ox.policies.tabular()(here, KEY).for_env(
        Anything(spaces.Discrete(16, start=7), spaces.Discrete(4))
    )
    result = ox.train(ox.Problem(here, horizon=3), policy=policy, episodes=20, progress=False)
    assert result.policy().predict(0, deterministic=True) in range(4)
    with pytest.raises(ValueError, match="observation must be a state"):
        policy.predict(0)


class Made(ox.policies.Categorical):
    """A policy with a constructor of its own."""

    table: Any

    def __init__(self, size):
        self.table = jnp.zeros((size, 4))

    def logits(self, observation):
        return self.table[observation]


def test_a_policy_with_a_constructor_of_its_own_predicts():
    assert Made(16).for_env("FrozenLake-v1").predict(0) in range(4)


def test_seeds_repeat_and_the_policys_own_numbers_do_not():
    policy = ox.policies.tabular()(ox.make("FrozenLake-v1"), KEY).for_env("FrozenLake-v1")
    states = np.zeros(50, int)
    assert (policy.predict(states, seed=3) == policy.predict(states, seed=3)).all()
    assert (policy.predict(states) != policy.predict(states)).any()
    assert type(policy.predict(0)) is int


def test_results_and_files_know_the_spaces(tmp_path):
    result = ox.train(
        ox.Problem("FrozenLake-v1", horizon=3), episodes=20, progress=False, out=tmp_path
    )
    expected = result.policy().predict(np.arange(16), deterministic=True)
    for policy in (
        ox.load_policy(tmp_path / "policies/seed-0.safetensors"),
        ox.load_result(tmp_path).best_policy,
    ):
        assert (policy.predict(np.arange(16), deterministic=True) == expected).all()
    ox.save_policy(with_spaces(result.policies[0], ""), tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match=r"predict needs the spaces .* policy\.for_env\(env\)"):
        ox.load_policy(tmp_path / "bare.safetensors").predict(0)


@pytest.mark.parametrize(
    "text",
    ["{}", "no JSON", '{"observation": {"kind": "box", "shape": [999999999], "dtype": "f4"}}'],
)
def test_spaces_of_a_file_that_mean_nothing_are_refused(text):
    policy = ox.policies.with_spaces(ox.policies.Tabular(jnp.zeros((2, 2))), text)
    with pytest.raises(ValueError, match="spaces must be the JSON of an environment's spaces, got"):
        policy.predict(0)


@pytest.mark.parametrize(
    ("env", "observation", "said"),
    [
        ("FrozenLake-v1", 16, "observation must be a state of Discrete\\(16\\), got 16"),
        ("FrozenLake-v1", 0.5, "observation must be a state"),
        (
            "FrozenLake-v1",
            [[1, 2]],
            "must have the shape \\(\\), or \\('n',\\) for a batch, got \\(1, 2\\)",
        ),
        ("CartPole-v1", [0.0] * 3, "must have the shape \\(4,\\)"),
    ],
)
def test_what_is_no_observation_is_refused(env, observation, said):
    made = ox.make(env)
    policy = (ox.policies.tabular() if env.startswith("F") else ox.policies.linear())(
        made, KEY
    ).for_env(made)
    with pytest.raises(ValueError, match=said):
        policy.predict(observation)


def test_stable_baselines_evaluates_it():
    evaluation = pytest.importorskip(
        "stable_baselines3.common.evaluation", reason="needs the extra bench"
    )
    result = ox.train(
        ox.Problem("CartPole-v1", horizon=10), policy="linear", episodes=20, progress=False
    )
    adapter = ox.policies.StableBaselinesPolicy(result.policy(), seed=0)
    returns, lengths = evaluation.evaluate_policy(
        adapter,
        gym.make("CartPole-v1"),
        5,
        deterministic=False,
        return_episode_rewards=True,
        warn=False,
    )
    assert returns == lengths  # a reward of 1 a step
    assert len(returns) == 5
    assert min(returns) >= 8  # the pole cannot fall sooner


def test_the_adapter_has_the_signature_of_stable_baselines():
    policy = ox.policies.linear()(ox.make("CartPole-v1"), KEY).for_env("CartPole-v1")
    adapter = ox.policies.StableBaselinesPolicy(policy)
    seen = np.zeros((3, 4), np.float32)
    action, state = adapter.predict(
        seen, state=None, episode_start=np.ones(3, bool), deterministic=True
    )
    assert (action.shape, state) == ((3,), None)
    assert isinstance(adapter.predict(seen[0])[0], np.ndarray)

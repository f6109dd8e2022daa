"""Running statistics of observations: not parameters of a policy, frozen within an iteration."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import occupax as ox
from occupax.policies import Normalised, dense_layers, normaliser_of

POLE = ox.Problem(ox.make("CartPole-v1"), horizon=15)
START = ox.policies.mlp(hidden=(3,), normalise=True)
KEY = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 1)
"""Of what run 0 of seed 0 draws."""


def arrays(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


@pytest.fixture(scope="module")
def trained():
    """Three iterations, with steps that shrink every parameter."""
    shrinking = optax.chain(optax.adam(0.05), optax.add_decayed_weights(-0.1))
    algorithm = ox.REINFORCE(4, step_size=1.0, rule=shrinking)
    seen = []
    options = {
        "sampler": "jax",
        "progress": False,
        "callbacks": [lambda at: seen.append(at.policies[0])],
    }
    result = ox.train(POLE, algorithm, 12, policy=START, **options)
    return result, seen


def test_statistics_are_those_of_all_steps_before_the_iteration(trained):
    result, policies = trained
    acting = START(POLE.env, jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 0))
    rows, everything = [], np.zeros((0, 4))
    assert float(acting.psi.count) == 0
    for iteration, following in enumerate(policies):
        drawn = ox.sample(POLE, acting, 4, jax.random.fold_in(KEY, iteration))
        rows.append(np.asarray(drawn.observations)[np.asarray(drawn.live)])
        everything = np.concatenate(rows).astype(float)
        assert int(following.psi.count) == len(everything)
        np.testing.assert_allclose(following.psi.mean, everything.mean(0), atol=1e-5)
        np.testing.assert_allclose(following.psi.variance, everything.var(0), rtol=1e-4)
        acting = following
    assert len(everything) == result.steps[0, -1]


def test_a_policy_keeps_the_statistics_it_acted_with_and_weights_are_its_own(trained):
    first, second = trained[1][:2]
    drawn = ox.sample(POLE, second, 4, jax.random.key(3))
    found = np.asarray(ox.estimators.weights(drawn, first))[:, 0]
    observations, actions = np.asarray(drawn.observations)[:, 0], np.asarray(drawn.actions)[:, 0]

    def chances(policy):
        """Of the first actions, in NumPy."""
        psi = policy.psi
        seen = (observations - np.asarray(psi.mean)) / np.sqrt(np.asarray(psi.variance))
        for layer in psi.network.network.layers:
            seen = (
                np.tanh(seen)
                if isinstance(layer, eqx.nn.Lambda)
                else seen @ np.asarray(layer.weight).T + layer.bias
            )
        odds = np.exp(seen)
        return (odds / odds.sum(1, keepdims=True))[np.arange(4), actions]

    np.testing.assert_allclose(found, chances(first) / chances(second), rtol=1e-4)
    mixed = eqx.tree_at(
        lambda it: (it.psi.mean, it.psi.variance), first, (second.psi.mean, second.psi.variance)
    )
    assert (
        np.abs(found - chances(mixed) / chances(second)).max() > 3e-3
    )  # statistics of another policy are a mistake


def test_no_gradient_flows_into_statistics_and_the_first_layer_can_be_told_them(trained):
    policy = trained[1][-1]
    drawn = ox.sample(POLE, policy, 3, jax.random.key(3))
    gradient = ox.estimators.gradient(POLE, drawn, policy, jnp.ones(1))
    assert not any(
        np.any(array) for array in (gradient.psi.mean, gradient.psi.variance, gradient.psi.count)
    )
    assert np.any(np.asarray(gradient.psi.network.network.layers[0].weight))
    observation, layers = drawn.observations[0, 0], dense_layers(policy)
    assert layers is not None
    by_layers = layers[1](jnp.tanh(layers[0](observation)))
    np.testing.assert_allclose(by_layers, policy.logits(observation), atol=1e-5)


def test_kernel_shards_and_a_resumed_run_agree_and_the_policy_is_saved_with_them(tmp_path):
    def train(sampler="auto", episodes=12, **options):
        algorithm = ox.REINFORCE(4, baseline="linear")
        return ox.train(
            POLE, algorithm, episodes, policy=START, sampler=sampler, progress=False, **options
        )

    whole = train()
    for one, two in zip(
        arrays(whole.policy()), arrays(train(ox.samplers.Host(shards=2)).policy()), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=2e-4, atol=2e-4)
    train(episodes=8, out=tmp_path / "run")
    resumed = train(out=tmp_path / "run", resume=True)
    ox.save_policy(resumed.policy(), tmp_path / "policy.safetensors")
    loaded = ox.load_policy(tmp_path / "policy.safetensors")
    for one, *others in zip(
        *(arrays(it) for it in (whole.policy(), resumed.policy(), loaded)), strict=True
    ):
        for other in others:
            np.testing.assert_array_equal(one, other)
    known: Any = normaliser_of(loaded)
    assert float(known.count) == whole.steps[0, -1]


class Spaces(gym.Env[Any, Any]):
    """Has the observations it is told to have."""

    def __init__(self, high):
        self.observation_space = gym.spaces.Box(-np.array(high), np.array(high), dtype=np.float64)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        return np.zeros(2), 0.0, True, False, {}


def test_what_normalise_stands_for():
    key = jax.random.key(0)
    bounded, unbounded = (
        ox.GymnasiumEnv(Spaces, high=high) for high in ([2.0, 4.0], [2.0, np.inf])
    )
    made = {
        (env, how): ox.policies.mlp(hidden=(3,), normalise=how)(env, key).psi
        for env in (bounded, unbounded, POLE.env)
        for how in (None, True, False)
    }
    running = {place for place, psi in made.items() if isinstance(psi, Normalised)}
    assert running == {(unbounded, None), (bounded, True), (unbounded, True), (POLE.env, True)}
    plain, scaled = (made[bounded, how].network.layers[0].weight for how in (False, None))
    np.testing.assert_allclose(scaled, plain / np.array([2.0, 4.0]), rtol=1e-6)
    np.testing.assert_array_equal(made[unbounded, None].network.network.layers[0].weight, plain)
    squashed = ox.policies.gaussian(hidden=(3,), by_observation=True, normalise=True)(
        ox.make("Pendulum-v1"), key
    )
    assert isinstance(squashed.psi, Normalised)
    with pytest.raises(
        ValueError, match="normalise=True is for observations that are numbers, got TabularMDP"
    ):
        ox.policies.mlp(normalise=True)(ox.make("FrozenLake-v1"), key)
    with pytest.raises(ValueError, match="normalise must be True, False or None, got 'yes'"):
        ox.policies.mlp(normalise="yes")  # pyright: ignore[reportArgumentType]

"""The compiled epochs of PPO are those of JAX, in double precision to rounding."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.algorithms import minibatches
from occupax.algorithms.critics import untrained_critic
from occupax.algorithms.fused import is_fusable, train_by_kernel

STEPS = 150
"""More than a block of the kernel has rows."""
HEADS = 3


def learners_and_samples(name, initialiser):
    env = ox.make(name)
    keys = jax.random.split(jax.random.key(0), 6)
    policy = initialiser(env, keys[0])
    if hasattr(policy.psi, "mean"):
        policy = eqx.tree_at(
            lambda tree: (tree.psi.mean, tree.psi.variance, tree.psi.count),
            policy,
            (policy.psi.mean + 0.3, policy.psi.variance + 2.0, policy.psi.count + 5),
        )
    critic = untrained_critic(env, HEADS, keys[1])
    optimiser = minibatches.optimiser_of("adam")
    networks = (minibatches.trainable(policy), minibatches.trainable(critic))
    learners = minibatches.Learners(policy, critic, *map(optimiser.init, networks))
    if name.startswith("FrozenLake"):
        observations = jax.random.randint(keys[2], (STEPS,), 0, 16)
    else:
        observations = jax.random.normal(keys[2], (STEPS, len(env.observation_bounds)))
    actions, log_probs = jax.vmap(policy.draw)(observations, jax.random.split(keys[3], STEPS))
    noise = jax.random.normal(keys[4], (STEPS, HEADS + 2))
    samples = minibatches.Samples(
        observations=observations,
        remaining=jnp.linspace(1, 0, STEPS),
        actions=actions,
        log_probs=log_probs + 0.1 * noise[:, 0],
        advantages=noise[:, 1],
        weights=jnp.linspace(0.5, 1.5, STEPS),
        targets=noise[:, 2:],
    )
    return learners, samples, jax.random.uniform(keys[5], (STEPS,)) < 0.9


EPOCHS = 3


def descent(rate=0.01, max_kl=10.0, minibatch=64):
    return minibatches.Descent(
        rate=jnp.asarray(rate),
        clip=0.2,
        max_kl=max_kl,
        max_norm=0.5,
        head_weights=jnp.array([0.5, -2.0, 1.0]),
        epochs=EPOCHS,
        minibatch=minibatch,
        rule="adam",
    )


def assert_close(one, other):
    leaves = jax.tree.leaves(eqx.filter(one, eqx.is_array))
    for leaf, expected in zip(
        leaves, jax.tree.leaves(eqx.filter(other, eqx.is_array)), strict=True
    ):
        np.testing.assert_allclose(leaf, expected, rtol=1e-9, atol=1e-12)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("name", "initialiser"),
    [
        ("CartPole-v1", ox.policies.mlp()),
        ("CartPole-v1", ox.policies.linear()),
        ("FrozenLake-v1", ox.policies.mlp(hidden=(20,))),
        ("Pendulum-v1", ox.policies.gaussian(normalise=True)),
        ("Pendulum-v1", ox.policies.squashed(by_observation=True)),
    ],
)
def test_the_kernel_trains_as_jax_does(name, initialiser):
    learners, samples, live = learners_and_samples(name, initialiser)
    assert is_fusable(learners.policy, "adam")
    key = jax.random.key(7)
    fused = train_by_kernel(learners, samples, live, descent(), key)
    plain = minibatches.train_by_minibatches(learners, samples, live, descent(), key)
    assert_close(fused, plain)
    assert plain[1][2] == EPOCHS
    assert not np.allclose(fused[0].critic.network.layers[0].weight, 0)


def test_the_policy_stops_with_the_divergence_and_the_critic_goes_on():
    learners, samples, live = learners_and_samples("CartPole-v1", ox.policies.mlp())
    settings = descent(max_kl=1e-9, minibatch=1000)
    key = jax.random.key(7)
    fused = train_by_kernel(learners, samples, live, settings, key)
    plain = minibatches.train_by_minibatches(learners, samples, live, settings, key)
    assert_close(fused, plain)
    assert fused[1][2] == 1
    assert fused[0].policy_moments.count == 1
    assert fused[0].critic_moments.count == EPOCHS


def test_runs_of_one_call_are_those_of_several_calls():
    learners, samples, live = learners_and_samples("Pendulum-v1", ox.policies.gaussian())
    arrays, static = eqx.partition((learners, samples), eqx.is_array)

    def train(rate, key):
        restored, drawn = eqx.combine(arrays, static)
        trained, _ = train_by_kernel(restored, drawn, live, descent(rate), key)
        return eqx.filter(trained, eqx.is_array)

    rates = jnp.array([0.01, 0.02])
    keys = jax.random.split(jax.random.key(7), 2)
    together = jax.vmap(train)(rates, keys)
    for number in range(2):
        single = train(rates[number], keys[number])
        for leaf, expected in zip(jax.tree.leaves(together), jax.tree.leaves(single), strict=True):
            np.testing.assert_array_equal(leaf[number], expected)


def test_other_networks_and_rules_are_trained_by_jax():
    env = ox.make("CartPole-v1")
    relu = ox.policies.mlp(activation="relu")(env, jax.random.key(0))
    assert not is_fusable(relu, "adam")
    tanh = ox.policies.mlp()(env, jax.random.key(0))
    assert not is_fusable(tanh, minibatches.optimiser_of("adam"))
    table = ox.policies.tabular()(ox.make("FrozenLake-v1"), jax.random.key(0))
    assert not is_fusable(table, "adam")


def test_actions_that_are_no_outputs_raise():
    learners, samples, live = learners_and_samples("CartPole-v1", ox.policies.mlp())
    wrong = replace(samples, actions=samples.actions + 2)
    with pytest.raises(Exception, match="steps with these actions"):
        jax.block_until_ready(
            train_by_kernel(learners, wrong, live, descent(), jax.random.key(7))[1]
        )

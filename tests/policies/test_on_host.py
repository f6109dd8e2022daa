"""Policies that NumPy evaluates outside of JAX, held against the policies themselves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import occupax as ox
from occupax.envs import (
    ActionSpace,
    BoxActions,
    DecisionProcess,
    DiscreteActions,
    MultiDiscreteActions,
)
from occupax.envs.episode import seeds_and_keys
from occupax.policies import Flat, Softmax, Tabular
from occupax.policies import on_host as module
from occupax.policies.on_host import on_host
from occupax.samplers import action_selection
from occupax.samplers.action_selection import NOISE_EPISODES, NOISE_STEPS, select_actions
from occupax.samplers.episodes import EpisodeRunner

KEY = jax.random.key(4)


class Seen(DecisionProcess):
    """The attributes of an environment that policy initialisers read."""

    action_space: ActionSpace
    num_states: int | None = None
    time_limit: int | None = None

    def observation_spec(self):
        return (
            jax.ShapeDtypeStruct((5,), jnp.float32)
            if self.num_states is None
            else jax.ShapeDtypeStruct((), int)
        )


THREE, PAIR, BOX = (
    DiscreteActions(3),
    MultiDiscreteActions([3, 2]),
    BoxActions([-1.0, 0.0], [3.0, 0.5]),
)
KINDS = {
    "table": (ox.policies.tabular(1.0), THREE, 7),
    "linear": (ox.policies.linear(scale=1.0), THREE, None),
    "linear in states": (ox.policies.linear(scale=1.0), THREE, 7),
    "linear, two entries": (ox.policies.linear(scale=1.0), PAIR, None),
    "mlp, two entries, in states": (ox.policies.mlp((6,), scale=2.0), PAIR, 7),
    **{
        f"mlp, {name}": (ox.policies.mlp((6, 4), name, scale=3.0), THREE, None)
        for name in ox.policies.ACTIVATIONS
    },
    "gaussian": (ox.policies.gaussian((6,)), BOX, None),
    "gaussian, linear": (ox.policies.gaussian(()), BOX, None),
    "gaussian, by observation": (ox.policies.gaussian((6,), by_observation=True), BOX, None),
    "squashed": (ox.policies.squashed((6,)), BOX, None),
    "squashed, by observation": (
        ox.policies.squashed((6, 3), "gelu", by_observation=True),
        BOX,
        None,
    ),
}


def make(name):
    """A policy whose parameters are all far from zero, with 40 observations."""
    init, space, states = KINDS[name]
    policy = init(Seen(space, states), KEY)
    arrays, rest = eqx.partition(policy, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    moved = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape), leaf.dtype),
        arrays,
    )
    seen = (
        rng.normal(size=(40, 5)).astype(np.float32) * 2
        if states is None
        else rng.integers(0, states, 40)
    )
    return eqx.combine(moved, rest), space, seen


def keys_of(n):
    return np.asarray(seeds_and_keys(KEY, jnp.arange(n))[1])


@eqx.filter_jit
def drawn_in_jax(policy, seen, rows, time):
    """Return the actions that the policy draws in JAX for steps of episodes, with the same keys."""

    def one(seen, row):
        drawn, log_prob = policy.draw(
            seen, jax.random.split(jax.random.fold_in(jax.random.fold_in(KEY, row), time + 1))[0]
        )
        return drawn, policy.applied(drawn), log_prob

    return jax.vmap(one)(seen, rows)


@eqx.filter_jit
def log_probs_in_jax(policy, seen, drawn):
    return jax.vmap(policy.log_prob)(seen, drawn)


def assert_drawn(policy, space, seen, tolerance=2e-5):
    """Assert that NumPy gives the policy's actions and log-probabilities in the first step."""
    rows = np.arange(len(seen))
    found, given, log_probs = select_actions(
        policy, space, keys_of(len(seen)), len(seen), flat=True
    )(seen, rows, rows, 0 * rows)
    expected, applied, in_jax = drawn_in_jax(policy, seen, rows, 0)
    if space is BOX:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            given, np.clip(applied, BOX.low, BOX.high), rtol=tolerance, atol=tolerance
        )
        assert (given >= BOX.low).all()
        assert (given <= BOX.high).all()
    else:
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(given, expected)
    assert found.dtype == space.spec().dtype
    np.testing.assert_allclose(log_probs, in_jax, rtol=tolerance, atol=tolerance)
    # what estimators compute: the weights of the policy that acted are 1
    later = np.asarray(log_probs_in_jax(policy, seen, found))
    np.testing.assert_allclose(np.exp(later - log_probs), 1.0, atol=2 * tolerance)


@pytest.mark.parametrize("name", KINDS)
def test_numpy_draws_what_the_policy_draws(name):
    policy, space, seen = make(name)
    assert on_host(policy) is not None
    assert_drawn(policy, space, seen)


def test_numpy_draws_in_double_precision_what_the_policy_draws(x64):
    assert_drawn(*make("squashed"), tolerance=1e-11)


def test_an_activation_inside_of_jit_is_known():
    for name in ("mlp, tanh", "mlp, relu"):
        policy, space, seen = make(name)
        compiled = eqx.nn.Lambda(jax.jit(policy.psi.network.layers[1].fn))
        wrapped = eqx.tree_at(lambda it: it.psi.network.layers[1], policy, compiled)
        assert on_host(wrapped) is not None
        assert_drawn(wrapped, space, seen)


def test_another_policy_is_noticed(monkeypatch):
    for name, wrong in (
        ("mlp, tanh", lambda x: 1.01 * np.tanh(x)),
        ("squashed", lambda x: np.tanh(x) + 0.01),
    ):
        policy, space, seen = make(name)
        monkeypatch.setitem(module.ACTIVATIONS, "tanh", wrong)
        with pytest.raises(AssertionError):
            assert_drawn(policy, space, seen)


@pytest.mark.parametrize(
    "name", ["table", "linear, two entries", "gaussian, by observation", "squashed"]
)
def test_what_is_drawn_follows_the_law_of_the_policy(name):
    policy, space, seen = make(name)
    n = 6_000
    one, rows = np.repeat(seen[:1], n, 0), np.arange(n)
    found, _, _ = select_actions(policy, space, keys_of(n), n, flat=True)(one, rows, rows, 0 * rows)
    if space is BOX:
        means, logs = (
            np.asarray(it, np.float64) for it in policy.distribution(jnp.asarray(seen[0]))
        )
        z = (found - BOX.middle) / BOX.reach if name.startswith("gaussian") else found
        for column, mean, deviation in zip(z.T, means, np.exp(logs), strict=True):
            assert stats.kstest(column, stats.norm(mean, deviation).cdf).pvalue > 1e-3
            assert (
                stats.kstest(column, stats.norm(mean + 0.1 * deviation, deviation).cdf).pvalue
                < 1e-3
            )
        return
    sizes = np.atleast_1d(getattr(space, "sizes", space.n if name == "table" else 0))
    actions = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).reshape(
        -1, len(sizes)
    )
    tried = actions if len(sizes) > 1 else actions[:, 0]
    probs = np.exp(
        np.asarray(log_probs_in_jax(policy, np.repeat(seen[:1], len(tried), 0), tried), float)
    )
    counts = [(found.reshape(n, -1) == action).all(1).sum() for action in actions]
    assert stats.chisquare(counts, n * probs / probs.sum()).pvalue > 1e-3
    assert stats.chisquare(counts, n * probs[::-1] / probs.sum()).pvalue < 1e-3


def test_the_noise_is_that_of_the_episode_and_the_step():
    policy, space, seen = make("mlp, relu")
    n, rows = NOISE_EPISODES + 9, np.array([3, NOISE_EPISODES + 4])
    act = select_actions(policy, space, keys_of(n), 5, flat=True)
    for t in range(NOISE_STEPS + 3):
        if t == 2:  # the environment takes up another episode
            act(seen[:1], np.array([1]), np.array([0]), np.array([0]))
        found, _, _ = act(seen[t % 30 :][:2], np.array([4, 2]), rows, np.array([t, t]))
        if t in (0, 1, NOISE_STEPS - 1, NOISE_STEPS, NOISE_STEPS + 2):
            np.testing.assert_array_equal(
                found, drawn_in_jax(policy, seen[t % 30 :][:2], rows, t)[0]
            )


@pytest.mark.parametrize(
    "name", ["table", "mlp, tanh", "mlp, softplus", "squashed, by observation"]
)
def test_how_many_act_at_once_changes_no_bit(name):
    policy, _, seen = make(name)
    host = on_host(policy)
    assert host is not None
    noise = np.random.default_rng(1).normal(size=(40, *host.shape)).astype(host.dtype)
    whole = host.draw(seen, noise)
    for size in (1, 3, 8, 17):
        for first in range(0, 40 - size, 5):
            part = slice(first, first + size)
            for one, other in zip(host.draw(seen[part], noise[part]), whole, strict=True):
                assert one.tobytes() == other[part].tobytes()


class Sharper(Tabular):
    """A table with logits of its own."""

    def logits(self, observation):
        return 2.0 * self.table[observation]


class Shifted(eqx.Module):
    """A network with a part that nobody knows."""

    network: Flat
    shift: jax.Array

    def __call__(self, observation):
        return self.network(observation) + self.shift


class Scaled(Flat):
    """A network that sees something else."""

    def __call__(self, observation):
        return super().__call__(2.0 * observation)


def test_policies_with_parts_of_their_own_are_left_to_jax():
    network = make("mlp, tanh")[0].psi
    table = jnp.asarray(np.random.default_rng(0).normal(size=(7, 3)), jnp.float32)
    bent = eqx.tree_at(lambda it: it.network.layers[1], network, eqx.nn.Lambda(jnp.sin))
    for psi in (
        Shifted(network, jnp.arange(3.0)),
        Scaled(network.network, None),
        bent,
        lambda seen: seen[:3],
    ):
        assert on_host(Softmax(psi)) is None
    policy, seen, rows = Sharper(table), np.arange(7), np.arange(7)
    assert on_host(policy) is None
    found, _, log_probs = select_actions(policy, THREE, keys_of(9), 9, flat=True)(
        seen, rows, rows, 0 * rows
    )
    expected, _, in_jax = drawn_in_jax(policy, seen, rows, 0)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(log_probs, in_jax, rtol=1e-5, atol=1e-6)


def test_trajectories_are_the_same_whoever_acts(monkeypatch):
    env = ox.GymnasiumEnv("CartPole-v1")
    policy = ox.policies.mlp((4,), scale=3.0)(env, KEY)
    here = EpisodeRunner(env, 3).draw(policy, KEY, 0, 5, 5, 12)
    np.testing.assert_allclose(
        ox.estimators.weights(here, policy) * here.live, here.live, atol=1e-4
    )  # products of the weights of 12 steps
    monkeypatch.setattr(action_selection, "on_host", lambda _: None)
    there = EpisodeRunner(env, 3).draw(policy, KEY, 0, 5, 5, 12)
    np.testing.assert_array_equal(here.actions, there.actions)
    np.testing.assert_array_equal(here.observations, there.observations)
    np.testing.assert_allclose(here.log_probs, there.log_probs, rtol=1e-5, atol=1e-6)

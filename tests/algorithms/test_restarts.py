"""REINFORCE re-initialises the output layer after a zero-gradient batch of lowest utility."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.policies.restarts import can_restart, restart_policy

ALIKE = ox.Problem(
    "CartPole-v1", horizon=5
)  # nobody falls within five steps: all trajectories are alike
FALLING = ox.Problem("CartPole-v1", horizon=60)
NET = ox.policies.mlp(hidden=(8,))


def algorithm(**settings):
    return ox.REINFORCE(4, mixing=1.0, step_size=0.01, **settings)


def update(problem, state, **settings):
    """The state after one batch, drawn by the policy of the state."""
    batch = ox.SampledBatch(
        problem, ox.sample(problem, state.policy, 4, jax.random.key(1)), state.policy
    )
    return algorithm(**settings).phases[0].update(state, batch, jax.random.key(2))


def first(problem, policy=None, **settings):
    policy = NET(problem.env, jax.random.key(0)) if policy is None else policy
    return algorithm(**settings).init(problem, policy)


def arrays(policy):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(policy) if isinstance(leaf, jax.Array)]


def changed(before, after):
    """Return whether each array of a policy differs: weights and biases, layer by layer."""
    return [
        not np.array_equal(one, other)
        for one, other in zip(arrays(before), arrays(after), strict=True)
    ]


def test_a_batch_that_shows_nothing_leads_to_another_last_layer_and_nothing_else():
    state = first(ALIKE)
    after = update(ALIKE, state)
    assert np.all([np.all(leaf == 0) for leaf in arrays(after.gradient)])
    assert after.redrawn
    assert algorithm().metrics(after)["redrawn"] == 1
    assert changed(state.policy, after.policy) == [False, False, True, False]
    weight = arrays(after.policy)[2]
    bound = 3 / np.sqrt(8)
    assert np.all(np.abs(weight) <= bound)
    assert (
        np.abs(weight).max() > bound / 2
    )  # of sixteen uniform numbers all are below with probability 2^-16
    again = update(ALIKE, after)
    assert again.redrawn
    assert again.lowest_utility == after.lowest_utility


def test_what_tells_trajectories_apart_is_learned_from():
    state = first(FALLING)
    after, plain = update(FALLING, state), update(FALLING, state, restarts=False)
    assert not after.redrawn
    assert changed(plain.policy, after.policy) == [False] * 4
    assert any(changed(state.policy, after.policy))


def test_a_policy_is_kept_if_others_were_worse():
    state = update(ALIKE, first(ALIKE))
    worth = float(state.lowest_utility)
    better = update(ALIKE, replace(state, lowest_utility=jnp.asarray(worth - 0.1)))
    assert not better.redrawn
    assert not any(changed(state.policy, better.policy))
    assert np.isclose(better.lowest_utility, worth - 0.1)
    assert update(ALIKE, replace(state, lowest_utility=jnp.asarray(worth + 0.1))).redrawn


def test_what_a_first_policy_could_do_already_is_not_lost():
    problem = ox.Problem("CartPole-v1", horizon=12)  # which chance nearly always survives
    result = ox.train(problem, ox.REINFORCE(5), 1_000, policy=NET, seeds=3, progress=False)
    assert np.any(result.metrics["redrawn"] == 1)
    assert np.all(result.metrics["return"][:, -20:].mean(1) > 11.9)
    assert np.all(result.metrics["redrawn"][:, -20:] == 0)


def test_restarts_can_be_turned_off_and_are_off_under_constraints():
    off = update(ALIKE, first(ALIKE, restarts=False), restarts=False)
    assert not off.redrawn
    assert algorithm(restarts=False).metrics(off) == {}
    height = ox.Constraint(lambda observation, _: observation[0], at_most=1.0)
    limited = ox.Problem("CartPole-v1", horizon=5, constraints=[height])
    assert not update(limited, first(limited)).redrawn


def test_only_networks_for_discrete_actions_are_redrawn():
    lake, pendulum, cart = ox.make("FrozenLake-v1"), ox.make("Pendulum-v1"), ox.make("CartPole-v1")
    key = jax.random.key(0)
    assert not can_restart(ox.policies.tabular()(lake, key))
    assert not can_restart(ox.policies.gaussian()(pendulum, key))
    assert not can_restart(ox.policies.Softmax(lambda observation: observation[:2]))
    for init in (NET, ox.policies.linear(), ox.policies.mlp(normalise=True)):
        policy = init(cart, key)
        assert can_restart(policy)
        assert sum(changed(policy, restart_policy(policy, key))) == 1


def test_draws_differ_and_are_far_from_uniform():
    policy, seen = NET(ALIKE.env, jax.random.key(0)), jnp.array([0.5, -0.5, 0.1, 0.5])
    probs = [float(restart_policy(policy, jax.random.key(k)).probs(seen)[0]) for k in range(20)]
    assert abs(float(policy.probs(seen)[0]) - 0.5) < 0.02
    assert len(set(probs)) == 20
    assert np.std(probs) > 0.05


class Combination(gym.Env[Any, Any]):
    """Environment that rewards twelve equal actions in a row, which has probability 1/2,048."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pushed = []
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.pushed.append(int(action))
        ended = len(self.pushed) == 12
        return np.ones(1, np.float32), float(ended and len(set(self.pushed)) == 1), ended, False, {}


@pytest.mark.parametrize("restarts", [True, False])
def test_a_rare_success_is_found_outside_of_the_program_too(restarts):
    problem = ox.Problem(ox.GymnasiumEnv(Combination), horizon=12)
    alg = ox.REINFORCE(5, restarts=restarts)
    result = ox.train(
        problem,
        alg,
        300 if restarts else 60,
        seeds=2,
        sampler=ox.samplers.Host(envs=5, shards=2),
        progress=False,
    )
    found = result.metrics["return"][:, -10:].mean(1)
    if restarts:
        assert np.all(found > 0.8)
        assert np.all(result.metrics["redrawn"][:, 0] == 1)
    else:
        assert np.all(found < 0.2)

"""Environments in JAX whose actions are real numbers, step by step against Gymnasium's."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.envs import ContinuousCartPole, ContinuousMountainCar, Pendulum
from occupax.envs.base import Timed

KEY = jax.random.key(0)
STEPS = 3000


def pushed(env, action):
    """A step of Gymnasium's cart-pole with another force: that of the action, to the right."""
    env.force_mag = 10.0 * float(np.clip(action[0], -1.0, 1.0))
    env.steps_beyond_terminated = (
        None  # otherwise it warns, and withholds the reward, in terminal states
    )
    return env.step(1)


def stepped(env, action):
    return env.step(action)


CASES = {
    "Pendulum-v1": (Pendulum(time_limit=200), [7.0, 9.0], 4.0, "Pendulum-v1", stepped),
    "MountainCarContinuous-v0": (
        ContinuousMountainCar(999),
        [1.2, 0.07],
        2.0,
        "MountainCarContinuous-v0",
        stepped,
    ),
    "ContinuousCartPole-v1": (
        ContinuousCartPole(),
        [3.0, 5.0, 0.3, 5.0],
        2.0,
        "CartPole-v1",
        pushed,
    ),
}


def answers(env, states, actions):
    def respond(physics, action):
        state, reward = env.step(Timed(physics, jnp.zeros((), jnp.int32)), action, KEY)
        return state.physics, env.observe(state), reward, env.terminated(state)

    return jax.device_get(jax.jit(jax.vmap(respond))(jnp.asarray(states), jnp.asarray(actions)))


@pytest.mark.parametrize("name", CASES)
def test_any_state_steps_as_in_gymnasium(name, x64):
    env, high, force, theirs, step = CASES[name]
    random, simulator = np.random.default_rng(7), gymnasium.make(theirs).unwrapped
    states = random.uniform(-1, 1, (STEPS, len(high))) * high
    actions = random.uniform(-force, force, (STEPS, 1))  # half of them beyond the bounds
    simulator.reset(seed=0)
    rows = []
    for state, action in zip(states, actions, strict=True):
        simulator.state = state.copy()
        observation, reward, terminated, truncated, _ = step(simulator, action)
        assert not truncated
        rows.append((np.array(simulator.state, float), observation, reward, terminated))
    after, seen, rewards, ended = (np.array(column) for column in zip(*rows, strict=True))
    found = answers(env, states, actions)
    rounding = 1e-6 if name.startswith("Mountain") else 1e-11  # that car keeps its state in float32
    np.testing.assert_allclose(found[0], after, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(found[1], seen, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[2], rewards, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found[3], ended)
    if name != "Pendulum-v1":  # which has no end
        assert 50 < ended.sum() < STEPS - 50
    # forces beyond the bounds are clipped, in both: with twice the force all is the same
    beyond = np.abs(actions[:, 0]) > env.action_space.high[0]
    doubled = answers(env, states, np.where(beyond[:, None], 2.0, 1.0) * actions)
    np.testing.assert_array_equal(doubled[0][beyond], found[0][beyond])
    other = answers(env, states, 0.9 * actions)  # and a force that is a tenth less would be noticed
    assert np.abs(other[0] - after).max() > 100 * rounding


@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_episodes_are_gymnasiums(name):
    env, simulator = ox.make(name), gymnasium.make(name)
    assert env.time_limit == gymnasium.spec(name).max_episode_steps
    assert env.action_space == ox.GymnasiumEnv(name).action_space
    assert env.observation_spec().shape == simulator.observation_space.shape
    first = np.array([simulator.reset(seed=i)[0] for i in range(300)])
    ours = np.asarray(jax.vmap(lambda key: env.observe(env.reset(key)))(jax.random.split(KEY, 300)))
    np.testing.assert_allclose(ours.mean(0), first.mean(0), atol=0.2)
    np.testing.assert_allclose(ours.std(0), first.std(0), atol=0.08)
    # a whole episode, with a force along the velocity, which gets the car out of the valley
    simulator.reset(seed=3)
    start = Timed(jnp.asarray(simulator.unwrapped.state, float), jnp.zeros((), jnp.int32))
    rows, over = [], False
    while not over:
        action = np.sign(simulator.unwrapped.state[1:2]).astype(np.float32)
        _, reward, terminated, truncated, _ = simulator.step(action)
        rows.append((action, reward, terminated))
        over = terminated or truncated
    actions, rewards, ended = (np.array(column) for column in zip(*rows, strict=True))

    def advance(state, action):
        state, reward = env.step(state, action, KEY)
        return state, (reward, env.terminated(state), env.truncated(state))

    found = jax.device_get(jax.lax.scan(advance, start, actions)[1])
    np.testing.assert_allclose(found[0][:60], rewards[:60], atol=1e-3)
    assert found[1].any() == ended.any() == (name != "Pendulum-v1")
    assert abs(int(np.argmax(found[1])) - int(np.argmax(ended))) <= 1  # rounding may cost a step
    assert found[2][-1] == (name == "Pendulum-v1")

"""Environments of gymnax: equal transitions, with termination and truncation told apart."""

import dataclasses
import sys
from typing import Any

import equinox as eqx
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from gymnax_like import Params, SixValues, Walk
from occupax.envs import BoxActions, DiscreteActions, GymnaxEnv
from occupax.envs import gymnax as adapter
from occupax.io import codec

KEY = jax.random.key(3)


@pytest.mark.parametrize(
    ("name", "steps", "option"),
    [
        ("CartPole-v1", 60, {}),
        ("Breakout-MinAtar", 60, {}),
        ("Pendulum-v1", 20, {"max_steps_in_episode": 12}),
    ],
)
def test_every_step_is_that_of_gymnax(name: str, steps: int, option: dict[str, Any]):
    theirs, params = gymnax.make(name)
    params = dataclasses.replace(params, **option)
    ours = ox.make(f"gymnax/{name}", **option)
    assert isinstance(ours, GymnaxEnv)
    keys = jax.random.split(KEY, steps)
    actions = jax.vmap(theirs.action_space(params).sample)(keys)

    def play(step: Any, first: Any) -> Any:
        return jax.jit(
            lambda: jax.lax.scan(lambda state, given: step(state, *given), first, (keys, actions))[
                1
            ]
        )()

    def of_theirs(state: Any, key: Any, action: Any) -> Any:
        seen, state, reward, terminated, _ = theirs.step_env(key, state, action, params)
        return state, (seen, reward, terminated, theirs.is_truncated(state, params))

    def of_ours(state: Any, key: Any, action: Any) -> Any:
        state, reward = ours.step(state, jnp.ravel(action) if action.ndim else action, key)
        return state, (ours.observe(state), reward, ours.terminated(state), ours.truncated(state))

    seen, first = theirs.reset_env(KEY, params)
    np.testing.assert_array_equal(ours.observe(ours.reset(KEY)), seen)
    expected, found = (
        play(of_theirs, jax.tree.map(jnp.asarray, first)),
        play(of_ours, ours.reset(KEY)),
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(
            other, one, rtol=1e-5, atol=1e-6
        )  # two programs round differently
    terminated, truncated = np.asarray(found[2]), np.asarray(found[3])
    assert terminated.any() == (
        name != "Pendulum-v1"
    )  # the comparison goes on beyond the end, without a reset
    assert truncated.tolist() == [
        step >= params.max_steps_in_episode for step in range(1, steps + 1)
    ]


def test_spaces_limits_and_bounds_are_those_of_gymnax():
    cart, swing = (
        ox.make("gymnax/CartPole-v1"),
        ox.make("gymnax/Pendulum-v1", max_steps_in_episode=7),
    )
    assert (cart.action_space, cart.time_limit) == (DiscreteActions(2), 500)
    assert (swing.action_space, swing.time_limit) == (BoxActions([-2.0], [2.0]), 7)
    assert ox.Problem(swing).horizon == 7
    assert swing.observation_bounds == ((-1.0, 1.0), (-1.0, 1.0), (-8.0, 8.0))
    lake = ox.make("gymnax/FrozenLake-misc")
    assert (lake.num_states, lake.observation_spec().shape) == (16, ())


def test_the_time_limit_cuts_and_does_not_end():
    problem = ox.Problem("gymnax/CartPole-v1", horizon=30)
    short = ox.Problem(ox.make("gymnax/CartPole-v1", max_steps_in_episode=4))
    policy = ox.policies.linear()(problem.env, KEY)
    drawn, cut = ox.sample(problem, policy, 8, KEY), ox.sample(short, policy, 8, KEY)
    assert (drawn.terminated == (drawn.lengths < 30)).all()
    assert (cut.lengths == 4).all()
    assert not cut.terminated.any()
    played = ox.evaluate(policy, "gymnax/CartPole-v1", episodes=8, max_steps=30)
    assert (played.returns == played.lengths).all()
    assert (played.lengths <= 30).all()


@pytest.mark.parametrize("kind", [Walk, SixValues])
def test_a_step_of_five_or_six_values_tells_the_ends_apart(kind: type[Walk]):
    env = ox.from_gymnax(kind(), Params())
    assert (env.time_limit, env.observation_bounds) == (6, ())
    for always, expected in ((1, [(4, True, False)]), (0, [(6, False, True)])):
        state, ends = env.reset(KEY), []
        for step in range(1, 7):
            state, reward = env.step(state, jnp.asarray(always), KEY)
            assert env.observe(state).tolist() == pytest.approx(
                [always * step, 1 - step / 6]
            )  # the limit is 6 there
            assert (reward.dtype, float(reward)) == (jnp.float32, always * step)
            if env.terminated(state) | env.truncated(state):
                ends.append((step, bool(env.terminated(state)), bool(env.truncated(state))))
        assert ends[:1] == expected


def test_training_stays_in_the_compiled_program():
    problem = ox.Problem(ox.from_gymnax(Walk()))
    result = ox.train(
        problem, ox.REINFORCE(batch=8, step_size=0.3), episodes=320, policy="linear", progress=False
    )
    earned = result.metrics["return"][0]
    assert (
        earned[-5:].mean() > earned[:5].mean() + 1
    )  # 10 at best: 1 + 2 + 3 + 4; by chance at most 7.5
    assert result.config["setup"]["random_numbers"] != "host"


def test_an_environment_by_name_is_saved_with_its_name_and_options():
    env = ox.make("gymnax/CartPole-v1", max_steps_in_episode=9)
    again = codec.unpack(*codec.pack(env))
    assert eqx.tree_equal(env, again)
    assert again.env_and_params()[1].max_steps_in_episode == 9


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ox.make("gymnax/Breakout"),
            "gymnax environment 'Breakout' is not known. Did you mean 'Breakout-Min",
        ),
        (
            lambda: ox.make("gymnax/CartPole-v1", gravty=3),
            "gymnax/CartPole-v1 does not take the options {'gravty': 3}",
        ),
        (
            lambda: ox.from_gymnax(3),
            "env must be an environment of gymnax, such as gymnax.make(...)[0], got int without",
        ),
        (
            lambda: ox.from_gymnax(Walk),
            "env must be an environment of gymnax, such as gymnax.make(...)[0], got a class",
        ),
    ],
)
def test_mistakes_are_answered_with_a_sentence(make: Any, said: str):
    with pytest.raises(ValueError, match=r"\w") as caught:
        make()
    assert str(caught.value).startswith(said)


def test_without_the_package_the_prefix_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    adapter._make_of_name.cache_clear()
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(
        ValueError,
        match=r"^gymnax/CartPole-v1 needs the package gymnax: `pip install 'occupax\[gymnax",
    ):
        ox.make("gymnax/CartPole-v1")

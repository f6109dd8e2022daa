"""Episodes of Gymnasium, held against the same episodes played by hand."""

import warnings
from functools import partial
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import wrappers

import occupax as ox
from occupax.samplers.episodes import EpisodeRunner
from simulators import CALLS, SPACES, Chain, Diary, Played, Sampled, key_of, play, seeds_of

KEY = jax.random.key(3)
SEEDS = seeds_of(KEY, 40)
UNIFORM = ox.policies.Softmax(lambda _: jnp.zeros(3))


def by_hand(env, drawn, i):
    """Trajectory i of a batch, played again with the actions it says."""
    return play(env, SEEDS[i], np.asarray(drawn.actions[i]))


def assert_is(drawn, i, played: Played, flatten=lambda seen: seen):
    """Assert that trajectory i is the episode `played`, padded with the final observation."""
    drawn = jax.tree.map(np.asarray, drawn)
    n, seen = len(played.rewards), np.stack([flatten(one) for one in played.observations])
    np.testing.assert_array_equal(drawn.live[i], np.arange(drawn.live.shape[1]) < n)
    np.testing.assert_array_equal(
        drawn.observations[i, :n], seen[:-1].astype(drawn.observations.dtype)
    )
    for after in (*drawn.observations[i, n:], drawn.final_observations[i]):
        np.testing.assert_array_equal(after, seen[-1].astype(after.dtype))
    np.testing.assert_array_equal(drawn.rewards[i, :n], np.float32(played.rewards))
    assert not any(
        column[i, n:].any() for column in (drawn.rewards, drawn.actions, drawn.log_probs)
    )
    assert bool(drawn.terminated[i]) == played.terminated


# The same as in JAX


@pytest.mark.parametrize("starts", [{}, {"state_start": 3, "action_start": -2}])
def test_a_table_gives_the_same_trajectories_to_the_last_bit(starts):
    transition = np.zeros((5, 2, 5))
    for state in range(5):
        transition[state, 0, state] = transition[state, 1, min(state + 1, 4)] = 1.0
    table = ox.TabularMDP(transition, Chain.REWARDS, [1, 0, 0, 0, 0], [False] * 4 + [True])
    policy = ox.policies.tabular(0.7)(table, jax.random.key(1))
    drawn = [
        ox.sample(ox.Problem(env, discount=0.9, horizon=9), policy, 30, KEY)
        for env in (table, ox.GymnasiumEnv(Chain, **starts))
    ]
    assert eqx.tree_equal(*drawn)
    assert 0 < drawn[0].terminated.sum() < 30  # some end, some are cut
    assert len(np.unique(drawn[0].lengths)) > 3


def test_cartpole_gives_trajectories_of_the_same_form():
    forms = []
    for backend in ("auto", "gymnasium"):
        problem = ox.Problem(ox.make("CartPole-v1", backend), discount=0.9, horizon=20)
        assert isinstance(problem.env, ox.GymnasiumEnv) == (backend == "gymnasium")
        assert problem.env.time_limit == 500
        policy = ox.policies.mlp(hidden=(4,))(problem.env, jax.random.key(0))
        drawn = ox.sample(problem, policy, 3, KEY)
        forms.append(
            (
                jax.tree.structure(drawn),
                [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(drawn)],
            )
        )
    assert forms[0] == forms[1]


def test_the_actions_are_those_of_the_policy_and_so_are_their_probabilities():
    env = ox.GymnasiumEnv("CartPole-v1")
    problem = ox.Problem(env, discount=0.9, horizon=15)
    policy = ox.policies.mlp(hidden=(4,))(env, jax.random.key(0))
    drawn = ox.sample(problem, policy, 4, KEY)

    @jax.jit
    def at(i, t):
        key = jax.random.split(jax.random.fold_in(jax.random.fold_in(KEY, i), t + 1))[0]
        action = policy.action(drawn.observations[i, t], key)
        return action, policy.log_prob(drawn.observations[i, t], action)

    for i, t in np.argwhere(drawn.live):
        action, log_prob = at(i, t)
        assert drawn.actions[i, t] == action
        np.testing.assert_allclose(drawn.log_probs[i, t], log_prob, rtol=1e-5)
    raw = env.make()
    for i in range(4):
        assert_is(drawn, i, by_hand(raw, drawn, i))


# What an episode is


@pytest.fixture(scope="module")
def diaries():
    """The problem, and the same 40 trajectories whatever number of environments played them."""
    env = ox.GymnasiumEnv(Diary, info=["time", "seed"])
    batches, calls = {}, {}
    for envs in (1, 3, 8):
        CALLS.clear()
        runner = EpisodeRunner(env, envs)
        batches[envs] = runner.draw(UNIFORM, KEY, 0, 40, 40, horizon=8)
        runner.close()
        calls[envs] = CALLS.copy()
    return env, batches, calls


def test_it_makes_no_difference_how_many_environments_play(diaries):
    _, batches, _ = diaries
    assert all(eqx.tree_equal(batches[1], batches[envs]) for envs in (3, 8))
    assert eqx.tree_equal(
        batches[1], ox.sample(ox.Problem(diaries[0], horizon=8), UNIFORM, 40, KEY)
    )


def test_a_trajectory_depends_on_its_number_and_not_on_the_batch(diaries):
    env, batches, _ = diaries
    part, whole = (
        jax.tree.map(np.asarray, it)
        for it in (EpisodeRunner(env, 3).draw(UNIFORM, KEY, 7, 12, 8, 8), batches[8])
    )
    for one, all_of_them in zip(jax.tree.leaves(part), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one[:5], all_of_them[7:12])
    assert not part.live[5:].any()  # those from number 12 on are empty
    other = EpisodeRunner(env, 3).draw(UNIFORM, key_of(0, 0), 7, 12, 8, 8)
    assert not set(np.asarray(other.observations)[:5, 0, 0]) & set(SEEDS)


def test_every_step_is_of_its_episode_and_none_is_that_of_a_reset(diaries):
    _, batches, _ = diaries
    drawn = jax.tree.map(np.asarray, batches[3])
    for i in range(40):
        n = drawn.live[i].sum()
        seen = np.concatenate([drawn.observations[i, :n], drawn.final_observations[None, i]])
        assert (seen[:, 0] == SEEDS[i]).all()
        np.testing.assert_array_equal(seen[:, 1], np.arange(n + 1))
        np.testing.assert_array_equal(seen[:, 2], [-1, *drawn.actions[i, :n]])
        rewards = seen[:-1, 0] % 1000 + 10_000 * np.arange(n) + 3_000 * drawn.actions[i, :n]
        np.testing.assert_array_equal(drawn.rewards[i, :n], rewards.astype(np.float32))
        np.testing.assert_array_equal(
            drawn.info[i, :n], np.stack([seen[1:, 1], seen[1:, 0] % 1000], 1)
        )
        assert not drawn.info[i, n:].any()
        assert_is(drawn, i, by_hand(Diary(), drawn, i))


def test_nothing_is_played_twice_or_beyond_the_end(diaries):
    _, batches, calls = diaries
    for envs, made in calls.items():
        drawn = jax.tree.map(np.asarray, batches[envs])
        resets = [call[1] for call in made if call[0] == "reset"]
        assert resets == SEEDS, envs
        assert len(made) - len(resets) == drawn.live.sum()
        taken = {(call[1], call[2]): call[3] for call in made if call[0] == "step"}
        assert taken == {(SEEDS[i], t + 1): drawn.actions[i, t] for i, t in np.argwhere(drawn.live)}


def test_lengths_and_endings_are_those_of_the_seeds(diaries):
    _, batches, _ = diaries
    lengths, ended = [], []
    for i in range(40):
        generator = gym.utils.seeding.np_random(SEEDS[i])[0]
        length, ending = generator.integers(1, Diary.LONGEST + 1), generator.integers(3)
        lengths.append(min(length, 8))
        ended.append(length <= 8 and Diary.ENDINGS[ending][0])  # both at once is an end
    np.testing.assert_array_equal(batches[8].lengths, lengths)
    np.testing.assert_array_equal(batches[8].terminated, ended)
    assert {*lengths} == {*range(1, 9)}


@pytest.mark.parametrize(("limit", "horizon"), [(3, None), (6, 4), (20, None)])
def test_a_time_limit_cuts_and_does_not_terminate(limit, horizon):
    env = ox.GymnasiumEnv(lambda: wrappers.TimeLimit(Chain(), limit))
    problem = ox.Problem(env, discount=0.9, horizon=horizon)
    assert (env.time_limit, problem.horizon) == (limit, horizon or limit)
    policy = ox.policies.Tabular(
        jnp.array([[0.0, 9.0]] * 5)
    )  # nearly always up: over after 4 steps
    drawn = ox.sample(problem, policy, 6, KEY)
    assert drawn.actions.shape[1] == (horizon or limit)
    np.testing.assert_array_equal(drawn.terminated, drawn.final_observations == Chain.LAST)
    assert drawn.terminated.sum() == {3: 0, 6: 6, 20: 6}[limit]
    with pytest.raises(ValueError, match=f"time limit of {limit}"):
        ox.Problem(env, horizon=limit + 1)


def test_the_innermost_and_the_shortest_time_limit_count():
    env = ox.GymnasiumEnv(
        lambda: wrappers.TimeLimit(wrappers.TimeAwareObservation(wrappers.TimeLimit(Diary(), 4)), 9)
    )
    assert env.time_limit == 4


# Spaces


KINDS = [
    "box",
    "box of float64",
    "box of bytes",
    "multi-binary",
    "multi-discrete",
    "multi-discrete from 2",
    "dict",
    "tuple",
    "nested",
]


@pytest.mark.parametrize("kind", KINDS)
def test_observations_are_flattened_as_gymnasium_does_it(kind):
    env, space = ox.GymnasiumEnv(Sampled, space=kind), SPACES[kind]
    flat = gym.spaces.flatten_space(space)
    assert flat.shape is not None
    assert (env.num_states, env.num_actions, env.shape) == (None, 3, flat.shape)
    drawn = ox.sample(ox.Problem(env, horizon=8), UNIFORM, 3, KEY)
    assert drawn.observations.shape == (3, 8, *flat.shape)
    assert drawn.observations.dtype == jax.dtypes.canonicalize_dtype(flat.dtype)
    for i in range(3):
        assert_is(drawn, i, by_hand(Sampled(kind), drawn, i), partial(gym.spaces.flatten, space))
    assert set(np.asarray(drawn.rewards[:, :6]).ravel()) == {
        4,
        5,
        6,
    }  # actions as the environment counts them


def test_a_network_learns_from_a_nested_observation():
    problem = ox.Problem(ox.GymnasiumEnv(Sampled, space="nested"), horizon=6)
    result = ox.train(
        problem,
        ox.REINFORCE(batch=4, step_size=0.5),
        12,
        policy=ox.policies.mlp(hidden=(4,)),
        progress=False,
    )
    assert result.status == ("finished",)
    probs = result.policy().probs(gym.spaces.flatten(SPACES["nested"], SPACES["nested"].sample()))
    np.testing.assert_allclose(probs.sum(), 1.0, rtol=1e-5)


def scaled():
    return wrappers.RescaleObservation(gym.make("MountainCar-v0"), np.float32(-1), np.float32(1))


def stacked():
    return wrappers.FrameStackObservation(wrappers.TimeLimit(Diary(), 5), 3)


def transformed():
    double = gym.spaces.Box(-4.0, 6.0, (3, 2), np.float64)
    return wrappers.TransformObservation(
        Sampled(), lambda seen: 2.0 * seen.T.astype(np.float64), double
    )


@pytest.mark.parametrize("make", [scaled, stacked, transformed])
def test_wrappers_are_part_of_the_environment(make):
    env = ox.GymnasiumEnv(make)
    policy = ox.policies.mlp(hidden=(3,))(env, jax.random.key(0))
    drawn = ox.sample(ox.Problem(env, horizon=7 if env.time_limit is None else 5), policy, 3, KEY)
    raw = make()
    for i in range(3):
        assert_is(
            drawn, i, by_hand(raw, drawn, i), partial(gym.spaces.flatten, raw.observation_space)
        )
    assert env.time_limit == {scaled: 200, stacked: 5, transformed: None}[make]


@pytest.mark.parametrize("kind", ["text", "sequence", "graph", "hidden"])
def test_observations_that_are_no_vector_are_refused(kind):
    with pytest.raises(
        ValueError, match=r"observation_space.* does not take: .*Box, Discrete, .*, got .+\.$"
    ):
        ox.GymnasiumEnv(Sampled, space=kind)


def test_actions_that_are_no_numbers_are_refused():
    with pytest.raises(
        ValueError, match=r"action space of Sampled must be Discrete, .*, got Text\(.*\.$"
    ):
        ox.GymnasiumEnv(Sampled, actions="text")


# By name


def test_environments_are_made_by_id_with_options_and_by_module():
    lake = ox.make("FrozenLake-v1", "gymnasium", is_slippery=False, map_name="8x8")
    assert isinstance(lake, ox.GymnasiumEnv)
    assert (lake.num_states, lake.num_actions, lake.time_limit) == (64, 4, 100)
    assert isinstance(ox.make("FrozenLake-v1"), ox.TabularMDP)
    assert isinstance(ox.make("MountainCar-v0"), ox.envs.MountainCar)
    assert isinstance(ox.make("MountainCar-v0", "gymnasium"), ox.GymnasiumEnv)
    chain = ox.make("simulators:Chain", action_start=4, info=["cost"])
    assert isinstance(chain, ox.GymnasiumEnv)
    assert (chain.num_states, chain.num_actions, chain.info) == (5, 2, ("cost",))
    with pytest.raises(ValueError, match=r"'Chian'.*Chain"):
        ox.make("simulators:Chian")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (Chain(), {}, "because several are made"),
        (3, {}, "Gymnasium id or a function"),
        ("CartPole-v9", {}, "CartPole"),
        (dict, {}, r"must make a gymnasium\.Env, got dict"),
        (Chain, {"colour": 1}, "failed.*TypeError.*colour"),
        (Chain, {"state_start": {}}, "the option state_start must be"),
        (Chain, {"info": "cost"}, "info must be a list of names"),
    ],
)
def test_what_makes_no_environment_is_refused_with_a_sentence(source, options, message):
    with pytest.raises(ValueError, match=message):
        ox.GymnasiumEnv(source, **options)


# Warnings


class Rounded(gym.Env[Any, Any]):
    """Bounds in float64 of spaces in float32, of which Gymnasium warns whenever one is made."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(np.array([0.0, -1.0]), np.array([1.0, 1.0]))
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 1.0, self.time == 3, False, {}

    def render(self):
        return np.zeros((20, 20, 3), np.uint8)


def test_gymnasium_does_not_warn_of_rounded_bounds_whenever_an_environment_is_made(tmp_path, capfd):
    problem = ox.Problem(Rounded, horizon=3)
    result = ox.train(problem, ox.REINFORCE(batch=4), 8, progress=False, out=tmp_path / "run")
    policy = result.best_policy
    ox.evaluate(policy, problem, 4)
    ox.evaluate(policy.for_env(problem.env), problem.env, 4)
    ox.record(policy, Rounded, tmp_path / "a.gif")
    in_processes = ox.samplers.Host(envs=2, processes=2)
    ox.train(problem, ox.REINFORCE(batch=4), 8, progress=False, sampler=in_processes)
    assert "precision lowered" not in capfd.readouterr().err


class Outdated(Rounded):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        warnings.warn("this environment is outdated", UserWarning, stacklevel=2)


def test_other_warnings_of_an_environment_are_shown():
    with pytest.warns(UserWarning, match="this environment is outdated") as shown:
        ox.GymnasiumEnv(Outdated)
    assert len(shown) == 1

"""Tabular MDPs against Gymnasium's tables, hand-worked ones, closed forms and frequencies."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from occupax.envs import Layout, TabularMDP
from occupax.io import codec
from occupax.io.files import read_arrays, write_arrays

Floats = npt.NDArray[np.float64]

GYMNASIUM_TABLES: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake8x8-v1", {}),
    ("FrozenLake8x8-v1", {"is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True}),
]
LEFT, DOWN, RIGHT, UP = range(4)

# The keys are fixed, so a result never changes; a right sampler passes this bound for 999 keys of
# 1000, and with the thousands of draws taken a probability that is wrong by a few hundredths is far
# below it.
SMALLEST_P = 1e-3

properties = settings(deadline=None, max_examples=40, derandomize=True)


def dense_transition(env: TabularMDP) -> Floats:
    return env.transition.toarray().reshape(env.num_states, env.num_actions, env.num_states)


def dense_rewards(env: TabularMDP) -> Floats:
    """Return the reward of each outcome [S, A, S], zero for impossible ones."""
    rewards = np.zeros((env.num_states, env.num_actions, env.num_states))
    for index in np.argwhere(env.probabilities > 0):
        state, action, slot = index
        rewards[state, action, env.successors[state, action, slot]] = env.outcome_rewards[
            state, action, slot
        ]
    return rewards


def assert_same_process(one: TabularMDP, other: TabularMDP):
    np.testing.assert_allclose(dense_transition(one), dense_transition(other), rtol=0, atol=1e-15)
    np.testing.assert_allclose(dense_rewards(one), dense_rewards(other), rtol=0, atol=1e-15)
    np.testing.assert_allclose(one.initial, other.initial, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(one.terminal, other.terminal)


# Gymnasium's own tables


class Reading:
    """Reachable states of a Gymnasium table: running ones and ended ones."""

    def __init__(self, env: Any):
        self.table, self.initial = env.P, np.asarray(env.initial_state_distrib)
        self.running, self.ended = set[int](), set[int]()
        to_visit = [int(state) for state in np.flatnonzero(self.initial)]
        while to_visit:
            state = to_visit.pop()
            if state in self.running:
                continue
            self.running.add(state)
            for outcomes in self.table[state].values():
                for probability, following, _, terminated in outcomes:
                    if probability > 0:
                        (self.ended.add if terminated else to_visit.append)(int(following))

    def rewards(self, state: int, action: int, following: int) -> set[float]:
        """All the rewards that may come with one transition."""
        return {r for p, s, r, _ in self.table[state][action] if p > 0 and s == following}


@pytest.mark.parametrize(("name", "options"), GYMNASIUM_TABLES)
def test_gymnasium_table_is_read_as_published(name: str, options: dict[str, Any]):
    reading = Reading(gymnasium.make(name, **options).unwrapped)
    env = TabularMDP.from_gymnasium(name, **options)
    transition = dense_transition(env)
    assert not reading.running & reading.ended
    for state in reading.running:
        for action, outcomes in reading.table[state].items():
            probabilities = np.zeros(env.num_states)
            for probability, following, _, _ in outcomes:
                probabilities[following] += probability
            np.testing.assert_allclose(transition[state, action], probabilities, rtol=0, atol=1e-15)
            expected = sum(probability * reward for probability, _, reward, _ in outcomes)
            assert env.reward[state, action] == pytest.approx(expected, rel=1e-14, abs=1e-15)
    reached = sorted(reading.running | reading.ended)
    np.testing.assert_array_equal(
        env.terminal[reached], [state in reading.ended for state in reached]
    )
    np.testing.assert_allclose(env.initial, reading.initial, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("name", "options"), GYMNASIUM_TABLES)
def test_ended_episodes_stay_where_they_are_and_earn_nothing(name: str, options: dict[str, Any]):
    env = TabularMDP.from_gymnasium(name, **options)
    ended = np.flatnonzero(env.terminal)
    assert ended.size
    for action in range(env.num_actions):
        np.testing.assert_array_equal(
            dense_transition(env)[ended, action], np.eye(env.num_states)[ended]
        )
    np.testing.assert_array_equal(env.reward[ended], 0)


@pytest.mark.parametrize(("name", "options"), GYMNASIUM_TABLES)
def test_steps_that_gymnasium_takes_have_our_rewards_and_flags(name: str, options: dict[str, Any]):
    theirs: Any = gymnasium.make(name, **options).unwrapped
    reading, env = Reading(theirs), TabularMDP.from_gymnasium(name, **options)
    transition, rewards = dense_transition(env), dense_rewards(env)
    theirs.reset(seed=7)
    unambiguous = 0
    for state in sorted(reading.running):
        for action in range(env.num_actions):
            theirs.s = state
            following, reward, terminated, _, _ = theirs.step(action)
            assert transition[state, action, following] > 0
            assert terminated == env.terminal[following]
            # sliding against the border of the cliff and falling down it may end in the same cell:
            # there ours is a mean
            if len(reading.rewards(state, action, following)) == 1:
                assert reward == pytest.approx(rewards[state, action, following], rel=1e-14)
                unambiguous += 1
    assert unambiguous > 0.9 * len(reading.running) * env.num_actions


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_gymnasium_starts_where_we_do(name: str):
    theirs = gymnasium.make(name)
    env = TabularMDP.from_gymnasium(theirs)
    starts = {theirs.reset(seed=seed)[0] for seed in range(100)}
    assert all(env.initial[state] > 0 for state in starts)


class Published(gymnasium.Env[int, int]):
    """Whatever table it is given, with two states and one action."""

    def __init__(self, table: Any, initial: Any = (1.0, 0.0)):
        self.P, self.initial_state_distrib = table, initial
        self.action_space, self.observation_space = (
            gymnasium.spaces.Discrete(1),
            gymnasium.spaces.Discrete(2),
        )  # pyright: ignore[reportIncompatibleVariableOverride]


def test_outcomes_that_meet_in_one_state_are_merged_with_their_mean_reward():
    table = {
        0: {0: [(0.25, 1, 8.0, False), (0.25, 1, 0.0, False), (0.5, 0, 3.0, False)]},
        1: {0: [(1.0, 1, 0, False)]},
    }
    env = TabularMDP.from_gymnasium(Published(table))
    np.testing.assert_array_equal(dense_transition(env), [[[0.5, 0.5]], [[0.0, 1.0]]])
    np.testing.assert_array_equal(dense_rewards(env), [[[3.0, 4.0]], [[0.0, 0.0]]])
    assert not env.terminal.any()


def test_table_that_ends_only_some_episodes_in_a_state_is_refused():
    table = {0: {0: [(0.5, 1, 0.0, True), (0.5, 1, 0.0, False)]}, 1: {0: [(1.0, 1, 0.0, False)]}}
    with pytest.raises(
        ValueError, match="Published ends some episodes but not others on entering state 1"
    ):
        TabularMDP.from_gymnasium(Published(table))


def test_outcome_of_probability_zero_does_not_end_anything():
    table = {0: {0: [(1.0, 1, 0.0, False), (0.0, 1, 5.0, True)]}, 1: {0: [(1.0, 1, 2.0, False)]}}
    env = TabularMDP.from_gymnasium(Published(table))
    assert not env.terminal.any()
    np.testing.assert_array_equal(env.reward, [[0.0], [2.0]])


def test_flags_of_states_no_episode_reaches_do_not_count():
    # state 1 would end an episode in state 0, but no episode gets there
    table = {0: {0: [(1.0, 0, 1.0, False)]}, 1: {0: [(1.0, 0, 0.0, True)]}}
    assert not TabularMDP.from_gymnasium(Published(table)).terminal.any()


def test_fickle_passenger_is_refused_because_taxi_leaves_it_out_of_its_table():
    with pytest.raises(ValueError, match=r"Taxi-v4 with fickle_passenger=True .* set it to False"):
        TabularMDP.from_gymnasium("Taxi-v4", fickle_passenger=True)


# Gridworlds, chains and random processes


@pytest.mark.parametrize("size", ["4x4", "8x8"])
@pytest.mark.parametrize(("slip", "is_slippery"), [(2 / 3, True), (0.0, False)])
def test_gridworld_of_the_frozen_lake_map_is_frozen_lake(size: str, slip: float, is_slippery: bool):
    drawn = TabularMDP.gridworld("\n".join(MAPS[size]), slip)
    assert_same_process(
        drawn, TabularMDP.from_gymnasium("FrozenLake-v1", map_name=size, is_slippery=is_slippery)
    )


def test_gridworld_worked_by_hand():
    # states: 0 and 1 in the upper row, with a wall between them, then 2, 3, 4; half of the moves
    # slip, a quarter a side
    env = TabularMDP.gridworld("""
        S#G
        .SF
    """, slip=0.5)  # fmt: skip
    outcomes: dict[tuple[int, int], dict[int, float]] = {
        (0, LEFT): {0: 0.75, 2: 0.25},
        (0, DOWN): {0: 0.5, 2: 0.5},
        (0, RIGHT): {0: 0.75, 2: 0.25},
        (0, UP): {0: 1.0},
        (2, LEFT): {2: 0.75, 0: 0.25},
        (2, DOWN): {2: 0.75, 3: 0.25},
        (2, RIGHT): {3: 0.5, 0: 0.25, 2: 0.25},
        (2, UP): {0: 0.5, 2: 0.25, 3: 0.25},
        (3, LEFT): {2: 0.5, 3: 0.5},
        (3, DOWN): {3: 0.5, 2: 0.25, 4: 0.25},
        (3, RIGHT): {4: 0.5, 3: 0.5},
        (3, UP): {3: 0.5, 2: 0.25, 4: 0.25},
        (4, LEFT): {3: 0.5, 1: 0.25, 4: 0.25},
        (4, DOWN): {4: 0.75, 3: 0.25},
        (4, RIGHT): {4: 0.75, 1: 0.25},
        (4, UP): {1: 0.5, 3: 0.25, 4: 0.25},
    } | {(1, action): {1: 1.0} for action in range(4)}
    transition, reward = np.zeros((5, 4, 5)), np.zeros((5, 4))
    for (state, action), following in outcomes.items():
        for to, probability in following.items():
            transition[state, action, to] = probability
    reward[4] = [0.25, 0.0, 0.25, 0.5]
    np.testing.assert_array_equal(dense_transition(env), transition)
    np.testing.assert_array_equal(env.reward, reward)
    np.testing.assert_array_equal(env.initial, [0.5, 0, 0, 0.5, 0])
    np.testing.assert_array_equal(env.terminal, [False, True, False, False, False])


def test_gridworld_without_ice_has_one_outcome_a_move_and_full_slip_two():
    assert TabularMDP.gridworld("S.\n.G").successors.shape == (4, 4, 1)
    sideways = dense_transition(TabularMDP.gridworld("...\n.S.\n..."[:-1] + "G", slip=1.0))
    np.testing.assert_array_equal(sideways[4, UP], [0, 0, 0, 0.5, 0, 0.5, 0, 0, 0])


@pytest.mark.parametrize("n", [1, 2, 6])
def test_chain_has_the_return_of_its_closed_form(n: int):
    env, discount = TabularMDP.chain(n), 0.9
    transition, values = dense_transition(env), np.zeros(n)
    for _ in range(400):  # 0.9^400 is below the rounding of a float
        values = (env.reward + discount * transition @ values).max(1)
    assert env.initial @ values == pytest.approx(discount ** (n - 1) / (1 - discount), rel=1e-12)
    back = dense_transition(env)[:, 0]
    np.testing.assert_array_equal(back.argmax(1), np.maximum(np.arange(n) - 1, 0))
    np.testing.assert_array_equal(env.reward[:, 0], 0)


def test_garnet_branches_as_often_as_asked():
    env = TabularMDP.garnet(9, 3, 4, jax.random.key(0))
    transition = env.transition
    np.testing.assert_allclose(transition.sum(axis=1), 1, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(np.diff(transition.indptr), 4)
    assert len({tuple(row) for row in env.successors.reshape(27, 4)}) > 20
    assert env.reward.min() >= 0
    assert env.reward.max() <= 1
    assert np.ptp(env.reward) > 0.5
    np.testing.assert_allclose(env.initial, 1 / 9)
    assert not env.terminal.any()


def test_garnet_depends_on_its_key_alone():
    one, again, other = (TabularMDP.garnet(9, 3, 4, jax.random.key(seed)) for seed in (0, 0, 1))
    assert eqx.tree_equal(one, again)
    assert (one.successors != other.successors).any()
    assert (one.reward != other.reward).any()


def test_garnet_may_branch_everywhere():
    assert np.all(dense_transition(TabularMDP.garnet(4, 2, 4, jax.random.key(3))) > 0)


# Forms of input


def some_process(seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Transitions with outcomes that are impossible, rewards [S, A, S], initial."""
    random = np.random.default_rng(seed)
    weights = random.integers(0, 4, (5, 3, 5)) + np.eye(5)[:, None]
    return (
        weights / weights.sum(-1, keepdims=True),
        random.normal(size=(5, 3, 5)),
        random.dirichlet(np.ones(5)),
    )


FORMS: dict[str, Callable[[Floats], Any]] = {
    "nested lists": lambda dense: dense.tolist(),
    "jax": jnp.asarray,
    "csr [S * A, S]": lambda dense: sparse.csr_array(dense.reshape(-1, dense.shape[2])),
    "csc [S * A, S]": lambda dense: sparse.csc_array(dense.reshape(-1, dense.shape[2])),
    "lil [S * A, S]": lambda dense: sparse.lil_array(dense.reshape(-1, dense.shape[2])),
    "dok [S * A, S]": lambda dense: sparse.dok_array(dense.reshape(-1, dense.shape[2])),
    "csr matrix": lambda dense: sparse.csr_matrix(dense.reshape(-1, dense.shape[2])),
    "coo [S, A, S]": sparse.coo_array,
    "entries given in two halves": lambda dense: sparse.coo_array(
        (
            np.tile(dense.ravel() / 2, 2),
            tuple(np.tile(axis, 2) for axis in np.indices(dense.shape).reshape(3, -1)),
        ),
        shape=dense.shape,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_gives_the_same_process(form: str, x64: None):
    transition, reward, initial = some_process()
    terminal = np.array([False, True, False, False, False])
    expected = TabularMDP(transition, reward, initial, terminal)
    assert_same_process(TabularMDP(FORMS[form](transition), reward, initial, terminal), expected)
    assert_same_process(TabularMDP(transition, FORMS[form](reward), initial, terminal), expected)
    np.testing.assert_allclose(
        dense_transition(expected)[~terminal], transition[~terminal], rtol=0, atol=1e-15
    )
    mean = (transition * reward).sum(2)
    np.testing.assert_allclose(expected.reward[~terminal], mean[~terminal], rtol=0, atol=1e-15)


def test_reward_of_state_and_action_is_the_same_for_every_outcome():
    transition, reward, initial = some_process()
    by_pair = reward[:, :, 0]
    one = TabularMDP(transition, by_pair, initial)
    assert_same_process(one, TabularMDP(transition, np.repeat(by_pair[:, :, None], 5, 2), initial))
    np.testing.assert_allclose(one.reward, by_pair, rtol=0, atol=1e-15)


def test_square_reward_is_one_of_state_and_action():
    # with A = S, [S, A] must not be taken for anything else
    transition, reward = np.full((2, 2, 2), 0.5), np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(TabularMDP(transition, reward, [1.0, 0.0]).reward, reward)


def test_one_state_and_one_action_are_enough():
    env = TabularMDP([[[1.0]]], [[3.0]], [1.0])
    assert (env.num_states, env.num_actions) == (1, 1)
    assert env.reward == 3.0


@pytest.mark.parametrize("written", [0.0, 7.0, -1.0])
@pytest.mark.parametrize("form", ["nested lists", "csr [S * A, S]", "coo [S, A, S]"])
def test_terminal_rows_may_hold_anything(written: float, form: str):
    transition, reward, initial = some_process()
    transition[[1, 4]] = written
    env = TabularMDP(
        FORMS[form](transition), reward, initial, np.array([False, True, False, False, True])
    )
    for state in (1, 4):
        np.testing.assert_array_equal(
            dense_transition(env)[state], np.tile(np.eye(5)[state], (3, 1))
        )
        # what it pays for repeating itself, which the "absorbing" convention collects
        np.testing.assert_array_equal(env.reward[state], reward[state, :, state])
    np.testing.assert_allclose(
        dense_transition(env)[[0, 2, 3]], transition[[0, 2, 3]], rtol=0, atol=1e-15
    )


def test_all_states_may_be_terminal():
    env = TabularMDP(np.zeros((2, 1, 2)), np.ones((2, 1)), [0.5, 0.5], [True, True])
    np.testing.assert_array_equal(dense_transition(env)[:, 0], np.eye(2))


def test_rounding_of_the_input_is_divided_out():
    rounded = np.full((1, 1, 3), np.float32(1 / 3), np.float32) + np.float32(1e-7)
    env = TabularMDP(np.repeat(rounded, 3, 0), np.zeros((3, 1)), rounded[0, 0])
    np.testing.assert_allclose(env.transition.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert env.initial.sum() == pytest.approx(1, abs=1e-15)


# Sampling


# Rows of one to four outcomes, so that three are padded; impossible ones in front, between and
# behind.
RAGGED = np.array([
    [[0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]],
    [[0.0, 0.7, 0.0, 0.3], [0.5, 0.0, 0.5, 0.0]],
    [[0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.5, 0.0]],
    [[0.01, 0.01, 0.01, 0.97], [0.9, 0.1, 0.0, 0.0]],
])  # fmt: skip
RAGGED_INITIAL = np.array([0.0, 0.6, 0.0, 0.4])
RAGGED_REWARDS = np.arange(32.0).reshape(4, 2, 4)


def ragged() -> TabularMDP:
    return TabularMDP(RAGGED, RAGGED_REWARDS, RAGGED_INITIAL)


@eqx.filter_jit
def many_steps(env: TabularMDP, states: Any, actions: Any, keys: Any) -> Any:
    return jax.vmap(env.step)(states, actions, keys)


@eqx.filter_jit
def many_resets(env: TabularMDP, keys: Any) -> Any:
    return jax.vmap(env.reset)(keys)


def assert_drawn_from(draws: Any, probabilities: Floats):
    frequencies = np.bincount(np.asarray(draws), minlength=probabilities.size)
    possible = probabilities > 0
    assert frequencies.size == probabilities.size
    assert frequencies[~possible].sum() == 0
    if possible.sum() > 1:
        expected = probabilities[possible] * frequencies.sum()
        assert stats.chisquare(frequencies[possible], expected).pvalue > SMALLEST_P


def test_steps_are_as_frequent_as_their_probabilities():
    draws = 5000
    states, actions = (np.repeat(axis, draws) for axis in np.indices((4, 2)).reshape(2, -1))
    following, rewards = many_steps(
        ragged(), states, actions, jax.random.split(jax.random.key(1), states.size)
    )
    np.testing.assert_array_equal(rewards, RAGGED_REWARDS[states, actions, np.asarray(following)])
    for state in range(4):
        for action in range(2):
            here = (states == state) & (actions == action)
            assert_drawn_from(np.asarray(following)[here], RAGGED[state, action])


def test_resets_are_as_frequent_as_their_probabilities():
    assert_drawn_from(
        many_resets(ragged(), jax.random.split(jax.random.key(2), 5000)), RAGGED_INITIAL
    )


def test_terminal_flag_follows_the_mask_and_a_table_is_never_truncated():
    env = TabularMDP(RAGGED, RAGGED_REWARDS, RAGGED_INITIAL, [False, True, False, True])
    np.testing.assert_array_equal(
        jax.vmap(env.terminated)(jnp.arange(4)), [False, True, False, True]
    )
    assert not jax.vmap(env.truncated)(jnp.arange(4)).any()
    assert env.observe(2) == 2


def below_one(dtype: type) -> float:
    """The largest number that `jax.random.uniform` may return."""
    return float(np.nextafter(dtype(1), dtype(0)))


@pytest.mark.parametrize(
    ("edge", "wide"),
    [(0.0, False), (0.0, True), (below_one(np.float32), False), (below_one(np.float64), True)],
)
def test_impossible_outcomes_are_not_drawn_at_the_ends_of_the_unit_interval(
    edge: float, wide: bool, monkeypatch: pytest.MonkeyPatch
):
    def uniform(key: Any, shape: Any, dtype: Any) -> Any:
        return jnp.full(shape, edge, dtype)

    monkeypatch.setattr(jax.random, "uniform", uniform)
    # ten float64 tenths add up to no more than the largest number below 1; the rest is impossible,
    # or padding that points to state 0
    tenths = np.concatenate([[0.0], np.full(10, 0.1), [0.0]])
    assert np.cumsum(tenths)[-1] <= below_one(np.float64)
    rows = np.stack([tenths, np.full(12, 1 / 12), *np.eye(12)[2:]])[:, None]
    env = TabularMDP(rows, np.arange(144.0).reshape(12, 1, 12), tenths)
    chosen = -1 if edge else 0
    with jax.enable_x64(wide):
        for state in (0, 1, 5):
            following, reward = env.step(state, 0, jax.random.key(0))
            expected = np.flatnonzero(rows[state, 0])[chosen]
            assert (int(following), float(reward)) == (expected, 12 * state + expected)
        assert int(env.reset(jax.random.key(0))) == np.flatnonzero(tenths)[chosen]


# What is stored


def test_stored_arrays_cannot_be_written():
    arrays = [leaf for leaf in jax.tree.leaves(ragged()) if isinstance(leaf, np.ndarray)]
    assert len(arrays) == 7
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_input_is_copied_and_left_alone():
    given = [
        RAGGED.copy(),
        RAGGED_REWARDS.copy(),
        RAGGED_INITIAL.copy(),
        np.array([False, False, False, True]),
    ]
    before = [array.copy() for array in given]
    env, expected = TabularMDP(*given), TabularMDP(*before)
    for array, original in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, original)
        array[...] = 0  # still ours to write
    assert eqx.tree_equal(env, expected)


def test_sparse_input_is_left_alone():
    # explicit zeros, unsorted and repeated entries: all of them are tidied up in a copy
    given = sparse.csr_array(
        (np.array([0.5, 0.25, 0.25, 0.0, 1.0]), [1, 0, 0, 1, 1], [0, 3, 5]), shape=(2, 2)
    )
    data, indices = given.data.copy(), given.indices.copy()
    env = TabularMDP(given, np.zeros((2, 1)), [1.0, 0.0], [False, True])
    np.testing.assert_array_equal(dense_transition(env)[:, 0], [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_array_equal(given.data, data)
    np.testing.assert_array_equal(given.indices, indices)


def test_transition_may_be_asked_for_and_written_to_any_number_of_times():
    env, untouched = ragged(), ragged()
    first = env.transition
    np.testing.assert_array_equal(first.toarray(), env.transition.toarray())
    first.data[:] = 0
    np.testing.assert_array_equal(env.transition.toarray(), RAGGED.reshape(8, 4))
    assert eqx.tree_equal(env, untouched)
    assert env.transition.nnz == np.count_nonzero(RAGGED)


# Any valid process is read back, and any fault is named


@st.composite
def processes(draw: st.DrawFn) -> tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]]:
    """Probabilities in sixteenths, which floats hold exactly."""
    S, A = draw(st.integers(1, 4)), draw(st.integers(1, 3))

    def distributions(*shape: int) -> Floats:
        cuts = np.sort(draw(hnp.arrays(np.int64, (*shape, S - 1), elements=st.integers(0, 16))), -1)
        return np.diff(cuts, axis=-1, prepend=0, append=16) / 16

    rewards = draw(hnp.arrays(np.float64, (S, A, S), elements=st.floats(-1e6, 1e6)))
    return distributions(S, A), rewards, distributions(), draw(hnp.arrays(np.bool_, S))


@properties
@given(processes(), st.sampled_from([np.asarray, sparse.coo_array]))
def test_valid_process_is_read_back_exactly(process: tuple[Any, ...], form: Callable[[Any], Any]):
    transition, reward, initial, terminal = process
    env = TabularMDP(form(transition), form(reward), initial, terminal)
    expected = np.where(terminal[:, None, None], np.eye(terminal.size)[:, None], transition)
    np.testing.assert_array_equal(dense_transition(env), expected)
    np.testing.assert_array_equal(dense_rewards(env), np.where(expected > 0, reward, 0))
    np.testing.assert_array_equal(env.initial, initial)
    np.testing.assert_array_equal(env.terminal, terminal)
    assert (env.num_states, env.num_actions) == transition.shape[:2]


def check_refused(process: tuple[Any, ...], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        TabularMDP(*process)


@properties
@given(processes(), st.data(), st.sampled_from([np.asarray, sparse.coo_array]))
def test_one_wrong_probability_is_named(
    process: tuple[Any, ...], data: st.DataObject, form: Callable[[Any], Any]
):
    transition, reward, initial, _ = process
    state, action, following = place = data.draw(
        st.tuples(*(st.integers(0, size - 1) for size in transition.shape))
    )

    def with_entry(entry: float) -> tuple[Any, ...]:
        wrong = transition.copy()
        wrong[place] = entry
        return form(wrong), reward, initial

    check_refused(with_entry(np.nan), f"transition must be finite, got nan at index {place}.")
    check_refused(with_entry(np.inf), f"transition must be finite, got inf at index {place}.")
    check_refused(
        with_entry(-0.25),
        f"transition[{state}, {action}, {following}] must not be negative, got -0.25.",
    )
    total = 1 + 0.125
    check_refused(
        with_entry(transition[place] + 0.125),
        f"transition[{state}, {action}] must sum to 1, got {total}.",
    )
    if transition[place]:
        rest = 1 - transition[place]
        check_refused(
            with_entry(0.0), f"transition[{state}, {action}] must sum to 1, got {rest:.9g}."
        )


@properties
@given(processes(), st.data(), st.sampled_from([np.asarray, sparse.coo_array]))
def test_one_wrong_reward_is_named(
    process: tuple[Any, ...], data: st.DataObject, form: Callable[[Any], Any]
):
    transition, reward, initial, _ = process
    place = data.draw(st.tuples(*(st.integers(0, size - 1) for size in transition.shape)))
    reward[place] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    check_refused(
        (transition, form(reward), initial),
        f"reward must be finite, got {reward[place]} at index {place}.",
    )


@properties
@given(processes(), st.data())
def test_wrong_initial_distribution_is_named(process: tuple[Any, ...], data: st.DataObject):
    transition, reward, initial, _ = process
    state = data.draw(st.integers(0, initial.size - 1))
    more, negative, nan = initial.copy(), initial.copy(), initial.copy()
    more[state] += 0.125
    negative[state] = -0.25
    nan[state] = np.nan
    check_refused((transition, reward, more), "initial must sum to 1, got 1.125.")
    check_refused(
        (transition, reward, negative),
        f"initial[{state}] must not be negative, got -0.25.",
    )
    check_refused(
        (transition, reward, nan), f"initial must be finite, got nan at index ({state},)."
    )


@properties
@given(processes(), st.integers(0, 2), st.sampled_from([np.asarray, sparse.coo_array]))
def test_wrong_shape_is_named(process: tuple[Any, ...], axis: int, form: Callable[[Any], Any]):
    transition, reward, initial, terminal = process
    S, A = transition.shape[:2]
    longer = np.concatenate([transition, transition], axis)
    shape = f"[S, A, S] = {(S, A, S)}"
    got = re.escape(str(longer.shape))
    with pytest.raises(
        ValueError, match=rf"transition must have shape.*{re.escape(shape)}.*got {got}"
    ):
        TabularMDP(form(longer), reward, initial)
    if axis != 1:  # a reward with twice the actions is right by itself
        check_refused((transition, form(longer), initial), f"with S = {S} states")
    check_refused(
        (transition, reward, initial, np.tile(terminal, 2)),
        f"terminal must be {S} booleans, one per state, got shape",
    )


@pytest.mark.parametrize("shape", [(3, 2), (7, 3), (6, 4), (5, 3), (6,), (0, 3)])
def test_sparse_reward_of_another_shape_is_refused_with_its_shape(shape: tuple[int, ...]):
    # SciPy would say that it cannot reshape an array
    uniform = np.full((3, 2, 3), 1 / 3)
    check_refused(
        (uniform, sparse.coo_array(np.ones(shape)), [1.0, 0.0, 0.0]),
        f"at least one action, got {shape}.",
    )


@pytest.mark.parametrize(
    "terminal", [[0, 1], [True], "no", [[True, False]], [[True], [True, False]]]
)
def test_terminal_mask_must_be_booleans(terminal: Any):
    check_refused(
        (np.full((2, 1, 2), 0.5), np.zeros((2, 1)), [1.0, 0.0], terminal),
        "terminal must be 2 booleans",
    )


# Layouts


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1"])
def test_layout_of_frozen_lake_is_its_map(name: str):
    env: Any = gymnasium.make(name).unwrapped
    layout = TabularMDP.from_gymnasium(name).layout
    assert layout is not None
    assert layout.rows == tuple("".join(row) for row in env.desc.astype(str))
    np.testing.assert_array_equal(layout.to_map(np.arange(env.nrow**2.0)).ravel(), layout.cells)


@pytest.mark.parametrize("name", ["CliffWalking-v1", "FrozenLake-v1"])
def test_moves_of_a_layout_lead_to_the_next_cell(name: str):
    """From each free cell every action can lead to its neighbour."""
    env = TabularMDP.from_gymnasium(name)
    layout = env.layout
    assert layout is not None
    rows, columns = layout.shape
    for state in np.flatnonzero(~env.terminal & (layout.letters.ravel() != "C")):
        row, column = divmod(int(state), columns)
        for action, (down, right) in enumerate(layout.moves):
            i, j = row + down, column + right
            is_inside = 0 <= i < rows and 0 <= j < columns
            if is_inside and layout.rows[i][j] != "C":
                assert dense_transition(env)[state, action, i * columns + j] > 0


def test_layout_of_cliff_walking_marks_start_cliff_and_goal():
    layout = TabularMDP.from_gymnasium("CliffWalking-v1").layout
    assert layout is not None
    assert layout.rows == ("." * 12,) * 3 + ("S" + "C" * 10 + "G",)


def test_layout_of_taxi_sums_the_states_of_each_cell():
    env = TabularMDP.from_gymnasium("Taxi-v4")
    assert env.layout is not None
    np.testing.assert_array_equal(env.layout.to_map(np.ones(500)), np.full((5, 5), 20))


def test_layout_of_a_gridworld_skips_walls():
    env = TabularMDP.gridworld("S#G\n.SF")
    layout = env.layout
    assert layout is not None
    assert layout.shape == (2, 3)
    np.testing.assert_array_equal(layout.walls, [[False, True, False], [False] * 3])
    np.testing.assert_array_equal(layout.to_map(np.arange(1.0, 6)), [[1, 0, 2], [3, 4, 5]])
    assert layout.marks == [["S", "", "G"], ["", "S", ""]]


def test_layout_survives_a_file(tmp_path: Path):
    env = TabularMDP.gridworld("S#G\n.SF", slip=0.2)
    write_arrays(tmp_path / "env", *reversed(codec.pack(env)))
    arrays, description = read_arrays(tmp_path / "env")
    restored = codec.unpack(description, arrays)
    assert restored.layout == env.layout
    assert eqx.tree_equal(restored, env)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("S.\n..", "layout must be an occupax.envs.Layout"),
        (Layout(["S."] * 3), "layout must have at most 4 states, the table's, got 6"),
        (Layout(["S."], [(0, 1)]), "layout must have 2 moves, one per action, got 1"),
    ],
)
def test_layout_must_fit_the_table(layout: Any, message: str):
    chain = TabularMDP.chain(4)
    with pytest.raises(ValueError, match=message):
        TabularMDP(chain.transition, chain.reward, chain.initial, layout=layout)


@pytest.mark.parametrize("rows", [[], [""], ["S.", "."]])
def test_rows_of_a_layout_have_one_length(rows: list[str]):
    with pytest.raises(ValueError, match="rows must be strings of one length"):
        Layout(rows)

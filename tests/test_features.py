"""Features against dense vectors built in NumPy."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

import occupax as ox
from occupax import features
from occupax.features import (
    Count,
    Feature,
    Function,
    Grid,
    Reward,
    Stack,
    State,
    StateAction,
    Table,
    Visit,
    as_feature,
)

Floats = npt.NDArray[np.floating[Any]]

# Sizes that no other product of sizes equals, so that the shape of an array says what it is over.
STATES, ACTIONS, HORIZON, BATCH = 11, 3, 7, 2
GARNET = ox.TabularMDP.garnet(STATES, ACTIONS, 2, jax.random.key(0))
CARTPOLE = ox.make("CartPole-v1")
TABLE = np.random.default_rng(0).normal(size=(STATES, ACTIONS, 4))


def squares(observation: Any, action: Any) -> jax.Array:
    return jnp.stack([observation**2, action]).astype(float)


def constant(observation: Any, action: Any) -> float:
    return 1.5


def dense(
    feature: Feature, observation: Any, action: int, reward: float, env: Any = GARNET
) -> Floats:
    """The vector phi that a feature stands for."""
    count = feature.count(
        env, Visit(jnp.asarray(observation), jnp.asarray(action), jnp.asarray(reward))
    )
    assert count.index.shape == count.value.shape
    vector = np.zeros(feature.size(env))
    np.add.at(vector, np.asarray(count.index), np.asarray(count.value))
    return vector


def trajectories_of(states: Any, actions: Any, rewards: Any) -> ox.Trajectories:
    """Return trajectories that end in state 0 and have only live steps."""
    return ox.Trajectories(
        observations=jnp.asarray(states, jnp.int32),
        actions=jnp.asarray(actions, jnp.int32),
        log_probs=jnp.zeros((BATCH, HORIZON)),
        rewards=jnp.asarray(rewards, jnp.float32),
        live=jnp.ones((BATCH, HORIZON), bool),
        terminated=jnp.ones(BATCH, bool),
        final_observations=jnp.zeros(BATCH, jnp.int32),
    )


def one_hot(place: int, size: int) -> Floats:
    vector = np.zeros(size)
    vector[place] = 1.0
    return vector


# Counts.


def batch_of_counts() -> tuple[Count, Floats, Floats]:
    """Return random counts [2, 3] with repeated indices, the dense array [2, 3, 5] and weights."""
    random = np.random.default_rng(1)
    index, value = random.integers(0, 5, (2, 3, 4)), random.normal(size=(2, 3, 4))
    index[0, 0] = [1, 1, 1, 2]
    vectors = np.zeros((2, 3, 5))
    for i, j, k in np.ndindex(2, 3, 4):
        vectors[i, j, index[i, j, k]] += value[i, j, k]
    return Count(jnp.asarray(index), jnp.asarray(value)), vectors, random.normal(size=(2, 3))


def test_the_total_of_counts_is_the_weighted_sum_of_the_vectors(x64: None) -> None:
    counts, vectors, weight = batch_of_counts()
    np.testing.assert_allclose(
        counts.total(jnp.asarray(weight), 5), np.einsum("bh,bhd->d", weight, vectors), rtol=1e-12
    )
    # Places that never come up stay zero.
    np.testing.assert_array_equal(counts.total(jnp.asarray(weight), 7)[5:], [0.0, 0.0])


def test_the_inner_products_of_counts_are_those_of_the_vectors(x64: None) -> None:
    counts, vectors, _ = batch_of_counts()
    quasi_reward = np.random.default_rng(2).normal(size=5)
    np.testing.assert_allclose(
        counts.inner(jnp.asarray(quasi_reward)), vectors @ quasi_reward, rtol=1e-12
    )


def test_vectors_with_all_of_their_entries_are_added_up_as_they_are(x64: None) -> None:
    random = np.random.default_rng(3)
    vectors, weight, reward = (
        random.normal(size=(2, 3, 5)),
        random.normal(size=(2, 3)),
        random.normal(size=5),
    )
    counts = Count(jnp.broadcast_to(jnp.arange(5), (2, 3, 5)), jnp.asarray(vectors))
    expected = np.einsum("bh,bhd->d", weight, vectors)
    np.testing.assert_allclose(counts.total(jnp.asarray(weight), 5), expected, rtol=1e-12)
    np.testing.assert_allclose(counts.inner(jnp.asarray(reward)), vectors @ reward, rtol=1e-12)


# Each feature.


@pytest.mark.parametrize(("state", "action"), [(0, 0), (0, 2), (7, 1), (10, 2)])
def test_features_of_a_table_are_the_vectors_they_stand_for(state: int, action: int) -> None:
    expected: list[tuple[Feature, Floats]] = [
        (StateAction(), one_hot(state * ACTIONS + action, STATES * ACTIONS)),
        (State(), one_hot(state, STATES)),
        (Reward(), np.array([-2.5])),
        (Table(TABLE), TABLE[state, action]),
        (Function(squares), np.array([state**2, action])),
        (Function(constant), np.array([1.5])),
        (Grid([0.0], [11.0], [11]), one_hot(state, 11)),
    ]
    for feature, vector in expected:
        np.testing.assert_allclose(dense(feature, state, action, -2.5), vector, rtol=1e-6)
    stack = Stack(*(feature for feature, _ in expected))
    assert stack.size(GARNET) == sum(vector.size for _, vector in expected)
    stacked = np.concatenate([vector for _, vector in expected])
    np.testing.assert_allclose(dense(stack, state, action, -2.5), stacked, rtol=1e-6)


def test_stacks_nest_and_wrap_functions() -> None:
    nested = Stack(Stack(State(), squares), Reward())
    vector = np.concatenate([one_hot(4, STATES), [16.0, 2.0], [0.5]])
    np.testing.assert_allclose(dense(nested, 4, 2, 0.5), vector, rtol=1e-6)


def test_features_keep_their_numbers_when_the_array_they_came_from_changes() -> None:
    values, low = TABLE.copy(), np.zeros(1)
    table, grid = Table(values), Grid(low, [1.0], [2])
    values[:], low[:] = 0.0, 0.9
    np.testing.assert_array_equal(table.values, TABLE)
    np.testing.assert_array_equal(grid.low, [0.0])


def test_a_function_is_a_feature_wherever_one_is_wanted() -> None:
    assert as_feature(squares) == Function(squares)
    state = State()
    assert as_feature(state) is state
    problem = ox.Problem(GARNET, jnp.sum, horizon=3, features=squares)
    assert problem.size == 2


def test_occupancies_of_all_features_are_the_discounted_sums_of_their_vectors() -> None:
    stack = Stack(StateAction(), Reward(), Table(TABLE), squares)
    problem = ox.Problem(GARNET, jnp.sum, discount=0.9, horizon=HORIZON, features=stack)
    policy = ox.policies.tabular(scale=1.0)(GARNET, jax.random.key(1))
    random, shape = np.random.default_rng(3), (BATCH, HORIZON)
    states, actions = random.integers(0, STATES, shape), random.integers(0, ACTIONS, shape)
    rewards = random.normal(size=shape)
    trajectories = trajectories_of(states, actions, rewards)
    # On-policy: all the weights are one.
    on_policy = jax.vmap(jax.vmap(policy.log_prob))(trajectories.observations, trajectories.actions)
    trajectories = eqx.tree_at(lambda t: t.log_probs, trajectories, on_policy)
    expected = np.zeros(problem.size)
    for i, t in np.ndindex(BATCH, HORIZON):
        s, a, r = int(states[i, t]), int(actions[i, t]), float(rewards[i, t])
        phi = np.concatenate(
            [one_hot(s * ACTIONS + a, STATES * ACTIONS), [r], TABLE[s, a], [s**2, a]]
        )
        expected += 0.9**t * phi / BATCH
    # float32 over 14 steps.
    np.testing.assert_allclose(
        ox.estimators.occupancy(problem, trajectories, policy), expected, rtol=1e-5, atol=1e-5
    )


# Grids.


@pytest.mark.parametrize(
    ("place", "cell"),
    [
        # Two cells of width 1 along x over [-1, 1], three of width 2 along y over [0, 6]; cell x *
        # 3 + y.
        ((-0.5, 1.0), 0),
        ((-0.5, 5.0), 2),
        ((0.5, 1.0), 3),
        ((0.5, 3.0), 4),
        # An edge belongs to the cell above it, the last one to the last cell.
        ((-1.0, 0.0), 0),
        ((0.0, 2.0), 4),
        ((-0.001, 1.999), 0),
        ((1.0, 6.0), 5),
        # Outside the grid the outermost cells count.
        ((-7.0, 3.0), 1),
        ((7.0, 3.0), 4),
        ((-7.0, -1.0), 0),
        ((1e30, 1e30), 5),
        ((np.inf, -np.inf), 3),
    ],
)
def test_the_cells_of_a_grid_by_hand(place: tuple[float, float], cell: int) -> None:
    grid = Grid([-1.0, 0.0], [1.0, 6.0], [2, 3])
    observation = np.array([*place, 99.0, 99.0], np.float32)
    np.testing.assert_array_equal(dense(grid, observation, 0, 0.0, CARTPOLE), one_hot(cell, 6))
    # The same coordinates elsewhere, and in the other order: cell y * 2 + x.
    swapped = Grid([0.0, -1.0], [6.0, 1.0], [3, 2], coordinates=[3, 1])
    observation = np.array([99.0, place[0], 99.0, place[1]], np.float32)
    np.testing.assert_array_equal(
        dense(swapped, observation, 0, 0.0, CARTPOLE), one_hot(cell % 3 * 2 + cell // 3, 6)
    )


def cartpole_observations() -> Floats:
    """Return observations of Gymnasium's CartPole under random actions, 40 episodes of 20 steps."""
    env, random = gym.make("CartPole-v1"), np.random.default_rng(0)
    seen: list[Floats] = []
    for episode in range(40):
        observation, _ = env.reset(seed=episode)
        for _ in range(20):
            seen.append(observation)
            observation, _, terminated, _, _ = env.step(int(random.integers(2)))
            if terminated:
                break
    return np.array(seen, np.float32)


def test_a_grid_over_cartpole_is_numpy_s_histogram() -> None:
    low, high, bins = (
        np.array([-0.04, -0.5, -0.1, -0.8]),
        np.array([0.04, 0.5, 0.1, 0.8]),
        (4, 3, 5, 2),
    )
    observations = cartpole_observations()
    outside = ((observations < low) | (observations > high)).any(1)
    assert 0.1 < outside.mean() < 0.9  # both kinds are there to be counted
    weight = np.random.default_rng(1).uniform(size=len(observations))
    edges = [np.linspace(*span) for span in zip(low, high, np.array(bins) + 1, strict=True)]
    expected, _ = np.histogramdd(np.clip(observations, low, high), bins=edges, weights=weight)

    @jax.jit
    def counts(observation: jax.Array) -> tuple[Count, Count]:
        visit = Visit(observation, jnp.asarray(0), jnp.asarray(0.0))
        return grid.count(CARTPOLE, visit), angles.count(CARTPOLE, visit)

    grid, angles = Grid(low, high, bins), Grid([-0.1], [0.1], [5], coordinates=[2])
    assert grid.size(CARTPOLE) == 120
    cells, angle_cells = jax.vmap(counts)(jnp.asarray(observations))
    # float32 sums of up to 100 numbers.
    np.testing.assert_allclose(
        cells.total(jnp.asarray(weight), 120), expected.flatten(), rtol=1e-5, atol=1e-6
    )

    # Chosen coordinates, by `digitize`: the angle alone.
    digits = np.clip(np.digitize(observations[:, 2], edges[2]) - 1, 0, 4)
    np.testing.assert_array_equal(np.asarray(angle_cells.index)[:, 0], digits)
    assert set(digits) == set(range(5))


# Nothing dense is ever built.


def jaxprs(value: Any) -> Iterator[Any]:
    """All the programs inside the parameters of an equation."""
    if isinstance(value, jex.core.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, jex.core.Jaxpr):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from jaxprs(item)


def equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for inner in jaxprs(parameter):
                yield from equations(inner)


def largest_intermediate(function: Callable[..., Any], *args: Any) -> int:
    program = jax.make_jaxpr(function)(*args)
    names = [equation.primitive.name for equation in equations(program.jaxpr)]
    # The walk must have gone inside the compiled functions, down to where counts are added up or
    # looked up.
    assert {"exp", "cumsum"} <= set(names)
    assert {"scatter-add", "gather"} & set(names)
    return max(
        variable.aval.size for equation in equations(program.jaxpr) for variable in equation.outvars
    )


def largest_of_estimators(feature: Feature, termination: Any) -> list[int]:
    problem = ox.Problem(
        GARNET, jnp.sum, discount=0.9, horizon=HORIZON, termination=termination, features=feature
    )
    policy = ox.policies.tabular()(GARNET, jax.random.key(1))
    nothing = np.zeros((BATCH, HORIZON))
    trajectories = trajectories_of(nothing, nothing, nothing)
    occupancy = largest_intermediate(
        lambda t: ox.estimators.occupancy(problem, t, policy), trajectories
    )
    quasi_reward = jnp.ones(problem.size)
    gradient = largest_intermediate(
        lambda t: ox.estimators.gradient(problem, t, policy, quasi_reward), trajectories
    )
    return [occupancy, gradient]


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_no_array_over_time_and_pairs_is_built_for_one_hot_features(termination: str) -> None:
    for feature in (StateAction(), Stack(Reward(), State(), StateAction())):
        assert max(largest_of_estimators(feature, termination)) < HORIZON * STATES * ACTIONS


def test_the_search_for_dense_arrays_notices_one() -> None:
    def pairs(state: Any, action: Any) -> jax.Array:
        return jax.nn.one_hot(state * ACTIONS + action, STATES * ACTIONS)

    assert (
        min(largest_of_estimators(Function(pairs), "episodic"))
        >= BATCH * HORIZON * STATES * ACTIONS
    )


# What cannot be is refused.


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: StateAction().size(CARTPOLE),
            "StateAction features need a tabular environment, got CartPole",
        ),
        (lambda: State().size(CARTPOLE), "State features need a tabular environment"),
        (lambda: Table(TABLE).size(CARTPOLE), "Table features need a tabular environment"),
        (lambda: Table(TABLE[:-1]).size(GARNET), r"S, A = \(11, 3\), got \(10, 3, 4\)"),
        (lambda: Table(TABLE[0]), r"\[S, A, d\]"),
        (lambda: Table(np.full((2, 2, 1), np.nan)), "finite"),
        (
            lambda: Function(lambda s, a: jnp.zeros((2, 2)) + s + a).size(GARNET),
            "a number or a vector",
        ),
        (lambda: Function(lambda s, a: (s, a)).size(GARNET), "a number or a vector"),
        (lambda: Function(lambda s: s).size(GARNET), "the feature function failed"),
        (lambda: Grid([0.0], [1.0, 2.0], [3]), "one length, got 1, 2, 1 and 1"),
        (lambda: Grid([0.0], [1.0], [3], coordinates=[0, 1]), "one length, got 1, 1, 1 and 2"),
        (lambda: Grid([], [], []), "one length"),
        (lambda: Grid([1.0], [1.0], [3]), "low must be below high"),
        (lambda: Grid([0.0], [np.inf], [3]), "high must be finite"),
        (lambda: Grid([0.0], [1.0], [0]), "bins"),
        (
            lambda: Grid([0.0], [1.0], [2], coordinates=[4]).size(CARTPOLE),
            r"coordinates must lie in 0\.\.3",
        ),
        (Stack, "at least one"),
        (lambda: as_feature("state"), "got 'state'"),
    ],
)
def test_features_that_cannot_be_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_equal_features_compare_equal_and_others_do_not() -> None:
    # Sums of utilities share the occupancy of equal features.
    assert eqx.tree_equal(Grid([0.0], [1.0], [2]), Grid([0.0], [1.0], [2]))
    assert not eqx.tree_equal(Grid([0.0], [1.0], [2]), Grid([0.0], [2.0], [2]))
    assert not eqx.tree_equal(Grid([0.0], [1.0], [2]), Grid([0.0], [1.0], [2], coordinates=[1]))
    assert not eqx.tree_equal(features.State(), features.StateAction())

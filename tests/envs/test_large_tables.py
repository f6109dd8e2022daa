"""Tables of lists of outcomes, their errors, and the construction of large tables."""

import jax
import numpy as np
import pytest

import occupax as ox
from occupax.envs import tabular
from occupax.exact.dynamics import dynamics


def outcomes(states=6, actions=2, branching=3, seed=0):
    """Return outcomes of a random table in random order, some of them split in two."""
    random = np.random.default_rng(seed)
    table = {"state": [], "action": [], "next_state": [], "probability": [], "reward": []}
    for state, action in np.ndindex(states, actions):
        probabilities = random.dirichlet(np.ones(branching))
        for probability in probabilities:
            table["state"].append(state)
            table["action"].append(action)
            table["next_state"].append(random.integers(states))
            table["probability"].append(probability)
            table["reward"].append(random.normal())
    order = random.permutation(len(table["state"]))
    arrays = {name: np.array(values)[order] for name, values in table.items()}
    return arrays | {"initial": np.full(states, 1 / states)}


def test_list_of_outcomes_is_the_dense_table():
    arrays = outcomes()
    env = ox.TabularMDP.from_arrays(**arrays)
    transition = np.zeros((6, 2, 6))
    reward = np.zeros((6, 2))
    for s, a, t, p, r in zip(*list(arrays.values())[:5], strict=True):
        transition[s, a, t] += p
        reward[s, a] += p * r
    np.testing.assert_allclose(env.transition.toarray(), transition.reshape(12, 6), atol=1e-14)
    np.testing.assert_allclose(env.reward, reward, atol=1e-14)
    by_pair = ox.TabularMDP.from_arrays(**arrays | {"reward": reward})
    np.testing.assert_allclose(by_pair.reward, reward, atol=1e-14)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": 6}, r"state must be in 0\.\.5, got 6 in row 4 of the arrays"),
        ({"next_state": -1}, r"next_state must be in 0\.\.5, got -1 in row 4 of the arrays"),
        ({"probability": -0.5}, r"probability must not be negative, got -0.5 in row 4"),
        ({"probability": 2.0}, r"transition\[\d, \d\] must sum to 1, got "),
        ({"reward": np.nan}, "reward"),
    ],
)
def test_one_wrong_outcome_is_named(changes, message):
    arrays = outcomes()
    for name, value in changes.items():
        arrays[name][4] = value
    with pytest.raises(ValueError, match=message):
        ox.TabularMDP.from_arrays(**arrays)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("state", np.zeros(3, int), "must be vectors of one length, got lengths"),
        ("action", np.zeros(36), "action must be a vector of integers"),
        ("reward", np.zeros(5), r"reward must have one entry per row, \[36\], or shape"),
    ],
)
def test_wrong_arrays_are_named(name, value, message):
    with pytest.raises(ValueError, match=message):
        ox.TabularMDP.from_arrays(**outcomes() | {name: value})


def test_table_beyond_the_memory_names_its_longest_row(monkeypatch):
    monkeypatch.setattr(tabular.os, "sysconf", lambda _: 100)
    transition = np.eye(20).reshape(20, 1, 20)
    transition[7] = 1 / 20
    with pytest.raises(ValueError, match=r"transition\[7, 0\] must have fewer next states, got 20"):
        ox.TabularMDP(transition, np.zeros((20, 1)), np.full(20, 1 / 20))


def test_large_random_process_has_distinct_successors():
    env = ox.TabularMDP.garnet(6_000, 4, 5, jax.random.key(0))
    assert (np.diff(env.transition.indptr) == 5).all()
    counts = np.bincount(env.successors.ravel(), minlength=6_000)
    assert counts.mean() == pytest.approx(20)
    assert counts.std() == pytest.approx(20**0.5, rel=0.1)


def test_dynamics_of_large_tables_have_no_transitions_into_terminal_states():
    text = "\n".join(["S" + "." * 9] + ["." * 10] * 8 + ["." * 9 + "G"])
    env = ox.TabularMDP.gridworld(text, 0.2)
    model = dynamics(ox.Problem(env))
    assert model.transition[:, [99]].nnz == 0
    assert model.transition[4 * 99 :].nnz == 0
    kept = dynamics(ox.Problem(env, termination="absorbing"))
    assert kept.transition[:, [99]].nnz > 0

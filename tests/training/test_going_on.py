"""Training that begins with trained policies."""

import jax
import numpy as np
import pytest

import occupax as ox
from commands import ICE, occupax
from occupax.policies import normaliser_of
from occupax.training.setup import make_setup

PENDULUM = ox.Problem("Pendulum-v1", horizon=20)
NORMALISED = ox.policies.gaussian(hidden=(4,), normalise=True)


def train(problem=PENDULUM, **options):
    options = {"episodes": 4, "policy": NORMALISED, "progress": False} | options
    return ox.train(problem, ox.REINFORCE(batch=2), **options)


@pytest.fixture(scope="module")
def result():
    return train(seeds=[2, 5])


def test_the_normalisation_of_observations_continues(result):
    more = train(policy=result.policy(5))
    before = result.policy(5)
    assert [count_of(policy) for policy in (before, more.policy())] == [80.0, 160.0]
    assert_same_arrays(more.initial_policy, before)


def count_of(policy):
    normaliser = normaliser_of(policy)
    assert normaliser is not None
    return float(normaliser.count)


def assert_same_arrays(one, other):
    for leaf, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(leaf, expected)


def test_a_result_stands_for_the_policy_of_each_seed(result):
    setup = make_setup(PENDULUM, [None], result, [5, 2], 0, 1, False)
    for policy, seed in zip(setup.policies, (5, 2), strict=True):
        assert_same_arrays(policy, result.policy(seed))
    with pytest.raises(ValueError, match="seeds must be among those of the result"):
        train(policy=result)


def test_the_command_line_goes_on_from_a_file_or_a_folder(tmp_path):
    first = tmp_path / "first"
    run = ("train", ICE, "--horizon", 10, "--algorithm", "reinforce", "--episodes", 40)
    assert occupax(*run, "--out", first, "--seeds", 2)[0] == 0
    loaded = ox.load_result(first)
    for source, seeds in ((first, 2), (first / "policies" / "seed-1.safetensors", 1)):
        second = tmp_path / f"second-{seeds}"
        code, _, err = occupax(*run, "--out", second, "--seeds", seeds, "--policy", source)
        assert (code, err.count("error")) == (0, 0)
        start = ox.load_result(second).initial_policy
        assert start is not None
        np.testing.assert_array_equal(start.table, loaded.policy(0 if seeds == 2 else 1).table)
    code, _, err = occupax(*run, "--policy", first, "--set", "policy.scale=1")
    assert code == 2
    assert "must not be given for a trained policy" in err

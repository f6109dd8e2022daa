"""The constants of problems, against values worked out by hand."""

import math
from dataclasses import asdict

import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.theory import occupancy_smoothness, problem_constants

ICE = "FrozenLake-v1"


def table(reward, terminal=None):
    """Two states and three actions, all equally likely to lead to both."""
    return ox.TabularMDP(np.full((2, 3, 2), 0.5), reward, [1.0, 0.0], terminal)


def test_log_coverage_gains_the_root_of_the_actions_in_the_two_norm():
    problem = ox.Problem(table(np.zeros((2, 3))), ox.utilities.LogCoverage(sigma=0.5))
    # 1 / sigma = 2 and 1 / sigma^2 = 4; a state is a sum over three actions
    assert occupancy_smoothness(problem) == pytest.approx((2.0, 4 * math.sqrt(3), 4.0))


def test_log_coverage_of_pairs_keeps_its_constants():
    problem = ox.Problem(
        table(np.zeros((2, 3))),
        ox.utilities.LogCoverage(sigma=0.5),
        features=ox.features.StateAction(),
    )
    assert occupancy_smoothness(problem) == pytest.approx((2.0, 4.0, 4.0))


def test_entropy_is_of_the_normalised_occupancy():
    problem = ox.Problem(ox.make(ICE), ox.utilities.Entropy(), discount=0.9)
    # the scale is 0.1: 0.1 |1 + log 1e-6| = 1.2815511, and 0.1^2 / 1e-6 = 1e4, times sqrt(4) in the
    # 2-norm
    assert occupancy_smoothness(problem) == pytest.approx((1.2815511, 2e4, 1e4), rel=1e-6)


def test_the_bound_of_a_reward_is_its_largest_value():
    problem = ox.Problem(table([[0.0, 1.0, -3.0], [2.0, 0.0, 0.0]]))
    assert occupancy_smoothness(problem) == pytest.approx((3.0, 0.0, 0.0))


def test_the_bound_of_a_random_reward_covers_every_draw():
    # FrozenLake pays 1 for reaching the goal, which the best action does with probability 1/3
    assert np.asarray(ox.make(ICE).reward).max() == pytest.approx(1 / 3)
    assert occupancy_smoothness(ox.Problem(ox.make(ICE))) == pytest.approx((1.0, 0.0, 0.0))
    # draws of +1 and -1 cancel in the expected reward, not in an estimate
    reward = np.zeros((2, 3, 2))
    reward[:, :, 0], reward[:, :, 1] = 1.0, -1.0
    assert occupancy_smoothness(ox.Problem(table(reward))) == pytest.approx((1.0, 0.0, 0.0))


def test_what_a_terminal_state_pays_counts_only_if_it_absorbs():
    env = table([[1.0, 0.0, 0.0], [5.0, 0.0, 0.0]], terminal=[False, True])
    assert occupancy_smoothness(ox.Problem(env)).gradient_bound == pytest.approx(1.0)
    assert occupancy_smoothness(
        ox.Problem(env, termination="absorbing")
    ).gradient_bound == pytest.approx(5.0)


def test_weights_on_pairs_are_a_reward_of_their_own():
    problem = ox.Problem(
        table(np.zeros((2, 3))), ox.utilities.Linear([[0.0, 1.0, -4.0], [2.0, 0.0, 0.0]])
    )
    assert occupancy_smoothness(problem) == pytest.approx((4.0, 0.0, 0.0))


def test_the_constants_hold_for_a_sum_over_stacked_features():
    rng = np.random.default_rng(0)
    env = table(rng.normal(size=(2, 3)))
    problem = ox.Problem(
        env, ox.utilities.Reward() + 2.0 * ox.utilities.LogCoverage(sigma=0.5), discount=0.5
    )
    constants = occupancy_smoothness(problem)
    phi = np.concatenate([np.asarray(env.reward).reshape(6, 1), np.repeat(np.eye(2), 3, axis=0)], 1)
    slopes = [
        (point, phi @ np.asarray(problem.utility.gradient(jnp.asarray(phi.T @ point))))
        for point in rng.dirichlet(np.ones(6), size=20)
    ]
    for one, slope in slopes:
        assert np.abs(slope).max() <= constants.gradient_bound
        for two, other in slopes:
            change = np.abs(slope - other).max()
            assert change <= constants.l2 * np.linalg.norm(one - two) + 1e-5
            assert change <= constants.l1 * np.abs(one - two).sum() + 1e-5


@pytest.mark.parametrize(
    "utility",
    [
        ox.utilities.SetDistance(np.ones((2, 3)), ox.utilities.Box([0.0], [1.0])),
        ox.utilities.Entropy(smoothing=0.0),
        lambda u: u.sum(),
    ],
)
def test_utilities_without_finite_constants_are_refused(utility):
    problem = ox.Problem(table(np.zeros((2, 3))), utility)
    with pytest.raises(
        ValueError, match=r"needs a utility with finite constants, but .* has gradient_bound=inf"
    ):
        occupancy_smoothness(problem)


def test_a_table_brings_the_constants_of_its_softmax():
    constants = asdict(problem_constants(ox.Problem(ox.make(ICE), discount=0.9)))
    utility = {"lipschitz_utility": 1.0, "smoothness_utility": 0.0, "smoothness_utility_l1": 0.0}
    assert constants == pytest.approx({"discount": 0.9, **utility, **ox.theory.TABULAR_SOFTMAX})

import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.steps import Step

PROBLEM = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
SIZES = {"snapshot_batch": 4, "batch": 2, "epoch_length": 3}

RADIUS = 1 / (
    2 * 4 * np.sqrt(0.5)
)  # l_psi of a table is 1, and sqrt(1/2) does for all that it is used for


def train(algorithm, episodes=20, seeds=2, **options):
    settings = {"policy": ox.policies.tabular(0.5), "progress": False, **options}
    return ox.train(PROBLEM, algorithm, episodes, seeds, **settings)


def radius_of(result):
    assert result.algorithm is not None
    return result.algorithm.radius


# "theory"


def test_the_radius_of_the_theory_is_one_over_twice_horizon_and_slope():
    result = train(ox.TSIVRPG(**SIZES, radius="theory", step_size=1e6))
    assert radius_of(result) == pytest.approx(RADIUS)
    same = train(ox.TSIVRPG(**SIZES, radius=RADIUS, step_size=1e6))
    for one, other in zip(result.policies, same.policies, strict=True):
        np.testing.assert_array_equal(one.table, other.table)
    assert (result.metrics["clipped"] == 1).any()
    short = ox.Problem(PROBLEM.env, ox.utilities.LogCoverage(0.1), discount=0.9, horizon=2)
    shorter = ox.train(short, ox.TSIVRPG(**SIZES, radius="theory"), 4, progress=False)
    assert radius_of(shorter) == pytest.approx(2 * RADIUS)


def test_every_step_of_the_theory_stays_within_the_radius():
    path = [np.zeros((3, 2))]
    algorithm = ox.TSIVRPG(**SIZES, radius="theory", step_size=1e6)
    keep = [lambda progress: path.append(np.asarray(progress.policies[0].table, float))]
    result = train(algorithm, 40, 1, policy=ox.policies.tabular(), callbacks=keep)
    lengths = np.linalg.norm(np.diff(path, axis=0), axis=(1, 2))
    assert lengths.max() <= RADIUS * (1 + 1e-5)
    np.testing.assert_allclose(lengths[result.metrics["clipped"][0] == 1], RADIUS, rtol=1e-4)


def test_the_radius_of_the_theory_is_refused_for_an_mlp():
    with pytest.raises(
        ValueError, match=r"radius must be a number for the policy Softmax, got 'theory'"
    ):
        train(ox.TSIVRPG(**SIZES, radius="theory"), policy=ox.policies.mlp((4,)))
    policy = ox.policies.Tabular(jnp.zeros((3, 2)))
    step = Step(0.1, radius="theory")
    with pytest.raises(
        ValueError, match=r"radius must be a number outside occupax\.train"
    ):  # by hand nobody knows the horizon
        step(policy, policy, step.init(policy))


def test_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'theory'"):
        Step(0.1, radius="theorie")
    for wrong in (1.0, 0.5, float("nan")):
        with pytest.raises(ValueError, match="weight_bound must be a finite number above 1"):
            ox.TSIVRPG(weight_bound=wrong)

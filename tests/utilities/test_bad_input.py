"""Errors for invalid features and utilities: argument, value and allowed values.

`sentences` makes the calls.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from bad_calls import INF, NAN, cartpole, fails, fails_with_value_error, problem, reward
from occupax import features, utilities
from occupax.utilities import Ball, Box, Halfspace, Point, Polyhedron
from sentences import Case, Outcomes, assert_sentence, outcomes_of, print_outcomes

CASES: dict[str, Case] = {
    # utilities in a problem
    "utility that is a number": (lambda: problem(5), ("utility", "function", "got 5")),
    "utility of vectors": (lambda: problem(lambda u: u), ("utility", "single number", "(64,)")),
    "utility that fails": (lambda: problem(fails), ("the utility failed", "64", "out of coffee")),
    "utility with a ValueError": (
        lambda: problem(fails_with_value_error),
        ("the utility failed", "64", "out of coffee"),
    ),
    "utility that returns None": (
        lambda: problem(lambda u: None),  # noqa: ARG005
        ("the utility failed", "64", "None"),
    ),
    "utility of a text": (lambda: problem(lambda u: "a"), ("the utility failed", "64", "'a'")),  # noqa: ARG005
    "utility of a branch": (
        lambda: problem(lambda u: u[0] if u[0] > 0 else u[1]),
        ("the utility cannot be traced by JAX", "jnp.where"),
    ),
    "utility of other shapes": (
        lambda: problem(lambda u: u @ jnp.ones(3)),
        ("the utility failed", "(64,)", "(3,)"),
    ),
    "weights of another length": (
        lambda: problem(utilities.Linear([1.0, 2.0])),
        ("weights of Linear", "64", "got 2"),
    ),
    "set of another dimension": (
        lambda: problem(utilities.SetDistance(np.zeros((16, 4, 2)), Ball([0.0], 1.0))),
        ("set", "dimensions", "2", "got one of 1"),
    ),
    "feedback of another table": (
        lambda: problem(utilities.SetDistance(np.zeros((3, 2, 1)), Ball([0.0], 1.0))),
        ("values", "S, A = (16, 4)", "got (3, 2, 1)"),
    ),
    # features
    "features that are a number": (lambda: problem(features=5), ("features", "function", "got 5")),
    "feature of matrices": (
        lambda: problem(features=lambda s, a: jnp.zeros((2, 2))),  # noqa: ARG005
        ("feature", "vector", "(2, 2)"),
    ),
    "feature of tuples": (
        lambda: problem(features=lambda s, a: (s, a)),
        ("feature", "a number or a vector", "got ("),
    ),
    "feature that fails": (
        lambda: problem(features=fails),
        ("feature function failed", "out of coffee"),
    ),
    "feature of one argument": (
        lambda: problem(features=lambda s: s),
        ("feature function", "(observation, action)"),
    ),
    "pairs on CartPole": (
        lambda: problem(env=cartpole(), features=features.StateAction()),
        ("StateAction features", "tabular", "got CartPole"),
    ),
    "states on CartPole": (
        lambda: problem(utilities.Entropy(), cartpole()),
        ("State features", "tabular", "CartPole"),
    ),
    "empty stack": (features.Stack, ("Stack", "at least one", "none")),
    "stack of a number": (lambda: features.Stack(5), ("features", "function", "got 5")),
    "table of a matrix": (
        lambda: features.Table(np.zeros((2, 2))),
        ("values", "[S, A, d]", "(2, 2)"),
    ),
    "table nan": (
        lambda: features.Table(np.full((2, 2, 1), NAN)),
        ("values", "finite", "nan", "(0, 0, 0)"),
    ),
    "table text": (lambda: features.Table("x"), ("values", "numbers", "'x'")),
    "grid bins 0": (lambda: features.Grid([0.0], [1.0], [0]), ("bins", "at least 1", "got 0")),
    "grid bins number": (lambda: features.Grid([0.0], [1.0], 5), ("bins", "got 5")),
    "grid lengths": (
        lambda: features.Grid([0.0, 0.0], [1.0], [5]),
        ("low, high, bins", "one length", "2, 1, 1"),
    ),
    "grid upside down": (
        lambda: features.Grid([1.0], [0.0], [5]),
        ("low", "below high", "[1.]", "[0.]"),
    ),
    "grid nan": (lambda: features.Grid([NAN], [1.0], [5]), ("low", "finite", "nan")),
    "grid text": (lambda: features.Grid("a", [1.0], [5]), ("low", "numbers", "'a'")),
    "grid coordinate 9": (
        lambda: problem(env=cartpole(), features=features.Grid([0.0], [1.0], [5], [9])),
        ("coordinates", "0..3", "got (9,)"),
    ),
    "grid coordinate text": (
        lambda: features.Grid([0.0], [1.0], [5], ["x"]),
        ("coordinates", "integer", "'x'"),
    ),
    # utilities
    "weights empty": (lambda: utilities.Linear([]), ("weights", "at least one", "[]")),
    "weights nan": (lambda: utilities.Linear(np.full((64, 4), NAN)), ("weights", "finite", "nan")),
    "weights text": (lambda: utilities.Linear("x"), ("weights", "numbers", "'x'")),
    "sigma 0": (lambda: utilities.LogCoverage(sigma=0.0), ("sigma", "above 0", "got 0.0")),
    "sigma negative": (lambda: utilities.LogCoverage(sigma=-1.0), ("sigma", "above 0", "got -1.0")),
    "sigma nan": (lambda: utilities.LogCoverage(sigma=NAN), ("sigma", "above 0", "got nan")),
    "sigma infinite": (lambda: utilities.LogCoverage(sigma=INF), ("sigma", "finite", "got inf")),
    "sigma text": (lambda: utilities.LogCoverage(sigma="0.5"), ("sigma", "number", "got '0.5'")),
    "smoothing negative": (
        lambda: utilities.Entropy(smoothing=-1.0),
        ("smoothing", "at least 0", "got -1.0"),
    ),
    "smoothing nan": (
        lambda: utilities.Entropy(smoothing=NAN),
        ("smoothing", "at least 0", "got nan"),
    ),
    "scale 0": (lambda: utilities.Entropy(scale=0.0), ("scale", "above 0", "got 0.0")),
    "set that is none": (
        lambda: utilities.SetDistance(np.zeros((2, 2)), 5),
        ("set", "Box, Ball", "got 5"),
    ),
    "feedback text": (lambda: utilities.SetDistance("x", Ball([0.0], 1.0)), ("feedback", "'x'")),
    "custom of a number": (lambda: utilities.Custom(5), ("utility", "function", "got 5")),
    "custom features": (
        lambda: utilities.Custom(jnp.sum, features=5),
        ("features", "function", "got 5"),
    ),
    "two constants": (
        lambda: utilities.Custom(jnp.sum, smoothness=(1.0, 2.0)),
        ("smoothness", "(1.0, 2.0)"),
    ),
    "times nan": (lambda: reward() * NAN, ("utility", "finite number", "got nan")),
    "infinity times": (lambda: INF * reward(), ("utility", "finite number", "got inf")),
    "times a text": (lambda: reward() * "x", ("utility", "finite number", "got 'x'")),
    "times a utility": (lambda: reward() * reward(), ("utility", "finite number", "Reward()")),
    "plus a number": (lambda: reward() + 5, ("utility", "function", "got 5")),
    "box upside down": (lambda: Box([1.0], [0.0]), ("low", "at most high", "1.0", "0.0")),
    "box nan": (lambda: Box([NAN], [0.0]), ("low", "number", "nan")),
    "box text": (lambda: Box("x", [0.0]), ("low", "array of real numbers", "'x'")),
    "box lengths": (lambda: Box([0.0], [1.0, 1.0]), ("high", "as long as low", "1", "2")),
    "ball radius": (lambda: Ball([0.0], -1.0), ("radius", "at least 0", "-1.0")),
    "ball center": (lambda: Ball(0.0, 1.0), ("center", "vector", "()")),
    "halfspace of zeros": (
        lambda: Halfspace([0.0, 0.0], 1.0),
        ("normal", "other than 0", "[0.0, 0.0]"),
    ),
    "polyhedron lengths": (
        lambda: Polyhedron([[1.0], [2.0]], [1.0]),
        ("bounds", "each row", "2", "1"),
    ),
    "polyhedron empty": (
        lambda: Polyhedron([[1.0], [-1.0]], [0.0, -1.0]),
        ("bounds", "some x", "[0.0, -1.0]"),
    ),
    "point infinite": (lambda: Point([INF]), ("point", "finite", "inf")),
    # the check of utilities
    "check of another size": (
        lambda: utilities.check(utilities.Linear([1.0]), 3),
        ("weights of Linear", "3", "got 1"),
    ),
    "check of size 0": (
        lambda: utilities.check(utilities.Reward(), 0),
        ("size", "at least 1", "got 0"),
    ),
    "check of mass 0": (
        lambda: utilities.check(utilities.Reward(), 2, mass=0.0),
        ("mass", "above 0", "got 0.0"),
    ),
    "check of no samples": (
        lambda: utilities.check(utilities.Reward(), 2, samples=0),
        ("samples", "at least 1", "0"),
    ),
    "check of a bad seed": (
        lambda: utilities.check(utilities.Reward(), 2, seed=-1),
        ("seed", "at least 0", "got -1"),
    ),
    "check of a number": (lambda: utilities.check(5, 2), ("utility", "function", "got 5")),
    "check of vectors": (
        lambda: utilities.check(lambda u: u, 3),
        ("utility", "single number", "(3,)"),
    ),
    "check of a failure": (lambda: utilities.check(fails, 3), ("utility failed", "out of coffee")),
}


@pytest.fixture(scope="module")
def outcomes(compiled_fast: dict[str, str]) -> Outcomes:
    return outcomes_of(__file__, compiled_fast)


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_with_a_sentence(case: str, outcomes: Outcomes):
    assert_sentence(outcomes[case], CASES[case][1])


if __name__ == "__main__":
    print_outcomes(CASES)

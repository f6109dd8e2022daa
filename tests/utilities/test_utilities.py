"""Utilities against NumPy transcriptions, hand-worked numbers and defining properties."""

from collections.abc import Callable
from math import inf, log, sqrt
from typing import Any, NamedTuple, final

import equinox as eqx
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import occupax as ox
from occupax import features
from occupax.features import Feature
from occupax.utilities import (
    Ball,
    Box,
    ConvexSet,
    Custom,
    Entropy,
    Halfspace,
    Linear,
    LogCoverage,
    Point,
    Polyhedron,
    Reward,
    SetDistance,
    Smoothness,
    Sum,
    Utility,
    as_utility,
    check,
)

Floats = npt.NDArray[np.floating[Any]]

# One length for all occupancies, so that JAX compiles each utility once; it is 1 + S for the chain
# of 3 states, which makes the stacked features of `Reward() + Entropy()` as long as all the others.
SIZE = 4
CHAIN = ox.TabularMDP.chain(3)
WEIGHTS = np.array([1.0, -2.0, 0.5, 0.0])
STACKED = ox.Problem(CHAIN, Reward() + 0.1 * Entropy(smoothing=0.01), discount=0.9).utility

properties = settings(deadline=None, max_examples=20, derandomize=True)


class Evaluation(NamedTuple):
    value: Floats
    gradient: Floats
    domain: Floats


@eqx.filter_jit
def _evaluate(utility: Utility, occupancy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return utility.value(occupancy), utility.gradient(occupancy), utility.domain(occupancy)


@eqx.filter_jit
def _differentiate(utility: Utility, occupancy: jax.Array) -> jax.Array:
    return jax.grad(utility.value)(occupancy)


def evaluate(utility: Utility, occupancy: npt.ArrayLike) -> Evaluation:
    with jax.enable_x64(new_val=True):
        return Evaluation(*map(np.asarray, _evaluate(utility, jnp.asarray(occupancy, float))))


def autodiff(utility: Utility, occupancy: npt.ArrayLike) -> Floats:
    with jax.enable_x64(new_val=True):
        return np.asarray(_differentiate(utility, jnp.asarray(occupancy, float)))


def total(observation: Any, action: Any) -> jax.Array:
    """Return a feedback of the right length, whose values the tests ignore."""
    return jnp.zeros(SIZE)


def distance(body: ConvexSet) -> SetDistance:
    return SetDistance(total, body)


SETS: dict[str, ConvexSet] = {
    "box": Box([0.0] * SIZE, [1.0] * SIZE),
    "ball": Ball([0.0] * SIZE, 1.0),
    "halfspace": Halfspace([3.0, 0.0, 4.0, 0.0], 4.0),
    "polyhedron": Polyhedron([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]], [-1.0, -1.0]),
    "point": Point([1.0] * SIZE),
}
UTILITIES: dict[str, Utility] = {
    "reward": Reward(),
    "linear": Linear(WEIGHTS),
    "entropy": Entropy(),
    "entropy, scaled": Entropy(smoothing=0.01, scale=0.1),
    "entropy, not smoothed": Entropy(smoothing=0.0),
    "log coverage": LogCoverage(),
    "log coverage, sigma": LogCoverage(sigma=0.5),
    **{f"distance to {name}": distance(body) for name, body in SETS.items()},
    "custom": Custom(lambda u: -jnp.sum(jnp.exp(-u)), concave=True, smoothness=(1.0, 1.0, 1.0)),
    "sum": LogCoverage() + 0.1 * Entropy(smoothing=0.01) - 2.0 * Linear(WEIGHTS),
    "multiple": 3.0 * LogCoverage(),
    "negative multiple": -3.0 * LogCoverage(),
    "bound sum": STACKED,
}
CONCAVE = [name for name in UTILITIES if name != "negative multiple"]

# Only signs, so that the part of each coordinate shows; inside the domain of every utility.
INNER = np.array([0.4, 0.1, 2.0, 0.7])


def entropy(distribution: Floats) -> float:
    return float(-sum(p * np.log(p) for p in distribution.flat if p > 0))


# Values and gradients, worked out apart.


def test_the_entropy_in_a_problem_is_that_of_the_normalised_state_distribution() -> None:
    utility = ox.Problem(CHAIN, Entropy(smoothing=0.0), discount=0.9).utility
    # lambda has mass 1 / (1 - gamma) = 10: the uniform distribution has entropy log 3, a single
    # state has none, and (1/2, 1/4, 1/4) has 1.5 bits.
    assert evaluate(utility, np.full(3, 10 / 3)).value == pytest.approx(log(3), rel=1e-12)
    assert evaluate(utility, [0.0, 10.0, 0.0]).value == pytest.approx(0.0, abs=1e-12)
    at = evaluate(utility, [5.0, 2.5, 2.5])
    assert at.value == pytest.approx(1.5 * log(2), rel=1e-12)
    # -(1 - gamma) (1 + log mu).
    np.testing.assert_allclose(at.gradient, -0.1 * (1 + np.log([0.5, 0.25, 0.25])), rtol=1e-12)


def test_the_scale_of_an_entropy_is_one_outside_a_problem_and_kept_when_given() -> None:
    assert evaluate(Entropy(smoothing=0.0), [0.5, 0.25, 0.25]).value == pytest.approx(
        1.5 * log(2), rel=1e-12
    )
    given_scale = Entropy(smoothing=0.0, scale=0.5)
    bound = ox.Problem(CHAIN, given_scale, discount=0.9).utility
    assert bound == given_scale
    assert evaluate(bound, [1.0, 0.5, 0.5]).value == pytest.approx(1.5 * log(2), rel=1e-12)


def test_an_entropy_inside_a_sum_is_bound_to_the_problem_too() -> None:
    utility = ox.Problem(CHAIN, 2.0 * Entropy(smoothing=0.0), discount=0.9).utility
    assert evaluate(utility, [5.0, 2.5, 2.5]).value == pytest.approx(2 * 1.5 * log(2), rel=1e-12)


def test_a_smoothed_entropy_by_its_formula() -> None:
    at = evaluate(Entropy(smoothing=0.01, scale=0.1), INNER)
    shifted = 0.1 * INNER + 0.01
    assert at.value == pytest.approx(entropy(shifted), rel=1e-12)
    np.testing.assert_allclose(at.gradient, -0.1 * (1 + np.log(shifted)), rtol=1e-12)
    # Where nothing is visited the gradient stays finite, unless there is no smoothing.
    empty = evaluate(Entropy(), np.zeros(SIZE))
    np.testing.assert_allclose(empty.gradient, -1 - log(1e-6), rtol=1e-12)
    unsmoothed = evaluate(Entropy(smoothing=0.0), np.zeros(SIZE))
    assert unsmoothed.value == 0
    assert np.all(unsmoothed.gradient == inf)


def test_log_coverage_by_hand() -> None:
    # log(1) + log(2) + log(4) + log(1/2) = log 4 with sigma = 1/2.
    at = evaluate(LogCoverage(sigma=0.5), [0.5, 1.5, 3.5, 0.0])
    assert at.value == pytest.approx(log(4), rel=1e-12)
    np.testing.assert_allclose(at.gradient, [1.0, 0.5, 0.25, 2.0], rtol=1e-12)
    assert evaluate(LogCoverage(), np.zeros(SIZE)).value == pytest.approx(-SIZE * log(8), rel=1e-12)


def test_linear_and_reward_by_hand() -> None:
    # 0.4 - 0.2 + 1.
    at = evaluate(Linear(WEIGHTS), INNER)
    assert at.value == pytest.approx(1.2, rel=1e-12)
    np.testing.assert_array_equal(at.gradient, WEIGHTS)
    at = evaluate(Reward(), [-2.5])
    assert at.value == -2.5
    np.testing.assert_array_equal(at.gradient, [1.0])


def test_linear_takes_a_table_of_rewards_in_the_order_of_the_occupancy() -> None:
    table = np.arange(6.0).reshape(3, 2)
    problem = ox.Problem(CHAIN, Linear(table))
    assert problem.features == features.StateAction()
    np.testing.assert_array_equal(evaluate(problem.utility, np.ones(6)).gradient, table.flatten())


def test_linear_keeps_its_weights_when_the_array_they_came_from_changes() -> None:
    weights = WEIGHTS.copy()
    utility = Linear(weights)
    weights[:] = 0.0
    np.testing.assert_array_equal(utility.weights, WEIGHTS)


# The point (2, -2, 2, -2) and each set: the squared distance, and u - Proj u.
#   box [0, 1]^4: (1, -2, 1, -2).  Ball: the norm is 4, so 3/4 of u.  Halfspace 3x + 4z <= 4: 14 - 4
# over 5 is 2 along
#   (3, 0, 4, 0)/5.  Polyhedron x <= -1, x + z <= -1: the corner (-1, 0), with multipliers 1 and 2
# for (3, 2).
#   Point (1, 1, 1, 1): (1, -3, 1, -3).
DISTANCES: dict[str, tuple[float, list[float]]] = {
    "box": (10.0, [1.0, -2.0, 1.0, -2.0]),
    "ball": (9.0, [1.5, -1.5, 1.5, -1.5]),
    "halfspace": (4.0, [1.2, 0.0, 1.6, 0.0]),
    "polyhedron": (13.0, [3.0, 0.0, 2.0, 0.0]),
    "point": (20.0, [1.0, -3.0, 1.0, -3.0]),
}


@pytest.mark.parametrize("name", SETS)
def test_set_distance_by_hand(name: str) -> None:
    squared, excess = DISTANCES[name]
    at = evaluate(distance(SETS[name]), [2.0, -2.0, 2.0, -2.0])
    assert at.value == pytest.approx(-squared, rel=1e-12)
    np.testing.assert_allclose(at.gradient, -2 * np.array(excess), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SETS)
def test_set_distance_is_flat_inside_the_set(name: str) -> None:
    member = {"halfspace": [0.0] * SIZE, "polyhedron": [-2.0, 5.0, 0.5, 5.0], "point": [1.0] * SIZE}
    at = evaluate(distance(SETS[name]), member.get(name, [0.25] * SIZE))
    assert at.value == 0
    np.testing.assert_array_equal(at.gradient, np.zeros(SIZE))


@pytest.mark.parametrize("name", SETS)
def test_autodiff_of_a_set_distance_gives_the_declared_gradient(name: str) -> None:
    # The envelope theorem at work: no derivative of the projection, a loop for a polyhedron, is
    # needed.
    for point in (
        np.array([2.0, -2.0, 2.0, -2.0]),
        np.array([-3.0, 0.5, 1.5, 4.0]),
        np.full(SIZE, 0.25),
    ):
        utility = distance(SETS[name])
        np.testing.assert_allclose(
            autodiff(utility, point), evaluate(utility, point).gradient, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("name", UTILITIES)
def test_gradients_match_finite_differences_and_autodiff(name: str) -> None:
    utility = UTILITIES[name]
    # Central differences err by h^2 F''' / 6 and by rounding over h: below 1e-8 for h = 1e-5 and F
    # of size 10.
    step = 1e-5
    moves = step * np.eye(SIZE)
    slopes = [
        (evaluate(utility, INNER + h).value - evaluate(utility, INNER - h).value) / (2 * step)
        for h in moves
    ]
    np.testing.assert_allclose(
        evaluate(utility, INNER).gradient, np.array(slopes), rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(
        evaluate(utility, INNER).gradient, autodiff(utility, INNER), rtol=1e-12, atol=1e-12
    )


# What a utility declares, tested by `check`.


@pytest.mark.parametrize("name", UTILITIES)
def test_check_accepts_every_utility_of_the_library(name: str) -> None:
    # Constants of the entropy hold up to the mass 1 / scale.
    mass = 10.0 if "scaled" in name or "bound" in name else 1.0
    seen = check(UTILITIES[name], SIZE, mass=mass, samples=50)
    for measured, declared in zip(seen, UTILITIES[name].smoothness, strict=True):
        assert 0 <= measured <= declared * (1 + 1e-6) + 1e-9


def test_check_accepts_occupancies_of_length_one() -> None:
    assert check(Reward(), 1, samples=10) == Smoothness(1.0, 0.0, 0.0)


def test_check_measures_the_largest_constants() -> None:
    # For -|u|^2 all is known: the gradient is -2u, so |grad|_inf <= 2 and both ratios are at most
    # 2. Pairs that differ in one coordinate only attain 2; for two coordinates random ones come
    # close.
    seen = check(distance(Point([0.0, 0.0])), 2)
    assert 1.9 < seen.gradient_bound <= 2
    assert 1.9 < seen.l2 <= 2 + 1e-9
    assert 1.7 < seen.l1 <= seen.l2


@final
class Quadratic(Utility):
    """-|u|^2 with a declared gradient, sign and smoothness. Truth: -2u, concave, (2, 2, 2)."""

    slope: Callable[[Any], Any] = eqx.field(static=True, default=lambda u: -2.0 * u)
    sign: float = -1.0
    declared: Smoothness = eqx.field(static=True, default=Smoothness(2.0, 2.0, 2.0))

    def value(self, occupancy: jax.Array) -> jax.Array:
        return self.sign * jnp.sum(occupancy**2)

    def gradient(self, occupancy: jax.Array) -> jax.Array:
        return self.slope(occupancy)

    def domain(self, occupancy: jax.Array) -> jax.Array:
        return occupancy

    @property
    def concave(self) -> bool:
        return True

    @property
    def smoothness(self) -> Smoothness:
        return self.declared

    def features(self) -> Feature:
        return features.State()


DECLARATIONS = (
    "gradient:",
    "concave:",
    "smoothness.gradient_bound:",
    "smoothness.l2:",
    "smoothness.l1:",
)
WRONG = {
    "half the gradient": (Quadratic(slope=lambda u: -u), "gradient:"),
    "the sign of the gradient": (Quadratic(slope=lambda u: 2 * u), "gradient:"),
    "one entry of the gradient": (
        Quadratic(slope=lambda u: (-2 * u).at[1].multiply(0.9)),
        "gradient:",
    ),
    "a constant in the gradient": (Quadratic(slope=lambda u: -2 * u - 0.01), "gradient:"),
    "a convex function": (Quadratic(slope=lambda u: 2 * u, sign=1.0), "concave:"),
    "the bound of the gradient": (
        Quadratic(declared=Smoothness(1.0, 2.0, 2.0)),
        "smoothness.gradient_bound:",
    ),
    "the constant for l2": (Quadratic(declared=Smoothness(2.0, 1.5, 2.0)), "smoothness.l2:"),
    "the constant for l1": (Quadratic(declared=Smoothness(2.0, 2.0, 1.0)), "smoothness.l1:"),
}


def test_check_accepts_the_quadratic_that_the_mutations_start_from() -> None:
    check(Quadratic(), SIZE)


@pytest.mark.parametrize("name", WRONG)
def test_check_names_the_wrong_declaration_and_only_that(name: str) -> None:
    utility, wrong = WRONG[name]
    with pytest.raises(ValueError, match="Quadratic does not keep what it declares") as error:
        check(utility, SIZE)
    assert [part for part in DECLARATIONS if part in str(error.value)] == [wrong]


def test_check_reports_everything_at_once() -> None:
    claims = Custom(lambda u: 5 * jnp.sum(u**2), concave=True, smoothness=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="Custom does not keep what it declares") as error:
        check(claims, SIZE)
    assert [part for part in DECLARATIONS if part in str(error.value)] == list(DECLARATIONS[1:])


def test_check_notices_values_that_are_not_numbers() -> None:
    # NaN passes every comparison, so a function that is nowhere defined once passed every test.
    with pytest.raises(ValueError, match="not finite"):
        check(Custom(lambda u: jnp.sum(jnp.log(u - 5.0)), concave=True), SIZE)
    with pytest.raises(ValueError, match="not finite"):
        check(Quadratic(slope=lambda u: u * jnp.nan), SIZE)


@pytest.mark.usefixtures("as_users_run")
def test_check_takes_a_plain_function_and_refuses_nonsense() -> None:
    check(lambda u: jnp.sum(u**3), SIZE, samples=10)
    with pytest.raises(ValueError, match="mass"):
        check(Reward(), SIZE, mass=0.0)
    with pytest.raises(ValueError, match=r"utility 'entrpy' is not known\. Did you mean 'entropy'"):
        check("entrpy", SIZE)


# Sums and multiples.


def test_reward_plus_entropy_on_frozen_lake_is_the_two_parts_side_by_side() -> None:
    problem = ox.Problem(
        ox.make("FrozenLake-v1"), Reward() + 0.1 * Entropy(), discount=0.9, horizon=6
    )
    assert problem.features == features.Stack(features.Reward(), features.State())
    assert problem.size == 1 + 16

    # Two ways over the ice: down, down, right, down, right, right to the goal, and down, right into
    # the first hole.
    live = np.array([[True] * 6, [True, True, False, False, False, False]])
    trajectories = ox.Trajectories(
        observations=jnp.array([[0, 4, 8, 9, 13, 14], [0, 4, 5, 5, 5, 5]]),
        actions=jnp.array([[1, 1, 2, 1, 2, 2], [1, 2, 0, 0, 0, 0]]),
        log_probs=jnp.full((2, 6), -log(4)),
        rewards=jnp.zeros((2, 6)).at[0, 5].set(1.0),
        live=jnp.asarray(live),
        terminated=jnp.array([True, True]),
        final_observations=jnp.array([15, 5]),
    )
    occupancy = ox.estimators.occupancy(
        problem, trajectories, ox.policies.Tabular(jnp.zeros((16, 4)))
    )
    states = np.zeros(16)
    states[[0, 4, 8, 9, 13, 14]] = [1, 0.9, 0.9**2 / 2, 0.9**3 / 2, 0.9**4 / 2, 0.9**5 / 2]
    exact = np.array([0.9**5 / 2, *states])
    np.testing.assert_allclose(occupancy, exact, rtol=1e-5)

    at = evaluate(problem.utility, exact)
    reward, exploration = evaluate(Reward(), exact[:1]), evaluate(Entropy(scale=1 - 0.9), exact[1:])
    assert at.value == pytest.approx(0.9**5 / 2 + 0.1 * entropy(0.1 * states + 1e-6), rel=1e-12)
    assert at.value == pytest.approx(reward.value + 0.1 * exploration.value, rel=1e-12)
    np.testing.assert_allclose(
        at.gradient, [*reward.gradient, *(0.1 * exploration.gradient)], rtol=1e-12
    )


def test_the_gradient_of_a_stacked_sum_keeps_the_parts_apart() -> None:
    at = evaluate(STACKED, INNER)
    mu = 0.1 * INNER[1:] + 0.01
    assert at.value == pytest.approx(INNER[0] + 0.1 * entropy(mu), rel=1e-12)
    np.testing.assert_allclose(at.gradient, [1.0, *(-0.1 * 0.1 * (1 + np.log(mu)))], rtol=1e-12)


def test_three_terms_each_get_their_own_part() -> None:
    problem = ox.Problem(
        CHAIN, Linear(np.arange(6.0)) + Reward() + 2.0 * LogCoverage(), discount=0.9
    )
    assert problem.size == 6 + 1 + 3
    at = evaluate(problem.utility, np.arange(10.0))
    expected = [*np.arange(6.0), 1.0, *(2 / (np.array([7.0, 8.0, 9.0]) + 0.125))]
    np.testing.assert_allclose(at.gradient, expected, rtol=1e-12)
    assert at.value == pytest.approx(
        55 + 6 + 2 * np.log(np.array([7.0, 8.0, 9.0]) + 0.125).sum(), rel=1e-12
    )


def test_terms_of_the_same_features_share_the_occupancy() -> None:
    problem = ox.Problem(CHAIN, Entropy(smoothing=0.01) + 2.0 * LogCoverage(), discount=0.9)
    assert problem.features == features.State()
    assert problem.size == 3
    occupancy = np.array([5.0, 2.0, 1.0])
    at = evaluate(problem.utility, occupancy)
    mu = 0.1 * occupancy + 0.01
    assert at.value == pytest.approx(entropy(mu) + 2 * np.log(occupancy + 0.125).sum(), rel=1e-12)
    np.testing.assert_allclose(
        at.gradient, -0.1 * (1 + np.log(mu)) + 2 / (occupancy + 0.125), rtol=1e-12
    )


def test_features_are_shared_when_equal_and_not_merely_of_one_shape() -> None:
    feedback = np.arange(12.0).reshape(3, 2, 2)
    target = Point([0.0, 0.0])

    def size(left: Floats, right: Floats) -> int:
        return ox.Problem(CHAIN, SetDistance(left, target) + SetDistance(right, target)).size

    assert size(feedback, feedback.copy()) == 2
    assert size(feedback, feedback + 1) == 4


def test_features_given_to_the_problem_are_shared_by_all_terms() -> None:
    even = Linear([1.0, 1.0, 1.0])  # counts pairs of state and action by default
    problem = ox.Problem(
        CHAIN, even + 0.1 * Entropy(smoothing=0.01), discount=0.9, features=features.State()
    )
    assert problem.size == 3
    occupancy = np.array([5.0, 2.0, 1.0])
    at = evaluate(problem.utility, occupancy)
    mu = 0.1 * occupancy + 0.01
    assert at.value == pytest.approx(8 + 0.1 * entropy(mu), rel=1e-12)
    np.testing.assert_allclose(at.gradient, 1 - 0.01 * (1 + np.log(mu)), rtol=1e-12)


def test_multiples_and_differences_by_their_values() -> None:
    combined = 2.0 * (LogCoverage() - 0.5 * Linear(WEIGHTS)) * 3.0
    logs = np.log(INNER + 0.125).sum()
    assert evaluate(combined, INNER).value == pytest.approx(6 * logs - 3 * 1.2, rel=1e-12)
    np.testing.assert_allclose(
        evaluate(combined, INNER).gradient, 6 / (INNER + 0.125) - 3 * WEIGHTS, rtol=1e-12
    )
    assert evaluate(-LogCoverage(), INNER).value == pytest.approx(-logs, rel=1e-12)
    nothing = evaluate(LogCoverage() - LogCoverage(), INNER)
    assert nothing.value == 0
    np.testing.assert_array_equal(nothing.gradient, np.zeros(SIZE))


@pytest.mark.usefixtures("as_users_run")
def test_multiples_may_be_whole_numbers() -> None:
    assert 2 * Entropy() == 2.0 * Entropy()


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("factor", [inf, -inf, float("nan"), "2", jnp.ones(2), 1j])
def test_a_multiple_that_is_not_a_finite_number_is_refused(factor: Any) -> None:
    with pytest.raises(ValueError, match="finite number"):
        Entropy().__mul__(factor)


def test_plain_functions_are_accepted_wherever_a_utility_is() -> None:
    def squares(occupancy: jax.Array) -> jax.Array:
        return jnp.sum(occupancy**2)

    square, logs = (INNER**2).sum(), np.log(INNER + 0.125).sum()
    assert evaluate(LogCoverage() + squares, INNER).value == pytest.approx(logs + square, rel=1e-12)
    assert evaluate(squares + LogCoverage(), INNER).value == pytest.approx(logs + square, rel=1e-12)
    assert evaluate(LogCoverage() - squares, INNER).value == pytest.approx(logs - square, rel=1e-12)
    assert evaluate(squares - LogCoverage(), INNER).value == pytest.approx(square - logs, rel=1e-12)
    problem = ox.Problem(CHAIN, squares)
    assert problem.features == features.StateAction()
    np.testing.assert_allclose(
        evaluate(problem.utility, np.arange(6.0)).gradient, 2 * np.arange(6.0)
    )
    entropic = Entropy()
    assert as_utility(entropic) is entropic


CONCAVITY = {
    "negative multiple of a linear utility": (-2.0 * Linear(WEIGHTS), True),
    "negative multiple of the reward": (-Reward(), True),
    "difference of linear utilities": (Linear(WEIGHTS) - 3.0 * Reward(), True),
    "negative multiple of a concave utility": (-1.0 * LogCoverage(), False),
    "difference with a concave utility": (Reward() - 0.1 * Entropy(), False),
    "concave minus linear": (LogCoverage() - Linear(WEIGHTS), True),
    "twice negated": (-1.0 * -LogCoverage(), True),
    "negative distance": (-distance(SETS["ball"]), False),
    "sum of concave utilities": (LogCoverage() + 0.5 * Entropy(), True),
    "sum with a function nothing is known of": (LogCoverage() + jnp.sum, False),
    "nothing of a function nothing is known of": (
        LogCoverage() + 0.0 * Custom(lambda u: jnp.sum(u**2)),
        True,
    ),
    "function": (as_utility(jnp.sum), False),
    "declared": (Custom(jnp.sum, concave=True), True),
}


@pytest.mark.parametrize("name", CONCAVITY)
def test_concavity_follows_the_signs(name: str) -> None:
    utility, concave = CONCAVITY[name]
    assert utility.concave is concave
    assert concave or not utility.linear  # linear utilities are concave


# Domains.


def test_each_utility_projects_on_its_own_domain() -> None:
    outside = np.array([-1.0, 2.0, -0.5, 0.0])
    clipped = [0.0, 2.0, 0.0, 0.0]
    for utility in (Entropy(), LogCoverage(), as_utility(jnp.sum), LogCoverage() - Linear(WEIGHTS)):
        np.testing.assert_array_equal(evaluate(utility, outside).domain, clipped)
    for utility in (Reward(), Linear(WEIGHTS), distance(SETS["ball"]), Reward() + Linear(WEIGHTS)):
        np.testing.assert_array_equal(evaluate(utility, outside).domain, outside)


def test_a_stacked_sum_projects_each_part_on_its_own_domain() -> None:
    # A return may be negative, the time spent in a state may not.
    np.testing.assert_array_equal(
        evaluate(STACKED, [-1.0, -1.0, 2.0, -0.5]).domain, [-1.0, 0.0, 2.0, 0.0]
    )


# Functions of one's own.


def test_custom_says_what_it_was_told() -> None:
    told = Custom(
        lambda u: -jnp.sum(u**2),
        features=features.State(),
        concave=True,
        smoothness=(1.0, 2.0, 3.0),
        domain=lambda u: jnp.clip(u, 0.0, 1.0),
    )
    assert told.concave
    assert told.smoothness == Smoothness(gradient_bound=1.0, l2=2.0, l1=3.0)
    assert told.features() == features.State()
    np.testing.assert_array_equal(
        evaluate(told, [-1.0, 2.0, 0.5, 0.0]).domain, [0.0, 1.0, 0.5, 0.0]
    )
    np.testing.assert_array_equal(evaluate(told, INNER).gradient, -2 * INNER)


def test_custom_knows_nothing_it_was_not_told() -> None:
    untold = Custom(jnp.sum)
    assert not untold.concave
    assert untold.smoothness == Smoothness(inf, inf, inf)
    assert untold.features() == features.StateAction()
    # Features of one's own may be negative, so their occupancy is left as it is.
    own = Custom(jnp.sum, features=total)
    assert own.features() == features.Function(total)
    np.testing.assert_array_equal(evaluate(own, -INNER).domain, -INNER)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Custom(3), "must be one of occupax.utilities or a function, got 3"),
        (lambda: ox.Problem(CHAIN, lambda u: u), "single number"),
        (lambda: Linear([]), "weights"),
        (lambda: Linear([1.0, np.nan]), "weights"),
        (lambda: ox.Problem(CHAIN, Linear(WEIGHTS)), "each of the 6 features, got 4"),
        (lambda: Entropy(smoothing=-1.0), "smoothing"),
        (lambda: Entropy(scale=0.0), "scale"),
        (lambda: LogCoverage(sigma=0.0), "sigma"),
        (
            lambda: SetDistance(total, "ball"),
            "set must be one of Box, Ball, Halfspace, Polyhedron, Point",
        ),
        (lambda: SetDistance(np.zeros(3), Point([0.0])), r"\[S, A, d\]"),
        (
            lambda: ox.Problem(CHAIN, SetDistance(np.zeros((3, 2)), Point([0.0, 0.0]))),
            "dimensions as the feedback, 1",
        ),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_what_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_table_of_numbers_is_a_feedback_of_one_dimension() -> None:
    table = np.arange(6.0).reshape(3, 2)
    problem = ox.Problem(CHAIN, SetDistance(table, Point([1.0])))
    assert problem.size == 1
    assert eqx.tree_equal(problem.features, features.Table(table[:, :, None]))


# The constants of docs/conventions.md, in the utility's own variable.


def test_constants_by_the_table_of_the_paper() -> None:
    assert Linear(WEIGHTS).smoothness == (2.0, 0.0, 0.0)
    assert Reward().smoothness == (1.0, 0.0, 0.0)
    assert LogCoverage(sigma=0.5).smoothness == (2.0, 4.0, 4.0)
    assert distance(SETS["box"]).smoothness == (inf, 2.0, 2.0)
    assert Entropy(smoothing=0.0).smoothness == (inf, inf, inf)
    # scale |1 + log smoothing| and scale^2 / smoothing.
    assert Entropy(smoothing=0.01, scale=0.1).smoothness == pytest.approx(
        (0.1 * (log(100) - 1), 1.0, 1.0), rel=1e-12
    )
    # With much smoothing the largest slope is that of a single state: 1 + log(1 + 1).
    assert Entropy(smoothing=1.0).smoothness == pytest.approx((1 + log(2), 1.0, 1.0), rel=1e-12)
    assert [
        utility.linear for utility in (Reward(), Linear(WEIGHTS), Entropy(), LogCoverage())
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_constants_of_sums_add_up_when_shared_and_are_the_largest_when_stacked() -> None:
    coverage = LogCoverage(sigma=0.5)
    assert (3.0 * coverage).smoothness == (6.0, 12.0, 12.0)
    assert (-3.0 * coverage).smoothness == (6.0, 12.0, 12.0)
    assert (coverage + 2.0 * coverage).smoothness == (6.0, 12.0, 12.0)
    assert (0.0 * Entropy(smoothing=0.0) + coverage).smoothness == (2.0, 4.0, 4.0)
    stacked = ox.Problem(CHAIN, Linear(np.full(6, 5.0)) + 2.0 * coverage).utility
    assert isinstance(stacked, Sum)
    assert stacked.smoothness == (5.0, 8.0, 8.0)


@pytest.mark.parametrize("utility", [LogCoverage(sigma=0.5), Entropy(smoothing=0.01, scale=0.1)])
def test_the_constants_are_attained_where_nothing_is_visited(utility: Utility) -> None:
    step = 1e-7
    start, moved = (
        evaluate(utility, at).gradient for at in (np.zeros(SIZE), step * np.eye(SIZE)[0])
    )
    bound, l2, l1 = utility.smoothness
    assert np.abs(start).max() == pytest.approx(bound, rel=1e-12)
    # Moving along one coordinate both norms agree; the curvature changes by about step / sigma over
    # the step.
    assert np.abs(moved - start).max() / step == pytest.approx(l2, rel=1e-5)
    assert l1 == l2


def test_log_coverage_of_states_has_the_paper_s_constants_over_pairs() -> None:
    # Over pairs of state and action L_2 is sqrt(A) / sigma^2, attained by moving all the actions of
    # a state alike.
    sigma, actions, step = 0.5, 9, 1e-7
    utility = LogCoverage(sigma=sigma)
    moved = np.zeros((SIZE, actions))
    moved[0] = step
    change = evaluate(utility, moved.sum(1)).gradient - evaluate(utility, np.zeros(SIZE)).gradient
    assert np.abs(change).max() / np.linalg.norm(moved) == pytest.approx(
        sqrt(actions) / sigma**2, rel=1e-5
    )
    assert np.abs(change).max() / np.abs(moved).sum() == pytest.approx(1 / sigma**2, rel=1e-5)


# Properties.

points = hnp.arrays(np.float64, SIZE, elements=st.integers(-40, 40).map(lambda number: number / 8))
pairs = st.tuples(points, points)


def inside(utility: Utility, point: Floats) -> Floats:
    """Return the nearest interior point of the domain, where the entropy has a gradient."""
    return evaluate(utility, point).domain + 1e-3


@pytest.mark.parametrize("name", CONCAVE)
@properties
@given(pair=pairs, share=st.sampled_from([0.01, 0.25, 0.5, 0.9]))
def test_concave_utilities_lie_above_their_chords_and_below_their_tangents(
    name: str, pair: tuple[Floats, Floats], share: float
) -> None:
    utility = UTILITIES[name]
    assert utility.concave
    u, v = (inside(utility, point) for point in pair)
    at_u, at_v, between = (
        evaluate(utility, point) for point in (u, v, share * u + (1 - share) * v)
    )
    scale = (
        1
        + abs(float(at_u.value))
        + abs(float(at_v.value))
        + float(np.abs(at_u.gradient) @ np.abs(v - u))
    )
    assert between.value >= share * at_u.value + (1 - share) * at_v.value - 1e-12 * scale
    assert at_v.value <= at_u.value + at_u.gradient @ (v - u) + 1e-12 * scale


@pytest.mark.parametrize("name", UTILITIES)
@properties
@given(pair=pairs)
def test_domains_are_projections(name: str, pair: tuple[Floats, Floats]) -> None:
    utility = UTILITIES[name]
    u, v = (evaluate(utility, point).domain for point in pair)
    np.testing.assert_array_equal(evaluate(utility, u).domain, u)
    assert np.linalg.norm(u - v) <= np.linalg.norm(pair[0] - pair[1]) * (1 + 1e-12)
    # Where the projection ends the utility is defined.
    assert np.isfinite(evaluate(utility, u).value)


def test_utilities_can_be_summed_up():
    u = jnp.array([0.5, 1.0])
    total = sum([LogCoverage(), 2.0 * LogCoverage()])
    assert float(total.value(u)) == pytest.approx(3 * float(LogCoverage().value(u)), rel=1e-6)


def test_a_function_on_features_given_by_hand_is_not_forced_into_the_orthant():
    # returns are negative on CliffWalking: projecting them on the orthant would take the gradient
    # at the wrong point
    cliff = ox.make("CliffWalking-v1")
    problem = ox.Problem(cliff, lambda u: -((u[0] + 50.0) ** 2), features=ox.features.Reward())
    np.testing.assert_array_equal(problem.utility.domain(jnp.array([-100.0])), [-100.0])
    counted = ox.Problem(cliff, lambda u: jnp.log(u + 1).sum(), features=ox.features.State())
    np.testing.assert_array_equal(counted.utility.domain(-jnp.ones(48)), np.zeros(48))


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_the_return_is_also_a_function_of_the_state_action_occupancy(termination):
    env = ox.TabularMDP.garnet(5, 2, 3, jax.random.key(0))
    env = ox.TabularMDP(env.transition, env.reward, env.initial, np.arange(5) == 4)
    by_reward, by_pairs = (
        ox.Problem(env, discount=0.9, termination=termination, features=given)
        for given in (None, features.StateAction())
    )
    assert by_pairs.size == 10
    probs = np.random.default_rng(0).dirichlet(np.ones(2), 5)
    assert ox.exact.value(by_pairs, probs) == pytest.approx(
        ox.exact.value(by_reward, probs), abs=1e-12
    )

"""Theory constants against independent values, inequalities against an enumerated problem."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from occupax import theory
from occupax.theory import TABULAR_SOFTMAX, Constants, VarianceConstants

Floats = npt.NDArray[np.floating[Any]]

EXAMPLE = Constants(
    discount=0.5,
    lipschitz_psi=2.0,
    smoothness_psi=3.0,
    lipschitz_utility=5.0,
    smoothness_utility=7.0,
    smoothness_utility_l1=11.0,
)
FROZEN_LAKE = Constants(
    discount=0.99,
    lipschitz_utility=1.0,
    smoothness_utility=0.0,
    smoothness_utility_l1=0.0,
    **TABULAR_SOFTMAX,
)


# Values worked out by hand, in exact fractions and 40-digit decimals.


def test_constants_by_hand() -> None:
    # 1 - gamma = 1/2: L_theta = 4 * 11 * 4 * 16 + 8 * 4 * 5 * 8 + 2 * 5 * 7 * 4 = 2816 + 1280 +
    # 280.
    assert theory.smoothness_theta(EXAMPLE) == pytest.approx(4376, rel=1e-14)
    assert theory.occupancy_lipschitz(EXAMPLE) == pytest.approx(16, rel=1e-14)
    assert theory.gradient_bound(EXAMPLE) == pytest.approx(80, rel=1e-14)
    # With H = 4 and delta = 1/16: C_1 = 112 * 4 * 49 * 64 + 48 * 4 * 25 * 16;
    # C_2 = 32 * 4 * 49 * 64 + 64 * 4 * 25 * (5^2 * 4 + 16) = 401408 + 742400;
    # C_3 = 48 * 49 * 25 * 16 + 96 * 4 * 4 * 35 * (e + 1) * 32 * (300 + 784/3) = 940800 + 965672960
    # (e + 1); C_4 = 32 * 4 * 4 * 49 * 35 * (e + 1) * 128 = 112394240 (e + 1).
    assert theory.radius(4, 2.0) == 1 / 16
    variance = theory.variance_constants(EXAMPLE, 4, 1 / 16)
    assert variance == pytest.approx(
        (1481728, 1143808, 3591585019.4022584, 417913460.21546477), rel=1e-14
    )
    # 4376 / (2 (4376^2 + C_3 + C_4)) and 4376 / (2 * 4376^2 + 8 (C_3 + C_4)).
    assert theory.step_size_stationary(4376.0, variance) == pytest.approx(
        5.431102638938662e-07, rel=1e-14
    )
    assert theory.step_size_global(4376.0, variance) == pytest.approx(
        1.362633414844977e-07, rel=1e-14
    )


def test_weights_by_hand() -> None:
    assert theory.weight_bound(2, 0.05, 2.0) == pytest.approx(
        1.822118800390509, rel=1e-14
    )  # exp(0.6)
    assert theory.weight_variance(1, 1 / 16, 2.0, 3.0) == pytest.approx(
        257.20051822922, rel=1e-14
    )  # 156 exp(1/2)
    assert theory.weight_bound(199, 5.0, 1.0) == math.inf
    steps = theory.horizon(0.01, 0.9)
    assert steps == 93  # 92.10...
    assert theory.horizon(0.01, 0.0) == 10  # 9.21...
    assert theory.weight_bound(steps - 1, theory.radius(steps, 3.0), 3.0) == pytest.approx(math.e)


def test_plan_by_hand() -> None:
    plan = theory.plan(0.01, FROZEN_LAKE)
    # H = 921.03...; an epoch draws 99 * 100 + 10000 = 19900 trajectories; T = 100 and log2(100) =
    # 6.6...
    assert (plan.horizon, plan.batch, plan.epoch_length, plan.snapshot_batch) == (
        922,
        100,
        100,
        10_000,
    )
    assert plan.radius == pytest.approx(1 / (math.sqrt(2) * 922))
    first, second = plan.stationary, plan.global_optimum
    assert (first.epochs, first.trajectories, first.environment_steps) == (
        100,
        1_990_000,
        1_834_780_000,
    )
    assert (second.epochs, second.trajectories, second.environment_steps) == (
        7,
        139_300,
        128_434_600,
    )
    assert plan.variance == theory.variance_constants(FROZEN_LAKE, 922, plan.radius)
    assert plan.smoothness_theta == theory.smoothness_theta(FROZEN_LAKE)
    assert first.step_size == theory.step_size_stationary(plan.smoothness_theta, plan.variance)
    assert second.step_size == theory.step_size_global(plan.smoothness_theta, plan.variance)


def test_a_linear_utility_has_no_stale_quasi_reward() -> None:
    assert theory.variance_constants(FROZEN_LAKE, 922, 10.0).last_step == 0


# How the numbers scale.


@pytest.mark.parametrize("power", range(1, 11))
def test_trajectories_grow_as_the_theorems_say(power: int) -> None:
    plan = theory.plan(0.5**power, EXAMPLE)
    per_epoch = 2 * 4**power - 2**power
    assert plan.global_optimum.trajectories == power * per_epoch
    assert plan.stationary.trajectories == 2**power * per_epoch


@pytest.mark.parametrize("count", [3, 7, 49, 93, 107, 1000])
def test_counts_do_not_round_up_the_last_bit(count: int) -> None:
    plan = theory.plan(1 / count, EXAMPLE)
    assert (plan.batch, plan.snapshot_batch, plan.stationary.epochs) == (count, count**2, count)


@pytest.mark.parametrize(("index", "order"), [(0, 6), (1, 6), (2, 7), (3, 7)])
def test_variance_constants_scale_with_the_effective_horizon(index: int, order: int) -> None:
    near, far = (
        replace(EXAMPLE, discount=1 - left, lipschitz_utility=1e-9) for left in (1e-3, 1e-4)
    )
    ratio = (
        theory.variance_constants(far, 10, 0.01)[index]
        / theory.variance_constants(near, 10, 0.01)[index]
    )
    assert ratio == pytest.approx(10**order, rel=1e-6)


def test_everything_hard_makes_steps_smaller() -> None:
    easy = theory.plan(0.1, EXAMPLE)
    for harder in (
        {"discount": 0.6},
        {"lipschitz_psi": 2.5},
        {"smoothness_psi": 4.0},
        {"lipschitz_utility": 6.0},
        {"smoothness_utility": 8.0},
    ):
        hard = theory.plan(0.1, replace(EXAMPLE, **harder))
        assert hard.stationary.step_size < easy.stationary.step_size
        assert hard.global_optimum.step_size < easy.global_optimum.step_size
    assert theory.plan(0.01, EXAMPLE).global_optimum.step_size < easy.global_optimum.step_size


# The conditions that the proofs of the two theorems put on the step size.


@pytest.mark.parametrize("seed", range(20))
def test_step_sizes_meet_the_conditions_of_the_proofs(seed: int) -> None:
    smoothness, drift, last = 10 ** np.random.default_rng(seed).uniform(-4, 8, 3)
    variance = VarianceConstants(1.0, 1.0, drift, last)
    eta = theory.step_size_stationary(smoothness, variance)
    slack = (1 / (2 * eta) - smoothness) - (eta / 2 + 1 / (2 * smoothness)) * (drift + last)
    assert slack >= -1e-12 / eta
    eta = theory.step_size_global(smoothness, variance)
    slack = 1 / (8 * eta) - smoothness / 4 - (drift + last) / smoothness
    assert slack == pytest.approx(
        0, abs=1e-12 / eta
    )  # the condition is tight: no larger step size meets it


# The bounds, against a problem small enough to enumerate every trajectory.

STATES, ACTIONS, HORIZON = 3, 2, 4
PAIRS = np.array(list(itertools.product(range(STATES * ACTIONS), repeat=HORIZON)))
RNG = np.random.default_rng(7)
TRANSITIONS = RNG.dirichlet(np.full(STATES, 0.5), size=STATES * ACTIONS)
START = RNG.dirichlet(np.ones(STATES))
SIGMA = 0.5


def log_policy(theta: Floats) -> Floats:
    return theta - np.log(np.exp(theta).sum(axis=1, keepdims=True))


class Enumeration:
    """All trajectories under `behaviour` with estimates for `target`. Logits are scale * theta."""

    def __init__(
        self, behaviour: Floats, target: Floats, discount: float, scale: float = 1.0
    ) -> None:
        states = PAIRS // ACTIONS
        log_behaviour, log_target = (
            log_policy(scale * theta).ravel() for theta in (behaviour, target)
        )
        moves = TRANSITIONS[PAIRS[:, :-1], states[:, 1:]].prod(axis=1)
        self.probability = START[states[:, 0]] * moves * np.exp(log_behaviour[PAIRS].sum(axis=1))
        self.weights = np.exp(np.cumsum(log_target[PAIRS] - log_behaviour[PAIRS], axis=1))
        self.visits = np.eye(STATES * ACTIONS)[PAIRS]
        probabilities = np.exp(log_target).reshape(STATES, ACTIONS)
        blocks = np.kron(np.eye(STATES), np.ones((ACTIONS, 1))) @ np.kron(
            np.eye(STATES), np.ones((1, ACTIONS))
        )
        scores = scale * (np.eye(STATES * ACTIONS) - blocks * probabilities.ravel())
        self.scores = np.cumsum(scores[PAIRS], axis=1)
        self.discounts = discount ** np.arange(HORIZON)

    def mean(self, values: Floats) -> Floats:
        return np.einsum("n,n...->...", self.probability, values)

    def occupancy(self) -> Floats:
        return np.einsum("t,nt,ntd->nd", self.discounts, self.weights, self.visits)

    def gradient(self, reward: Floats) -> Floats:
        rewards = reward[PAIRS] if reward.ndim == 1 else np.take_along_axis(reward, PAIRS, axis=1)
        return np.einsum("t,nt,nt,ntd->nd", self.discounts, self.weights, rewards, self.scores)


def occupancy(theta: Floats, discount: float, horizon: int | None = None) -> Floats:
    """Exact occupancy, for ever or over a horizon."""
    policy = np.exp(log_policy(theta)).ravel()
    kernel = np.repeat(TRANSITIONS, ACTIONS, axis=1) * policy
    first = np.repeat(START, ACTIONS) * policy
    forever = np.linalg.solve(np.eye(STATES * ACTIONS) - discount * kernel.T, first)
    if horizon is None:
        return forever
    return forever - np.linalg.matrix_power(discount * kernel.T, horizon) @ forever


def coverage(visits: Floats) -> float:
    """Log coverage: l = 1 / sigma, L_inf = 1 / sigma^2 and L = sqrt(actions) / sigma^2."""
    return float(np.log(visits.reshape(STATES, ACTIONS).sum(axis=1) + SIGMA).sum())


def coverage_gradient(visits: Floats) -> Floats:
    per_state = visits.reshape(*visits.shape[:-1], STATES, ACTIONS).sum(axis=-1)
    return np.repeat(1 / (per_state + SIGMA), ACTIONS, axis=-1)


def numerical_gradient(function: Callable[[Floats], float], theta: Floats) -> Floats:
    steps = 1e-5 * np.eye(theta.size).reshape(-1, *theta.shape)
    return np.array([(function(theta + step) - function(theta - step)) / 2e-5 for step in steps])


def coverage_constants(discount: float) -> Constants:
    return Constants(
        discount=discount,
        lipschitz_utility=1 / SIGMA,
        smoothness_utility=math.sqrt(ACTIONS) / SIGMA**2,
        smoothness_utility_l1=1 / SIGMA**2,
        **TABULAR_SOFTMAX,
    )


def linear_constants(discount: float, scale: float) -> Constants:
    return Constants(
        discount=discount,
        lipschitz_psi=scale * TABULAR_SOFTMAX["lipschitz_psi"],
        smoothness_psi=0.0,
        lipschitz_utility=1.0,
        smoothness_utility=0.0,
        smoothness_utility_l1=0.0,
    )


def random_pair(seed: int, distance: float, spread: float = 2.0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    theta, direction = (
        spread * rng.normal(size=(STATES, ACTIONS)),
        rng.normal(size=(STATES, ACTIONS)),
    )
    return theta, theta + distance * direction / np.linalg.norm(direction)


def test_the_enumeration_is_right() -> None:
    theta, other = random_pair(0, 0.7)
    run = Enumeration(theta, other, 0.9)
    assert run.probability.sum() == pytest.approx(1)
    np.testing.assert_allclose(run.mean(run.weights), 1)
    np.testing.assert_allclose(run.mean(run.occupancy()), occupancy(other, 0.9, HORIZON))
    reward = np.arange(6.0)
    expected = numerical_gradient(lambda x: float(reward @ occupancy(x, 0.9, HORIZON)), other)
    np.testing.assert_allclose(run.mean(run.gradient(reward)), expected, atol=1e-7)


def test_score_and_hessian_of_the_table() -> None:
    scales = np.repeat([0.1, 1.0, 4.0, 20.0, 80.0], 100)[:, None]
    sharpest = [[40.0, 0.0, 0.0, 0.0], [0.0, 0.0, -40.0, -40.0]]
    logits = np.concatenate([scales * np.random.default_rng(0).normal(size=(500, 4)), sharpest])
    step = 1e-3

    def difference(function: Callable[[Floats], Floats], x: Floats) -> Floats:
        return np.stack(
            [(function(x + unit) - function(x - unit)) / (2 * step) for unit in step * np.eye(4)],
            axis=-1,
        )

    scores = difference(log_policy, logits)  # of every action, in the second axis
    hessians = difference(lambda x: difference(log_policy, x), logits)
    largest_score = np.linalg.norm(scores, axis=-1).max()
    largest_hessian = np.linalg.norm(hessians, ord=2, axis=(-2, -1)).max()
    assert largest_score == pytest.approx(math.sqrt(2), rel=1e-5)
    assert largest_score == pytest.approx(2 * TABULAR_SOFTMAX["lipschitz_psi"], rel=1e-5)
    assert largest_hessian == pytest.approx(0.5, rel=1e-5)
    assert largest_hessian <= 2 * (
        TABULAR_SOFTMAX["smoothness_psi"] + TABULAR_SOFTMAX["lipschitz_psi"] ** 2
    )


@pytest.mark.parametrize("distance", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_importance_weights_obey_their_bounds(seed: int, distance: float) -> None:
    run = Enumeration(*random_pair(seed, distance), 0.9)
    variances = run.mean((run.weights - 1) ** 2)
    for step in range(HORIZON):
        assert run.weights[:, step].max() <= theory.weight_bound(
            step, distance, TABULAR_SOFTMAX["lipschitz_psi"]
        )
        assert (
            variances[step]
            <= theory.weight_variance(step, distance, **TABULAR_SOFTMAX) * distance**2
        )


def test_the_weight_bound_is_attained() -> None:
    # An action that is hardly ever taken, always in the same state, and a step straight towards it.
    theta = np.tile([0.0, 20.0], (STATES, 1))
    target = theta + np.array([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]) * 0.1 / math.sqrt(2)
    weights = Enumeration(theta, target, 0.9).weights.max(axis=0)
    bounds = [
        theory.weight_bound(step, 0.1, TABULAR_SOFTMAX["lipschitz_psi"]) for step in range(HORIZON)
    ]
    np.testing.assert_allclose(weights, bounds, rtol=1e-6)


def test_the_printed_weight_variance_fails() -> None:
    # One step, two actions, logits 20 * theta, so l_psi = 20: the printed bound lacks l_psi in its
    # exponential.
    behaviour, target = np.exp(log_policy(20 * np.array([[0.5, -0.5], [-0.2, 0.2]])))
    distance = math.hypot(0.7, 0.7)
    variance = float((target**2 / behaviour).sum() - 1)
    printed = (4 * 400 * 1.5) * (math.exp(4 * distance) + 1) * distance**2
    assert printed < variance <= theory.weight_variance(0, distance, 20.0, 0.0) * distance**2


@pytest.mark.parametrize("distance", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_objective_is_as_smooth_as_claimed(seed: int, distance: float) -> None:
    discount = 0.3
    constants = coverage_constants(discount)
    theta, other = random_pair(seed, distance, spread=0.5)
    moved = np.abs(occupancy(theta, discount) - occupancy(other, discount)).sum()
    assert moved <= theory.occupancy_lipschitz(constants) * distance
    gradients = [
        numerical_gradient(lambda x: coverage(occupancy(x, discount)), x) for x in (theta, other)
    ]
    assert np.linalg.norm(gradients[0]) <= theory.gradient_bound(constants)
    change = np.linalg.norm(gradients[0] - gradients[1])
    assert 0 < change <= theory.smoothness_theta(constants) * distance


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_the_snapshot_estimate_is_as_accurate_as_claimed(scale: float) -> None:
    discount, reward = 0.1, np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    theta = np.random.default_rng(1).normal(size=(STATES, ACTIONS)) / scale
    run = Enumeration(theta, theta, discount, scale)
    estimates = run.gradient(reward)
    error = float(run.mean(((estimates - run.mean(estimates)) ** 2).sum(axis=1)))
    constants = linear_constants(discount, scale)
    assert (
        4 * error <= theory.variance_constants(constants, HORIZON, 0.1).snapshot
    )  # the proof bounds 4 times the error
    printed = 12 / (1 - discount) ** 4
    assert (error <= printed) == (
        scale == 1.0
    )  # as printed, without l_psi^2, it fails for steep logits


def test_the_snapshot_estimate_of_a_curved_utility() -> None:
    discount = 0.3
    theta, _ = random_pair(3, 1.0, spread=0.5)
    run = Enumeration(theta, theta, discount)
    truth = numerical_gradient(lambda x: coverage(occupancy(x, discount)), theta)
    estimates = run.gradient(coverage_gradient(run.occupancy()))
    error = float(run.mean(((estimates - truth) ** 2).sum(axis=1)))
    variance = theory.variance_constants(coverage_constants(discount), HORIZON, 0.1)
    assert error <= variance.snapshot + variance.truncation * discount ** (2 * HORIZON)


@pytest.mark.parametrize("horizon", [1, 4, 10])
def test_the_bias_of_cutting_trajectories(horizon: int) -> None:
    discount = 0.6
    theta, _ = random_pair(5, 1.0, spread=0.5)
    cut, whole = (
        numerical_gradient(lambda x, h=h: coverage(occupancy(x, discount, h)), theta)
        for h in (horizon, None)
    )
    constants = theory.variance_constants(coverage_constants(discount), horizon, 0.1)
    assert 0 < 4 * ((cut - whole) ** 2).sum() <= constants.truncation * discount ** (2 * horizon)


@pytest.mark.parametrize(("scale", "slope"), [(1.0, 1.0), (10.0, 1.0), (100.0, 0.01)])
def test_the_drift_of_one_iteration(scale: float, slope: float) -> None:
    discount, distance, reward = (
        0.3,
        0.05 / scale,
        slope * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]),
    )
    constants = replace(linear_constants(discount, scale), lipschitz_utility=slope)
    drifts: list[float] = []
    for seed in range(6):
        old, new = (theta / scale for theta in random_pair(seed, 0.05, spread=0.5))
        fresh, reweighted = (Enumeration(new, theta, discount, scale) for theta in (new, old))
        drifts.append(
            float(
                fresh.mean(
                    ((fresh.gradient(reward) - reweighted.gradient(reward)) ** 2).sum(axis=1)
                )
            )
        )
    # The proof bounds 4 times the drift.
    assert (
        4 * max(drifts)
        <= theory.variance_constants(constants, HORIZON, distance).drift * distance**2
    )
    steepness, left = scale**2 / 2, 1 - discount
    weights = HORIZON * slope**2 * 8 * steepness * (math.exp(HORIZON * math.sqrt(2) * 0.05) + 1)
    printed = 48 * steepness * slope**2 / left**4 + 96 * weights / left**5 * 12 * slope**2
    assert (max(drifts) > printed * distance**2) == (
        scale == 100.0
    )  # as printed, it fails for steep logits


@pytest.mark.parametrize("seed", range(3))
def test_the_stale_quasi_reward_of_one_iteration(seed: int) -> None:
    discount, distance = 0.3, 0.1
    old, new = random_pair(seed, distance, spread=0.5)
    run = Enumeration(new, new, discount)
    first = occupancy(old, discount, HORIZON)
    second = np.maximum(first + run.occupancy() - Enumeration(new, old, discount).occupancy(), 0)
    jacobian = np.stack([run.mean(run.gradient(unit)) for unit in np.eye(STATES * ACTIONS)])
    stale = (coverage_gradient(first) - coverage_gradient(second)) @ jacobian
    bound = (
        theory.variance_constants(coverage_constants(discount), HORIZON, distance).last_step
        * distance**2
    )
    assert 0 < 4 * run.mean((stale**2).sum(axis=1)) <= bound


# The gradient mapping.


@pytest.mark.parametrize("radius", [0.05, 0.3, 5.0])
def test_gradient_mapping_solves_the_trust_region_problem(radius: float) -> None:
    gradient, eta = np.array([1.2, -0.7]), 0.4
    angles, lengths = np.meshgrid(
        np.linspace(0, 2 * np.pi, 1001), np.linspace(0, min(radius, 2.0), 501)
    )
    moves = np.stack([lengths * np.cos(angles), lengths * np.sin(angles)], axis=-1)
    values = moves @ gradient - (moves**2).sum(axis=-1) / (2 * eta)
    best = moves.reshape(-1, 2)[values.argmax()]
    np.testing.assert_allclose(
        theory.gradient_mapping(gradient, eta, radius) * eta, best, atol=4e-3
    )


def test_gradient_mapping_of_any_shape() -> None:
    matrix = np.array([[3.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(
        theory.gradient_mapping(matrix, 0.5, 1.0), matrix * 0.4
    )  # a step of 2.5 cut to 1
    whole = theory.gradient_mapping(matrix, 0.5, 2.5)
    np.testing.assert_array_equal(whole, matrix)
    assert not np.shares_memory(whole, matrix)
    np.testing.assert_array_equal(theory.gradient_mapping(np.zeros(3), 0.5, 1.0), np.zeros(3))


# What users see.


def test_the_table_is_aligned_and_honest() -> None:
    plan = theory.plan(0.01, FROZEN_LAKE)
    assert 0 < plan.global_optimum.step_size < plan.stationary.step_size < 1e-7
    text = str(plan)
    rows = plan.table().splitlines()[1:]
    assert {len(row) for row in rows} == {46, 66}
    for cell in (
        "922",
        "10,000",
        "1,834,780,000",
        "128,434,600",
        "L_theta",
        "C_4",
        f"{plan.stationary.step_size:.3g}",
    ):
        assert cell in text
    assert "far too small for practice" in text
    assert "below 1e-7" in text


VARIANCE = VarianceConstants(1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((name, lambda x, name=name: replace(EXAMPLE, **{name: x})) for name in vars(EXAMPLE)),
        ("epsilon", lambda x: theory.horizon(x, 0.5)),
        ("discount", lambda x: theory.horizon(0.1, x)),
        ("lipschitz_psi", lambda x: theory.radius(3, x)),
        ("distance", lambda x: theory.weight_bound(0, x, 1.0)),
        ("lipschitz_psi", lambda x: theory.weight_bound(0, 1.0, x)),
        ("radius", lambda x: theory.weight_variance(0, x, 1.0, 1.0)),
        ("smoothness_psi", lambda x: theory.weight_variance(0, 1.0, 1.0, x)),
        ("radius", lambda x: theory.variance_constants(EXAMPLE, 3, x)),
        ("smoothness", lambda x: theory.step_size_stationary(x, VARIANCE)),
        ("smoothness", lambda x: theory.step_size_global(x, VARIANCE)),
        ("step_size", lambda x: theory.gradient_mapping(np.ones(2), x, 1.0)),
        ("radius", lambda x: theory.gradient_mapping(np.ones(2), 1.0, x)),
        ("epsilon", lambda x: theory.plan(x, EXAMPLE)),
    ],
)
def test_bad_numbers_are_named(name: str, call: Callable[[float], Any], value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must .*, got {value}\.$"):
        call(value)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("discount", lambda: replace(EXAMPLE, discount=1.0)),
        ("lipschitz_psi", lambda: replace(EXAMPLE, lipschitz_psi=0.0)),
        ("lipschitz_utility", lambda: replace(EXAMPLE, lipschitz_utility=0.0)),
        ("step", lambda: theory.weight_bound(-1, 1.0, 1.0)),
        ("horizon", lambda: theory.radius(0, 1.0)),
        ("horizon", lambda: theory.variance_constants(EXAMPLE, 0, 1.0)),
        ("epsilon", lambda: theory.horizon(0.0, 0.5)),
        ("epsilon", lambda: theory.horizon(1.0, 0.5)),
        ("epsilon", lambda: theory.plan(0.0, EXAMPLE)),
        ("epsilon", lambda: theory.plan(0.51, EXAMPLE)),
        ("radius", lambda: theory.gradient_mapping(np.ones(2), 1.0, 0.0)),
    ],
)
def test_bad_edges_are_named(name: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must .*, got .*\.$"):
        call()

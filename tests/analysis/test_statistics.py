"""Statistics that compare runs, against hand-worked values, enumeration and SciPy."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from occupax.analysis.statistics import (
    bootstrap,
    bootstrap_difference,
    interquartile_mean,
    log_log_line,
    mean_over_grid,
    on_grid,
    quartiles,
    time_to_threshold,
    trailing_average,
)

NAN, INF = np.nan, np.inf


def mean(runs: np.ndarray) -> Any:
    return runs.mean(0)


def median(runs: np.ndarray) -> Any:
    return np.median(runs, axis=0)


# Quartiles and the interquartile mean


def test_quartiles_next_to_infinity_are_infinite():
    for values, expected in (
        ([1.0, 2.0, INF, INF], [1.75, INF, INF]),
        ([1.0, INF], [INF, INF, INF]),
        ([1.0, 2.0, 3.0, INF], [1.75, 2.5, INF]),
        ([1.0, 2.0, 3.0, INF, INF], [2.0, 3.0, INF]),
        ([-INF, 1.0, 2.0], [-INF, 1.0, 1.5]),
        ([-INF, INF, NAN], [NAN, NAN, NAN]),
    ):
        np.testing.assert_array_equal(np.ravel(quartiles(np.array(values)[:, None])), expected)


def test_interquartile_mean_by_hand():
    for values, expected in (
        ([7.0], 7.0),
        ([9.0, 1.0], 5.0),
        ([1.0, 2.0, 9.0], (0.25 * 1 + 2 + 0.25 * 9) / 1.5),
        ([100.0, 3.0, 2.0, -50.0], 2.5),
        ([5.0, 1.0, 2.0, 4.0, 99.0], (0.75 * 2 + 4 + 0.75 * 5) / 2.5),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 50.0], (0.5 * 1 + 2 + 3 + 0.5 * 4) / 3),
    ):
        np.testing.assert_allclose(interquartile_mean(np.array(values)), expected, rtol=1e-15)


@pytest.mark.parametrize("runs", [4, 8, 20, 100])
def test_interquartile_mean_is_the_trimmed_mean_of_a_multiple_of_four(runs: int):
    values = np.random.default_rng(runs).standard_cauchy((runs, 3, 2))
    np.testing.assert_allclose(
        interquartile_mean(values), stats.trim_mean(values, 0.25, axis=0), rtol=1e-12
    )


@pytest.mark.parametrize("runs", [5, 6, 7, 9])
def test_interquartile_mean_is_that_of_every_run_repeated_four_times(runs: int):
    # the weights are fractions of a quarter, so with four copies of each run only whole ones are
    # cut off
    values = np.random.default_rng(runs).standard_cauchy((runs, 3))
    fourfold = stats.trim_mean(np.repeat(values, 4, axis=0), 0.25, axis=0)
    np.testing.assert_allclose(interquartile_mean(values), fourfold, rtol=1e-12)
    assert (
        np.abs(stats.trim_mean(values, 0.25, axis=0) - fourfold) > 1e-6
    ).all()  # which cuts off less than half


def test_interquartile_mean_leaves_out_what_is_missing_and_cuts_off_infinities():
    values = np.array(
        [[NAN, NAN, INF, 1.0], [3.0, NAN, 1.0, INF], [NAN, NAN, 3.0, INF], [5.0, NAN, -INF, INF]]
    )
    np.testing.assert_array_equal(interquartile_mean(values), [4.0, NAN, 2.0, INF])
    assert np.isnan(interquartile_mean(np.array([-INF, INF])))
    assert interquartile_mean(np.float32([1.0, 2.0])).dtype == np.float64


# The bootstrap


def test_the_bootstrap_has_the_percentiles_of_all_possible_resamples():
    values = np.array([0.0, 1.0, 10.0, 100.0])
    possible = [np.mean(chosen) for chosen in product(values, repeat=4)]
    found = bootstrap(values, mean, level=0.8, resamples=20_000)
    assert found.estimate == 27.75
    # 0.0025 is one standard deviation of the share of 20,000 draws below a percentile of 10 %:
    # these are at 4 of them
    for bound, share in ((found.lower, 0.1), (found.upper, 0.9)):
        assert np.quantile(possible, share - 0.01) <= bound <= np.quantile(possible, share + 0.01)


def test_the_bootstrap_agrees_with_scipy():
    values = np.random.default_rng(1).exponential(size=(15,))
    other = np.random.default_rng(2).exponential(0.5, size=(20,))
    options: dict[str, Any] = {
        "method": "percentile",
        "n_resamples": 20_000,
        "rng": np.random.default_rng(3),
    }
    one = stats.bootstrap((values,), np.mean, **options).confidence_interval
    both = stats.bootstrap(
        (values, other), lambda a, b, axis: a.mean(axis) - b.mean(axis), **options
    ).confidence_interval
    # The share of draws below a bound has a standard deviation of sqrt(0.025 * 0.975 / 20,000) =
    # 0.0011, which near the percentile of 2.5 % of a normal law (density 0.058) is 0.019 of its
    # standard deviation; twice, as both are random.
    for found, expected, spread in (
        (bootstrap(values, mean, resamples=20_000), one, values.std() / 15**0.5),
        (
            bootstrap_difference(values, other, mean, resamples=20_000),
            both,
            (values.var() / 15 + other.var() / 20) ** 0.5,
        ),
    ):
        np.testing.assert_allclose([found.lower, found.upper], expected, atol=4 * 0.027 * spread)


@pytest.mark.parametrize("runs", [5, 10, 30])
def test_intervals_of_normal_data_cover_the_mean_as_often_as_documented(runs: int):
    # The bootstrap mean is near normal, with standard deviation s sqrt((n - 1) / n) / sqrt(n) where
    # s is that of the runs, so the interval covers 0 if |t| < 1.96 sqrt((n - 1) / n). The share of
    # 2,000 samples that do has 4 standard deviations of 0.032 at most.
    values = np.random.default_rng(runs).normal(size=(runs, 2000))
    found = bootstrap(values, mean, resamples=1000)
    covered = ((found.lower <= 0) & (found.upper >= 0)).mean()
    bound = stats.norm.ppf(0.975) * ((runs - 1) / runs) ** 0.5
    expected = 2 * stats.t.cdf(bound, runs - 1) - 1
    assert abs(covered - expected) < 0.032
    assert round(expected, 2) == {5: 0.85, 10: 0.9, 30: 0.94}[runs]


def test_intervals_of_a_difference_cover_it():
    random = np.random.default_rng(0)
    first, second = random.normal(3.0, 1.0, (40, 2000)), random.normal(1.0, 2.0, (30, 2000))
    found = bootstrap_difference(first, second, mean, resamples=1000)
    np.testing.assert_allclose(found.estimate, first.mean(0) - second.mean(0), rtol=1e-12)
    # As above with about 50 degrees of freedom (Welch), 0.94; 4 standard deviations of the share
    # are 0.021.
    assert 0.91 < ((found.lower <= 2.0) & (found.upper >= 2.0)).mean() < 0.965
    assert (found.lower > 0).mean() > 0.99  # two apart, with a standard error of 0.4
    alike = bootstrap_difference(second, second[:, ::-1], mean, resamples=1000)
    assert (alike.lower > 0).mean() < 0.025 + 0.021  # no false claims, but those of the level


def test_whole_runs_are_drawn():
    # the two records of a run are opposite, and so are those of every resample, unless each draws
    # runs of its own
    runs = np.random.default_rng(0).normal(size=8)
    pairs = np.stack([runs, -runs], axis=1)
    found = bootstrap(pairs, mean)
    np.testing.assert_allclose(found.lower, -found.upper[::-1], rtol=1e-12)
    together = bootstrap(runs, np.mean)
    np.testing.assert_allclose(
        [together.lower, together.upper], [found.lower[0], found.upper[0]], rtol=1e-12
    )


def test_the_seed_decides():
    values = np.random.default_rng(0).normal(size=(9, 2))
    first, again, other = (bootstrap(values, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first.lower) != other.lower).any()
    np.testing.assert_array_equal(first.estimate, interquartile_mean(values))
    narrow = bootstrap(values, level=0.5, seed=1)
    assert (first.lower < narrow.lower).all()
    assert (narrow.upper < first.upper).all()


def test_missing_runs_are_as_the_statistic_takes_them():
    values = np.array([[1.0, NAN, 1.0], [2.0, NAN, NAN], [NAN, NAN, NAN]])
    found = bootstrap(values)
    np.testing.assert_array_equal(found.estimate, [1.5, NAN, 1.0])
    np.testing.assert_array_equal(found.lower, [1.0, NAN, 1.0])
    np.testing.assert_array_equal(found.upper, [2.0, NAN, 1.0])
    np.testing.assert_array_equal(np.isnan(bootstrap(values, mean)), True)


def test_intervals_may_be_infinite():
    times = np.array([100.0, 200.0, 300.0, 400.0, INF, INF])
    found = bootstrap(times, median)
    assert (found.estimate, found.upper) == (350.0, INF)
    assert 100.0 <= found.lower <= 200.0
    both = bootstrap(
        np.stack([times, np.arange(6.0)], axis=1), median
    )  # another record does not change a finite one
    np.testing.assert_array_equal([bounds[1] for bounds in both], bootstrap(np.arange(6.0), median))
    never = np.full(6, INF)
    assert bootstrap_difference(times, never, median).estimate == -INF
    assert bootstrap_difference(times[:4], never, median).upper == -INF
    np.testing.assert_array_equal(bootstrap_difference(never, never, median), 0.0)


# Curves


def test_records_are_carried_forward():
    x = np.array([[10, 20, 20, 40], [5, 15, 35, 36]])
    values = np.array([[1.0, 2.0, 3.0, 4.0], [NAN, 6.0, 7.0, NAN]])
    grid = np.array([0, 9, 10, 15, 20, 34.9, 35, 40, 1000])
    expected = [[NAN, NAN, 1, 1, 3, 3, 3, 4, 4], [NAN, NAN, NAN, 6, 6, 6, 7, 7, 7]]
    np.testing.assert_array_equal(on_grid(x, values, grid), expected)
    np.testing.assert_array_equal(on_grid(x, values, grid[::-1]), np.array(expected)[:, ::-1])
    np.testing.assert_array_equal(on_grid(x[0], values[:1], grid), expected[:1])


def test_a_grid_of_the_records_themselves_changes_nothing():
    x, values = np.arange(1, 8), np.random.default_rng(0).normal(size=(3, 7))
    np.testing.assert_array_equal(on_grid(x, values, x), values)
    assert on_grid(x[:0], values[:, :0], x).shape == (3, 7)
    assert np.isnan(on_grid(x[:0], values[:, :0], x)).all()


def single_episodes(ends: list[int], values: list[float], span: int) -> list[float]:
    """The mean of the last single episodes at each record, each with the value of its record."""
    singles: list[float] = []
    means: list[float] = []
    for count, value in zip(np.diff([0, *ends]), values, strict=True):
        singles += [value] * int(count)
        means.append(NAN if np.isnan(value) else float(np.nanmean(singles[-span:])))
    return means


@pytest.mark.parametrize("span", [1, 7, 50, 10_000])
def test_a_trailing_average_is_the_mean_of_the_last_single_episodes(span: int):
    random = np.random.default_rng(span)
    ends = np.cumsum(random.integers(1, 30, 40))
    values = random.normal(size=(4, 40))
    values[1, 25:] = NAN  # stopped
    values[2, [0, 3, 4, 20]] = NAN  # missing here and there: left out of what is averaged
    values[3] = NAN
    expected = [single_episodes(ends.tolist(), line.tolist(), span) for line in values]
    np.testing.assert_allclose(trailing_average(ends, values, span), expected, rtol=1e-12)


def test_a_trailing_average_by_hand():
    ends = np.array([10, 30, 35, 100])
    values = np.array([[1.0, 2.0, 10.0, 5.0], [1.0, NAN, 4.0, NAN]])
    expected = [
        [
            1.0,
            (5 * 1 + 20 * 2) / 25,
            (20 * 2 + 5 * 10) / 25,
            5.0,
        ],  # a part, then 25 episodes, then a record of 65
        [1.0, NAN, 4.0, NAN],
    ]
    np.testing.assert_allclose(trailing_average(ends, values, 25), expected, rtol=1e-15)
    half = trailing_average(ends, values[:1], 0.5)  # less than an episode: the record itself
    np.testing.assert_array_equal(half, values[:1])


def test_the_mean_over_a_grid_is_the_area_of_the_steps():
    grid = np.array([0, 1, 4, 6])
    curves = np.array(
        [[1.0, 2.0, 3.0, 99.0], [5.0, 5.0, 5.0, NAN], [NAN, 1.0, 1.0, 1.0], [1.0, -INF, 0.0, 0.0]]
    )
    np.testing.assert_allclose(
        mean_over_grid(grid, curves), [(1 * 1 + 3 * 2 + 2 * 3) / 6, 5.0, NAN, -INF], rtol=1e-15
    )
    np.testing.assert_allclose(mean_over_grid(grid, curves[0]), 13 / 6, rtol=1e-15)


def test_more_points_between_records_leave_the_mean_as_it_is():
    random = np.random.default_rng(0)
    x, values = np.sort(random.choice(100, 12, replace=False)), random.normal(size=(4, 12))
    fine = np.arange(x[0], x[-1] + 1)
    np.testing.assert_allclose(
        mean_over_grid(fine, on_grid(x, values, fine)),
        mean_over_grid(x, values),
        rtol=1e-12,
        atol=1e-14,
    )


def test_time_to_threshold_by_hand():
    x = np.array([10, 20, 30, 40])
    values = np.array(
        [[0.0, 1.0, 0.0, 2.0], [0.0, 0.5, 0.9, 0.99], [3.0, NAN, NAN, NAN], [NAN, 1.0, 1.0, 1.0]]
    )
    np.testing.assert_array_equal(time_to_threshold(x, values, 1.0), [20, INF, 10, 20])
    np.testing.assert_array_equal(time_to_threshold(x, values, 1.0, window=2), [40, INF, INF, 30])
    np.testing.assert_array_equal(time_to_threshold(x, values, 0.75, window=4), [40, INF, INF, INF])
    np.testing.assert_array_equal(time_to_threshold(x, values, -INF), [10, 10, 10, 20])
    each = x * np.array([[1], [2], [3], [4]])
    np.testing.assert_array_equal(time_to_threshold(each, values, 1.0), [20, INF, 30, 80])
    assert np.median(time_to_threshold(x, values, 1.0)) == 20
    assert np.median(time_to_threshold(x, values, 2.5)) == INF


# A line


@pytest.mark.parametrize("points", [3, 5, 200])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_the_line_agrees_with_scipy(points: int, level: float):
    random = np.random.default_rng(points)
    x = random.uniform(1e-3, 1e4, points)
    y = 3.0 * x**-1.5 * random.lognormal(size=points)
    line = log_log_line(x, y, level=level)
    known: Any = stats.linregress(np.log(x), np.log(y))
    margin = stats.t.ppf(0.5 + level / 2, points - 2) * known.stderr
    expected = [known.slope, known.intercept, known.slope - margin, known.slope + margin]
    np.testing.assert_allclose(line, expected, rtol=1e-9)


def test_a_power_is_found_exactly():
    x = np.array([1, 2, 4, 8])
    line = log_log_line(x, 5.0 * x**2)
    np.testing.assert_allclose([line.slope, line.intercept], [2.0, np.log(5.0)], rtol=1e-13)
    # the error of the slope is a root of 1 - r^2, whose rounding error is some 1e-16, times
    # Student's 4.3
    np.testing.assert_allclose([line.lower, line.upper], 2.0, atol=1e-6)


def test_the_interval_of_a_slope_covers_it_at_its_level():
    random, x = np.random.default_rng(0), np.geomspace(1.0, 1000.0, 6)
    lines = [log_log_line(x, x**0.5 * random.lognormal(size=6), level=0.9) for _ in range(1000)]
    covered = np.mean([line.lower <= 0.5 <= line.upper for line in lines])
    assert (
        abs(covered - 0.9) < 4 * (0.9 * 0.1 / 1000) ** 0.5
    )  # exact for normal errors: 4 standard deviations


# Bad input

ONES = np.ones(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bootstrap(ONES[:1]),
            r"values must have at least 2 seeds, got 1\.",
        ),
        (
            lambda: bootstrap_difference(ONES, ONES[:0]),
            r"second must have at least 2 seeds, got 0\.",
        ),
        (lambda: bootstrap(ONES, level=0.0), r"level must be a finite number above 0, got 0\.0\."),
        (lambda: bootstrap(ONES, level=95), r"level must be below 1, got 95\."),
        (
            lambda: bootstrap(ONES, resamples=0),
            r"resamples must be an integer of at least 1, got 0\.",
        ),
        (lambda: bootstrap(ONES, seed=-1), r"seed must be an integer of at least 0, got -1\."),
        (
            lambda: bootstrap(np.ones((3, 2)), np.median),
            r"statistic must reduce the first axis and no other, got shape \(\) from \(3, 2\)\.",
        ),
        (
            lambda: bootstrap_difference(np.ones((3, 2)), np.ones((3, 1))),
            r"first and second must have the same records, got shapes \(3, 2\) and \(3, 1\)\.",
        ),
        (
            lambda: on_grid(ONES, np.ones((2, 3)), ONES),
            r"x must have shape \(2, 3\) as values or \(3,\), got \(4,\)\.",
        ),
        (
            lambda: on_grid(np.array([[1, 2], [4, 3]]), np.ones((2, 2)), ONES),
            r"x must not decrease from record to record, got 4 before 3\.",
        ),
        (
            lambda: on_grid(np.array([1, NAN]), np.ones((2, 2)), ONES),
            r"x must not decrease .*, got 1\.0 before nan\.",
        ),
        (
            lambda: mean_over_grid(ONES, ONES),
            r"grid must be two or more increasing numbers, got array\(",
        ),
        (
            lambda: mean_over_grid(ONES[:1], ONES[:1]),
            r"grid must be two or more increasing numbers, got array\(",
        ),
        (
            lambda: mean_over_grid(np.array([1, INF]), ONES[:2]),
            r"grid must be finite, got inf at index \(1,\)\.",
        ),
        (
            lambda: mean_over_grid(np.arange(3), ONES),
            r"curves must have 3 points as the grid has, got 4\.",
        ),
        (
            lambda: trailing_average(ONES, ONES[None], 0.0),
            r"span must be a finite number above 0, got 0\.0\.",
        ),
        (
            lambda: trailing_average(ONES, ONES[None], INF),
            r"span must be a finite number above 0, got inf\.",
        ),
        (
            lambda: trailing_average(np.arange(1, 4), ONES[None], 1.0),
            r"x must be 4 increasing numbers above 0, .* array",
        ),
        (
            lambda: trailing_average(np.array([1, 3, 2]), np.ones((2, 3)), 1.0),
            r"x must be 3 increasing numbers above 0",
        ),
        (
            lambda: trailing_average(np.arange(3), np.ones((2, 3)), 1.0),
            r"x must be 3 increasing numbers above 0, one a",
        ),
        (
            lambda: time_to_threshold(ONES, ONES[None], NAN),
            r"threshold must be a number, got nan\.",
        ),
        (
            lambda: time_to_threshold(ONES, ONES[None], 0.0, window=5),
            r"window must be at most 4, the number of records, got 5\.",
        ),
        (
            lambda: time_to_threshold(ONES, ONES[None], 0.0, window=0),
            r"window must be an integer of at least 1",
        ),
        (
            lambda: log_log_line(ONES[:2], ONES[:2]),
            r"x and y must be three or more numbers each, got shapes \(2,\) and \(2,\)\.",
        ),
        (
            lambda: log_log_line(ONES, ONES[:3]),
            r"x and y must be .*, got shapes \(4,\) and \(3,\)\.",
        ),
        (
            lambda: log_log_line(np.arange(4), ONES),
            r"x must be positive to have a logarithm, got 0\.0\.",
        ),
        (
            lambda: log_log_line(np.arange(1, 5), -ONES),
            r"y must be positive to have a logarithm, got -1\.0\.",
        ),
        (
            lambda: log_log_line(ONES, ONES),
            r"x must have two or more different numbers, got 1\.0 only\.",
        ),
        (lambda: log_log_line(ONES, ONES * NAN), r"y must be finite, got nan at index \(0,\)\."),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call: Any, message: str):
    with pytest.raises(ValueError, match=message):
        call()

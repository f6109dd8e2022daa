"""Statistics over seeds and log entries, and learning curves on common grids.

The x axis of a curve is `result.episodes`, which all seeds share, or `result.steps`, one row for
each seed. The values of a stopped seed are NaN from then on and are left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from warnings import catch_warnings

import numpy as np
from jaxtyping import ArrayLike, Float, Num

from occupax.errors import check_integer, check_number, read_array

Records = Float[np.ndarray, " record"]
Curves = Float[np.ndarray, "seed record"]
Positions = Num[np.ndarray, "*shared record"]
Grid = Num[np.ndarray, " point"]
Statistic = Callable[[np.ndarray], ArrayLike]

RESAMPLES_AT_ONCE = 50
"""Number of resamples in memory at the same time."""


class Interval(NamedTuple):
    """Estimate with a confidence interval, of one number or of each log entry."""

    estimate: Float[np.ndarray, "*record"]
    """Point estimate."""
    lower: Float[np.ndarray, "*record"]
    """Lower bound of the interval."""
    upper: Float[np.ndarray, "*record"]
    """Upper bound of the interval."""


class Line(NamedTuple):
    """Power law y = exp(intercept) * x ** slope, with a confidence interval of the slope."""

    slope: float
    """Exponent of the power law."""
    intercept: float
    """Logarithm of the factor."""
    lower: float
    """Lower bound of the slope."""
    upper: float
    """Upper bound of the slope."""


def quartiles(values: Curves) -> tuple[Records, Records, Records]:
    """Return the lower quartile, the median and the upper quartile over the seeds.

    Args:
        values: One row of log entries for each seed. NaN entries are left out.

    Returns:
        Three arrays with one number for each log entry, NaN where no seed has a value.
    """
    ranked = np.sort(np.asarray(values, float), axis=0)  # NaN comes last
    counts = np.count_nonzero(~np.isnan(ranked), axis=0)
    lower = _quantile(ranked, counts, 0.25)
    median = _quantile(ranked, counts, 0.5)
    upper = _quantile(ranked, counts, 0.75)
    return lower, median, upper


def _quantile(ranked: Curves, counts: np.ndarray, level: float) -> Records:
    """Return a quantile of each column of sorted values by linear interpolation."""
    rank = level * np.maximum(counts - 1, 0)
    lower = np.floor(rank).astype(int)
    upper = np.ceil(rank).astype(int)
    columns = np.arange(ranked.shape[1])
    below = ranked[lower, columns]
    above = ranked[upper, columns]
    fraction = rank - lower
    # NumPy's quantile of a finite and an infinite value is NaN
    with np.errstate(invalid="ignore"):
        between = (1 - fraction) * below + fraction * above
    return np.where(below == above, below, between)


def moving_average(values: Curves, window: int) -> Curves:
    """Return the mean of the log entries around each entry.

    Args:
        values: One row of log entries for each seed. NaN entries stay NaN and are left out.
        window: Number of entries in a mean. An even window has one more entry before than after.

    Returns:
        An array like `values`.
    """
    window = check_integer("window", window)
    is_known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        sums = _windowed_sums(np.where(is_known, values, 0.0), window)
        counts = _windowed_sums(is_known, window)
        means = sums / np.maximum(counts, 1.0)
    return np.where(is_known, means, np.nan)


def _windowed_sums(values: np.ndarray, window: int) -> Curves:
    """Return the sum of the entries around each entry.

    Differences of cumulative sums would be faster, but one huge importance weight would swallow
    all later entries.
    """
    margins = (window // 2, (window - 1) // 2)
    padded = np.pad(values.astype(float), ((0, 0), margins))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
    return windows.sum(-1)


def interquartile_mean(values: Float[np.ndarray, "seed *record"]) -> Float[np.ndarray, "*record"]:
    """Return the mean of the middle half of the seeds for each log entry.

    The result is `scipy.stats.trim_mean(values, 0.25)`, except that the two seeds at the edges of
    the middle half may count in part.

    Args:
        values: One number, or one row of log entries, for each seed. NaN entries are left out.

    Returns:
        One number for each log entry, NaN where no seed has a value.
    """
    ranked = np.sort(np.asarray(values, float), axis=0)  # NaN comes last
    counts = np.count_nonzero(~np.isnan(ranked), axis=0)
    column = (-1,) + (1,) * (ranked.ndim - 1)
    ranks = np.arange(len(ranked)).reshape(column)
    starts = np.maximum(ranks, 0.25 * counts)
    ends = np.minimum(ranks + 1, 0.75 * counts)
    weights = np.maximum(ends - starts, 0.0)
    with np.errstate(invalid="ignore"):  # infinite values, and columns without a value
        terms = np.where(weights > 0, weights * ranked, 0.0)
        return np.asarray(terms.sum(0) / (0.5 * counts))


def bootstrap(
    values: Float[np.ndarray, "seed *record"],
    statistic: Statistic = interquartile_mean,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return a statistic over the seeds with a percentile bootstrap confidence interval.

    Whole seeds are resampled with replacement. The bounds are values of the statistic in a
    resample, and resamples with the value NaN are left out. For few seeds the interval is too
    narrow: at level 0.95 it covers the mean of Gaussian data in 84% of all cases for 5 seeds, 90%
    for 10 and 93% for 20. Intervals of several log entries hold individually.

    Args:
        values: One number, or one row of log entries, for each seed.
        statistic: Function that reduces the first axis of such an array, such as
            `lambda runs: np.median(runs, axis=0)`.
        level: Confidence of the interval.
        resamples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        The statistic and the bounds of the interval.
    """
    estimate = _estimate("values", values, statistic)

    def resampled(runs: np.ndarray) -> np.ndarray:
        return np.asarray(statistic(runs), float)

    return _bootstrap(estimate, (values,), resampled, level, resamples, seed)


def bootstrap_difference(
    first: Float[np.ndarray, "first *record"],
    second: Float[np.ndarray, "second *record"],
    statistic: Statistic = interquartile_mean,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return statistic(first) - statistic(second) of independent seeds with a bootstrap interval.

    Two equal infinities differ by 0. The interval has the properties of `bootstrap`.

    Args:
        first: One number, or one row of log entries, for each seed.
        second: The same for other seeds, whose statistic is subtracted.
        statistic: Function that reduces the first axis of such an array.
        level: Confidence of the interval.
        resamples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        The difference and the bounds of the interval.
    """
    if first.shape[1:] != second.shape[1:]:
        shapes = f"{first.shape} and {second.shape}"
        raise ValueError(f"first and second must have the same records, got shapes {shapes}.")
    minuend = _estimate("first", first, statistic)
    subtrahend = _estimate("second", second, statistic)

    def resampled(runs: np.ndarray, other_runs: np.ndarray) -> np.ndarray:
        return _difference(statistic(runs), statistic(other_runs))

    estimate = _difference(minuend, subtrahend)
    return _bootstrap(estimate, (first, second), resampled, level, resamples, seed)


def _estimate(name: str, values: np.ndarray, statistic: Statistic) -> np.ndarray:
    """Return the statistic of all seeds, and raise ValueError for values that do not fit."""
    if len(values) < 2:
        raise ValueError(f"{name} must have at least 2 seeds, got {len(values)}.")
    estimate = np.asarray(statistic(values), float)
    if estimate.shape != values.shape[1:]:
        shapes = f"{estimate.shape} from {values.shape}"
        raise ValueError(f"statistic must reduce the first axis and no other, got shape {shapes}.")
    return estimate


def _difference(minuend: ArrayLike, subtrahend: ArrayLike) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        difference = np.subtract(minuend, subtrahend, dtype=float)
    return np.where(np.equal(minuend, subtrahend), 0.0, difference)


def _bootstrap(
    estimate: np.ndarray,
    groups: tuple[np.ndarray, ...],
    resampled: Callable[..., np.ndarray],
    level: float,
    resamples: int,
    seed: int,
) -> Interval:
    """Return an estimate with the interval of the percentiles of `resampled` over resamples."""
    from scipy import stats

    tail = check_level(level)
    random = np.random.default_rng(check_integer("seed", seed, minimum=0))

    def over_resamples(*samples: np.ndarray, axis: int) -> np.ndarray:
        """Return [*record, resample] from arrays [*record, resample, seed]."""
        runs = [np.moveaxis(sample, (-2, axis), (0, 1)) for sample in samples]
        return np.stack([resampled(*resample) for resample in zip(*runs, strict=True)], axis=-1)

    with catch_warnings(action="ignore", category=RuntimeWarning):  # infinite and NaN values
        result = stats.bootstrap(
            groups,
            over_resamples,
            n_resamples=check_integer("resamples", resamples),
            batch=RESAMPLES_AT_ONCE,
            axis=0,
            vectorized=True,
            method="percentile",
            rng=random,
        )
        values = result.bootstrap_distribution
        lower = np.nanquantile(values, tail, axis=-1, method="lower")
        upper = np.nanquantile(values, 1 - tail, axis=-1, method="higher")
    is_unknown = np.isnan(estimate)
    lower = np.where(is_unknown, np.nan, lower)
    upper = np.where(is_unknown, np.nan, upper)
    return Interval(estimate, lower, upper)


def on_grid(x: Positions, values: Curves, grid: Grid) -> Float[np.ndarray, "seed point"]:
    """Return the last log entry of each seed at each point of a grid.

    A stopped seed stays at its last value. The last of several entries at one position counts.

    Args:
        x: Position of each log entry, shared by the seeds or one row for each seed.
        values: One row of log entries for each seed.
        grid: Positions to evaluate the curves at.

    Returns:
        One row for each seed, NaN before its first entry.
    """
    entries = np.arange(values.shape[1])
    latest = np.maximum.accumulate(np.where(np.isnan(values), -1, entries), axis=1)
    latest = np.pad(latest, ((0, 0), (1, 0)), constant_values=-1)
    result = np.full((len(values), len(grid)), np.nan)
    for seed, positions in enumerate(_positions(x, values)):
        counts = np.searchsorted(positions, grid, side="right")
        index = latest[seed, counts]
        has_entry = index >= 0
        result[seed, has_entry] = values[seed, index[has_entry]]
    return result


def trailing_average(x: Num[np.ndarray, " record"], values: Curves, span: int | float) -> Curves:
    """Return the mean over the last `span` units of x at each log entry.

    An entry represents the interval from the entry before, or zero, to its own position.

    Args:
        x: Increasing positions of the log entries, above zero.
        values: One row of log entries for each seed. NaN entries stay NaN and are left out.
        span: Length of the averaged interval, in units of x. The first entries have less.

    Returns:
        An array like `values`.
    """
    check_number("span", span, low=0.0, open_low=True)
    if x.shape != values.shape[1:] or not (np.diff(x, prepend=0) > 0).all():
        count = values.shape[1]
        raise ValueError(
            f"x must be {count} increasing numbers above 0, one a record, got {x!r:.60}."
        )
    ends = x.astype(float)
    starts = np.concatenate([[0.0], ends[:-1]])
    is_known = ~np.isnan(values)
    known_values = np.where(is_known, values, 0.0)
    result = np.full(values.shape, np.nan)
    for record, end in enumerate(ends):
        first = int(np.searchsorted(ends, end - span, side="right"))
        part = slice(first, record + 1)
        lengths = ends[part] - np.maximum(starts[part], end - span)
        weights = np.where(is_known[:, part], lengths, 0.0)
        sums = (weights * known_values[:, part]).sum(1)
        seeds = is_known[:, record]
        result[seeds, record] = sums[seeds] / weights.sum(1)[seeds]
    return result


def mean_over_grid(
    grid: Grid, curves: Float[np.ndarray, "*seed point"]
) -> Float[np.ndarray, "*seed"]:
    """Return the mean height of each curve, as a step function between the points of a grid.

    Args:
        grid: Two or more increasing positions.
        curves: One value for each position. A value holds up to the next position, so that the
            last value does not count.

    Returns:
        One number for each curve.
    """
    widths = np.diff(read_array("grid", grid))
    if not (len(widths) and (widths > 0).all()):
        raise ValueError(f"grid must be two or more increasing numbers, got {grid!r:.60}.")
    points = curves.shape[-1]
    if points != len(grid):
        raise ValueError(f"curves must have {len(grid)} points as the grid has, got {points}.")
    weights = widths / widths.sum()
    with np.errstate(invalid="ignore"):  # infinities of both signs
        terms = np.asarray(curves, float)[..., :-1] * weights
        return np.asarray(terms.sum(-1))


def time_to_threshold(
    x: Positions, values: Curves, threshold: float, window: int = 1
) -> Float[np.ndarray, " seed"]:
    """Return the first position at which the mean of a seed's log entries reaches a threshold.

    Args:
        x: Position of each log entry, shared by the seeds or one row for each seed.
        values: One row of log entries for each seed.
        threshold: Value to reach.
        window: Number of successive entries in a mean. A mean with a NaN entry does not count.

    Returns:
        The position of the last entry of the first such mean, infinity if there is none.
    """
    window = check_integer("window", window)
    positions = _positions(x, values)
    if np.isnan(threshold):
        raise ValueError(f"threshold must be a number, got {threshold!r}.")
    records = values.shape[1]
    if window > records:
        raise ValueError(f"window must be at most {records}, the number of records, got {window}.")
    windows = np.lib.stride_tricks.sliding_window_view(values.astype(float), window, axis=1)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        is_reached = windows.mean(-1) >= threshold
    times = np.where(is_reached, positions[:, window - 1 :], np.inf)
    return times.min(1)


def _positions(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the position of each log entry of each seed, and raise ValueError if any decreases."""
    if x.shape not in (values.shape, values.shape[1:]):
        shapes = f"{values.shape} as values or {values.shape[1:]}"
        raise ValueError(f"x must have shape {shapes}, got {x.shape}.")
    decreases = np.argwhere(~(x[..., 1:] >= x[..., :-1]))  # NaN is invalid too
    if len(decreases):
        *seed, record = decreases[0].tolist()
        earlier, later = x[tuple(seed)][record : record + 2]
        raise ValueError(
            f"x must not decrease from record to record, got {earlier} before {later}."
        )
    return np.broadcast_to(x, values.shape)


def log_log_line(x: Grid, y: Grid, *, level: float = 0.95) -> Line:
    """Fit a line through (log x, log y) by least squares.

    Args:
        x: Three or more positive numbers.
        y: As many positive numbers.
        level: Confidence of the interval of the slope.

    Returns:
        The line with Student's confidence interval of its slope.
    """
    from scipy import stats

    tail = check_level(level)
    if x.ndim != 1 or len(x) < 3 or x.shape != y.shape:
        shapes = f"{x.shape} and {y.shape}"
        raise ValueError(f"x and y must be three or more numbers each, got shapes {shapes}.")
    log_x = _logarithms("x", x)
    log_y = _logarithms("y", y)
    if log_x.min() == log_x.max():
        raise ValueError(f"x must have two or more different numbers, got {float(x[0])} only.")
    line = stats.linregress(log_x, log_y)
    margin = stats.t.isf(tail, len(x) - 2) * line.stderr
    lower = float(line.slope - margin)
    upper = float(line.slope + margin)
    return Line(float(line.slope), float(line.intercept), lower, upper)


def _logarithms(name: str, numbers: np.ndarray) -> Grid:
    values = read_array(name, numbers)
    if values.min() <= 0:
        raise ValueError(f"{name} must be positive to have a logarithm, got {values.min()}.")
    return np.log(values)


def mean_interval(values: Float[np.ndarray, " seed"], level: float = 0.95) -> Interval:
    """Return the mean over the seeds with Student's confidence interval.

    Seeds that are NaN are left out. The interval of a single seed is its value.

    Args:
        values: One number for each seed.
        level: Confidence of the interval.

    Returns:
        The mean and the bounds of the interval.
    """
    from scipy import stats

    tail = check_level(level)
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return Interval(np.asarray(np.nan), np.asarray(np.nan), np.asarray(np.nan))
    mean = np.asarray(known.mean())
    if len(known) == 1:
        return Interval(mean, mean, mean)
    margin = stats.t.isf(tail, len(known) - 1) * stats.sem(known)
    return Interval(mean, mean - margin, mean + margin)


def mean_difference(
    first: Float[np.ndarray, " first"], second: Float[np.ndarray, " second"], level: float = 0.95
) -> Interval:
    """Return the difference of the means of independent seeds with Welch's confidence interval.

    Seeds that are NaN are left out. A single seed counts as exact.

    Args:
        first: One number for each seed.
        second: One number for each seed, whose mean is subtracted.
        level: Confidence of the interval.

    Returns:
        The difference and the bounds of the interval.
    """
    from scipy import stats

    check_level(level)
    minuends = first[~np.isnan(first)]
    subtrahends = second[~np.isnan(second)]
    if min(len(minuends), len(subtrahends)) < 2:
        differences = np.subtract.outer(minuends, subtrahends)
        return mean_interval(differences.ravel(), level)
    with catch_warnings(action="ignore", category=RuntimeWarning):  # seeds that are all equal
        test: Any = stats.ttest_ind(minuends, subtrahends, equal_var=False)
        bounds = test.confidence_interval(level)
    difference = np.asarray(minuends.mean() - subtrahends.mean())
    return Interval(difference, np.asarray(bounds.low), np.asarray(bounds.high))


def median_interval(values: Float[np.ndarray, " seed"], level: float = 0.95) -> Interval:
    """Return the upper median with a confidence interval between two order statistics.

    The interval holds for every distribution. Values may be infinite.

    Args:
        values: One number for each seed.
        level: Confidence of the interval.

    Returns:
        The median and the bounds of the interval.
    """
    from scipy import stats

    ranked = np.sort(values)
    count = len(ranked)
    depth = int(stats.binom.ppf(check_level(level), count, 0.5))
    lower = max(depth - 1, 0)
    upper = count - 1 - lower
    median = np.asarray(ranked[count // 2])
    return Interval(median, np.asarray(ranked[lower]), np.asarray(ranked[upper]))


def stratified_bootstrap(
    statistic: Callable[..., Any],
    *groups: Float[np.ndarray, "problem seed"],
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Return a statistic of scores with a percentile bootstrap confidence interval.

    The seeds of every problem are resampled with replacement (Agarwal et al., 2021). The interval
    holds for other seeds on the same problems.

    Args:
        statistic: Function of one array of scores for each group.
        groups: Scores, one array for each algorithm.
        level: Confidence of the interval.
        resamples: Number of resamples.

    Returns:
        The statistic and the bounds of the interval.
    """
    tail = check_level(level)
    random = np.random.default_rng(0)
    values: list[Any] = []
    for _ in range(resamples):
        resampled: list[np.ndarray] = []
        for scores in groups:
            seeds = random.integers(scores.shape[1], size=scores.shape)
            resampled.append(np.take_along_axis(scores, seeds, 1))
        values.append(statistic(*resampled))
    lower, upper = np.quantile(np.array(values, float), [tail, 1 - tail], axis=0)
    return Interval(np.asarray(statistic(*groups), float), lower, upper)


def performance_profile(
    scores: Float[np.ndarray, "problem seed"],
    levels: Float[np.ndarray, " level"],
    resamples: int = 2000,
) -> Interval:
    """Return the fraction of runs with at least each of some scores, with its interval.

    Args:
        scores: Scores of all runs.
        levels: Scores to reach.
        resamples: Number of resamples of the bootstrap.

    Returns:
        The fractions and the bounds of their intervals.
    """

    def fractions(values: np.ndarray) -> np.ndarray:
        is_reached = values.ravel()[:, None] >= levels
        return is_reached.mean(0)

    return stratified_bootstrap(fractions, scores, resamples=resamples)


def probability_of_improvement(
    first: Float[np.ndarray, "problem first"],
    second: Float[np.ndarray, "problem second"],
    resamples: int = 2000,
) -> Interval:
    """Return the probability that a run of the first algorithm beats one of the second.

    The probability is a mean over the problems. A tie counts one half.

    Args:
        first: Scores of the first algorithm.
        second: Scores of the second algorithm.
        resamples: Number of resamples of the bootstrap.

    Returns:
        The probability and the bounds of its interval.
    """

    def probability(scores: np.ndarray, other_scores: np.ndarray) -> float:
        differences = scores[:, :, None] - other_scores[:, None, :]
        return 0.5 * (1.0 + np.sign(differences)).mean()

    return stratified_bootstrap(probability, first, second, resamples=resamples)


def check_level(level: float) -> float:
    """Return the probability of each tail outside a confidence interval.

    Args:
        level: Confidence of the interval, between 0 and 1.

    Raises:
        ValueError: if the level is not between 0 and 1.
    """
    if check_number("level", level, low=0.0, open_low=True) >= 1.0:
        raise ValueError(f"level must be below 1, got {level!r}.")
    return (1.0 - level) / 2.0

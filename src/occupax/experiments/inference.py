"""Intervals and tests over seeds; in a family of several comparisons all intervals hold together (Bonferroni)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis.statistics import Interval

LEVEL = 0.95
"""The confidence of an interval, or of all intervals of a family together."""
Seeds = Float[np.ndarray, " seed"]
First = Float[np.ndarray, " first"]
Second = Float[np.ndarray, " second"]


def mean(values: Seeds, family: int = 1) -> Interval:
    """The mean over seeds and Student's interval; the number itself if there is one seed only."""
    return _student(*_moments(values), family)


def difference(first: First, second: Second, family: int = 1) -> Interval:
    """The difference of two means over independent seeds, and Welch's interval."""
    (one, spread, degrees), (other, other_spread, other_degrees) = _moments(first), _moments(second)
    total = spread + other_spread
    parts = sum(
        part**2 / count
        for part, count in ((spread, degrees), (other_spread, other_degrees))
        if part > 0
    )
    return _student(one - other, total, total**2 / parts if parts else degrees, family)


def _moments(values: Seeds) -> tuple[float, float, float]:
    """The mean, the square of its standard error, and the degrees of freedom; seeds that stopped are left out."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return float(known.mean()) if len(known) else np.nan, 0.0, 1.0
    return float(known.mean()), float(known.var(ddof=1) / len(known)), len(known) - 1.0


def _student(centre: float, variance: float, degrees: float, family: int) -> Interval:
    from scipy import stats

    margin = -stats.t.ppf((1 - LEVEL) / 2 / family, degrees) * np.sqrt(variance)
    return Interval(*(np.asarray(bound) for bound in (centre, centre - margin, centre + margin)))


def above(interval: Interval, bound: float = 0.0) -> bool | None:
    """Whether a number is above a bound, for all that its interval says; None if the bound lies within."""
    if interval.lower > bound:
        return True
    return False if interval.upper < bound else None


def median(times: Seeds) -> Interval:
    """The upper median of times, which may be infinite, between two of them that enclose it with 95% for any law."""
    from scipy import stats

    ranked, count = np.sort(times), len(times)
    depth = int(stats.binom.ppf((1 - LEVEL) / 2, count, 0.5))
    below = max(depth - 1, 0)
    return Interval(
        *(np.asarray(ranked[place]) for place in (count // 2, below, count - 1 - below))
    )


def later(first: First, second: Second, family: int = 1) -> bool | None:
    """Whether times tend to be later than others, by the test of Mann and Whitney; None if neither is shown."""
    from scipy import stats

    if (first[:, None] == second).all():
        return None
    sides = [
        stats.mannwhitneyu(first, second, alternative=side).pvalue for side in ("greater", "less")
    ]
    limit = (1 - LEVEL) / family
    return True if sides[0] < limit else False if sides[1] < limit else None


class PowerLaw(NamedTuple):
    """A line through log means against log numbers of episodes, with intervals from the spread over the seeds."""

    slope: Interval
    curvature: Interval
    """The coefficient of the square of the centred log number of episodes, in a parabola in the
    place of the line."""
    line: Float[np.ndarray, " point"]
    """The fitted means."""
    means: Float[np.ndarray, " point"]


def power_law(episodes: Sequence[int], gaps: Sequence[Seeds], level: float = LEVEL) -> PowerLaw:
    """Fit log mean gap by least squares; the error of a log mean is that of the mean divided by it."""
    from scipy import stats

    x = np.log(np.asarray(episodes, float))
    x -= x.mean()
    means = np.array([gap.mean() for gap in gaps])
    errors = np.array([gap.std(ddof=1) / np.sqrt(len(gap)) for gap in gaps]) / means
    quantile = -stats.t.ppf((1 - level) / 2, len(gaps[0]) - 1)

    def fit(power: int) -> tuple[Interval, np.ndarray]:
        """The coefficient of the highest power, and the fitted logarithms."""
        columns = x[:, None] ** np.arange(power + 1)
        weights = np.linalg.pinv(columns)
        found = float(weights[power] @ np.log(means))
        margin = quantile * np.sqrt(float((weights[power] * errors) ** 2 @ np.ones(len(x))))
        return Interval(
            *map(np.asarray, (found, found - margin, found + margin))
        ), columns @ weights @ np.log(means)

    (slope, fitted), (curvature, _) = fit(1), fit(2)
    return PowerLaw(slope, curvature, np.exp(fitted), means)


def equivalent(interval: Interval, target: float, margin: float) -> bool | None:
    """Whether an interval lies within target +- margin (shown), outside of it (refuted), or across its edge (None)."""
    if interval.lower >= target - margin and interval.upper <= target + margin:
        return True
    return False if interval.lower > target + margin or interval.upper < target - margin else None

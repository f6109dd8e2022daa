"""Simultaneous confidence intervals and tests over seeds, with Bonferroni's correction."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis import statistics
from occupax.analysis.statistics import Interval

LEVEL = 0.95
"""Confidence of an interval, or of all intervals of a family together."""
Seeds = Float[np.ndarray, " seed"]
First = Float[np.ndarray, " first"]
Second = Float[np.ndarray, " second"]
Answer = bool | None
"""Result of a test. None stands for a test that cannot tell."""


def mean(values: Seeds, family: int = 1) -> Interval:
    """Return the mean over the seeds with Student's interval."""
    return statistics.mean_interval(values, _family_level(family))


def difference(first: First, second: Second, family: int = 1) -> Interval:
    """Return the difference of two means over independent seeds with Welch's interval."""
    return statistics.mean_difference(first, second, _family_level(family))


def median(times: Seeds) -> Interval:
    """Return the upper median of times, which may be infinite, with its interval."""
    return statistics.median_interval(times, LEVEL)


def _family_level(family: int) -> float:
    return 1 - (1 - LEVEL) / family


def is_above(interval: Interval, bound: float = 0.0) -> Answer:
    """Return whether a whole interval is above a bound, or None if the bound lies within."""
    if interval.lower > bound:
        return True
    if interval.upper < bound:
        return False
    return None


def is_within(interval: Interval, target: float, margin: float) -> Answer:
    """Return whether an interval lies within target +- margin, or None if across the edge."""
    low = target - margin
    high = target + margin
    if interval.lower >= low and interval.upper <= high:
        return True
    if interval.lower > high or interval.upper < low:
        return False
    return None


def is_later(first: First, second: Second, family: int = 1) -> Answer:
    """Return whether times tend to be later than others (Mann and Whitney), or None."""
    from scipy import stats

    if (first[:, None] == second).all():
        return None
    threshold = (1 - LEVEL) / family
    if stats.mannwhitneyu(first, second, alternative="greater").pvalue < threshold:
        return True
    if stats.mannwhitneyu(first, second, alternative="less").pvalue < threshold:
        return False
    return None


class PowerLaw(NamedTuple):
    """Line through log means against log episodes, with intervals from the spread of the seeds."""

    slope: Interval
    curvature: Interval
    """Coefficient of the square of the centred log episodes, in a parabola instead of the line."""
    line: Float[np.ndarray, " point"]
    """Fitted means."""
    means: Float[np.ndarray, " point"]


def power_law(episodes: Sequence[int], gaps: Sequence[Seeds], level: float = LEVEL) -> PowerLaw:
    """Fit the log mean gap by least squares. The error of a log mean is its relative error."""
    from scipy import stats

    x = np.log(np.asarray(episodes, float))
    x -= x.mean()
    means = np.array([gap.mean() for gap in gaps])
    deviations = np.array([gap.std(ddof=1) / np.sqrt(len(gap)) for gap in gaps])
    errors = deviations / means
    quantile = -stats.t.ppf((1 - level) / 2, len(gaps[0]) - 1)
    logs = np.log(means)

    def fit(degree: int) -> tuple[Interval, np.ndarray]:
        """Return the coefficient of the highest power, and the fitted logarithms."""
        powers = x[:, None] ** np.arange(degree + 1)
        weights = np.linalg.pinv(powers)
        coefficient = float(weights[degree] @ logs)
        margin = quantile * float(np.linalg.norm(weights[degree] * errors))
        bounds = (coefficient, coefficient - margin, coefficient + margin)
        return Interval(*map(np.asarray, bounds)), powers @ weights @ logs

    slope, fitted = fit(1)
    curvature, _ = fit(2)
    return PowerLaw(slope, curvature, np.exp(fitted), means)


def constant_slope(episodes: Sequence[int], gaps: np.ndarray) -> tuple[float, float]:
    """Return slope and curvature of gaps without a spread."""
    law = power_law(episodes, [np.full(2, gap) for gap in gaps])
    return float(law.slope.estimate), float(law.curvature.estimate)

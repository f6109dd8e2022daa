"""Statistics over problems and seeds, as Agarwal et al. (2021) recommend them for a few runs on many problems.

Scores are arrays [problem, seed]. Intervals are percentile bootstraps in which the seeds of every
problem are drawn anew, with replacement: they tell how much the numbers would change with other
seeds, on the same problems.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from occupax.analysis.statistics import Interval, check_level, interquartile_mean

RESAMPLES, LEVEL = 2000, 0.95

Scores = Float[np.ndarray, "problem seed"]
Statistic = Callable[..., Any]


def middle(scores: Scores) -> Interval:
    """The interquartile mean over all problems and seeds."""
    return stratified(lambda it: interquartile_mean(it.ravel()), scores)


def profile(scores: Scores, levels: Float[np.ndarray, " level"]) -> Interval:
    """The share of all runs that reach at least each of some levels."""
    return stratified(lambda it: (it.ravel()[:, None] >= levels).mean(0), scores)


def improvement(first: Scores, second: Scores) -> Interval:
    """How likely a run of the first is better than one of the second, on average over the problems; a tie is a half."""

    def compare(one: Scores, other: Scores) -> Any:
        differences = one[:, :, None] - other[:, None, :]
        return 0.5 * (1.0 + np.sign(differences)).mean()

    return stratified(compare, first, second)


def stratified(statistic: Statistic, *groups: Scores) -> Interval:
    """A statistic of one or more arrays of scores, and its interval."""
    tail, random = check_level(LEVEL), np.random.default_rng(0)

    def drawn(scores: Scores) -> Scores:
        places = random.integers(scores.shape[1], size=scores.shape)
        return np.take_along_axis(scores, places, 1)

    found = np.array([statistic(*map(drawn, groups)) for _ in range(RESAMPLES)], float)
    lower, upper = np.quantile(found, [tail, 1 - tail], axis=0)
    return Interval(np.asarray(statistic(*groups), float), lower, upper)

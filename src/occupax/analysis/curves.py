"""Learning curves: onto one grid, to one number a seed, and how such a number grows."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num

from occupax._errors import check_integer, check_number, read_array
from occupax.analysis.statistics import check_level


class Line(NamedTuple):
    """A line log y = intercept + slope * log x, with natural logarithms: y = exp(intercept) * x ** slope."""

    slope: float
    intercept: float
    lower: float
    upper: float
    """The upper bound of the confidence interval of the slope, as `lower` is the lower one."""


def on_grid(
    x: Num[np.ndarray, "*shared record"], values: Float[np.ndarray, "seed record"], grid: Num[np.ndarray, " point"]
) -> Float[np.ndarray, "seed point"]:
    """The last record that each seed has at each point of a grid, NaN before its first.

    A curve is a step function: it stays where it is until the next record, and after the last one. Nothing is invented
    between two records, and a seed that was stopped counts with what it had reached instead of being left out. Here
    and below, x is where the records are, such as `result.episodes`, the same for all, or `result.steps`, for each
    seed. Of several records at one place the last counts, and values that are NaN are no records.
    """
    known = np.where(np.isnan(values), -1, np.arange(values.shape[1]))
    latest = np.pad(np.maximum.accumulate(known, axis=1), ((0, 0), (1, 0)), constant_values=-1)
    result = np.full((len(values), len(grid)), np.nan)
    for i, places in enumerate(_places(x, values)):
        index = latest[i, np.searchsorted(places, grid, side="right")]
        result[i, index >= 0] = values[i, index[index >= 0]]
    return result


def trailing_average(
    x: Num[np.ndarray, " record"], values: Float[np.ndarray, "seed record"], span: int | float
) -> Float[np.ndarray, "seed record"]:
    """The mean over the last `span` units of x at each record, such as the last 50 episodes; what is NaN stays NaN.

    A record stands for all that lies between the record before it, or zero, and itself: with `x` the sampled episodes
    and `values` the mean return of those of each record, this is the mean over the last episodes, as if those of one
    record all had its mean. Before there is as much as `span`, it is the mean of what there is. Records that are NaN
    are left out.
    """
    check_number("span", span, low=0.0, open_low=True)
    if x.shape != values.shape[1:] or not (np.diff(x, prepend=0) > 0).all():
        raise ValueError(f"x must be {values.shape[1]} increasing numbers above 0, one a record, got {x!r:.60}.")
    ends, known, result = x.astype(float), ~np.isnan(values), np.full(values.shape, np.nan)
    starts = np.concatenate([[0.0], ends[:-1]])
    for i, end in enumerate(ends):
        first = int(np.searchsorted(ends, end - span, side="right"))
        part = slice(first, i + 1)
        shares = np.where(known[:, part], ends[part] - np.maximum(starts[part], end - span), 0.0)
        sums = (shares * np.where(known[:, part], values[:, part], 0.0)).sum(1)
        result[:, i] = np.where(known[:, i], sums / np.where(known[:, i], shares.sum(1), 1.0), np.nan)
    return result


def mean_over_grid(
    grid: Num[np.ndarray, " point"], curves: Float[np.ndarray, "*seed point"]
) -> Float[np.ndarray, "*seed"]:
    """The area under each curve divided by the width of the grid: the mean height of the curve.

    The curve is the step function of `on_grid`: each value counts from its point to the next, so the last does not. If
    every record between the ends is a point of the grid this is exact; trapezoids would anticipate what is recorded
    later. It is NaN for a curve that is NaN anywhere before the last point.
    """
    widths = np.diff(read_array("grid", grid))
    if not (len(widths) and (widths > 0).all()):
        raise ValueError(f"grid must be two or more increasing numbers, got {grid!r:.60}.")
    if curves.shape[-1] != len(grid):
        raise ValueError(f"curves must have {len(grid)} points as the grid has, got {curves.shape[-1]}.")
    with np.errstate(invalid="ignore"):  # infinities of both signs
        return np.asarray((np.asarray(curves, float)[..., :-1] * (widths / widths.sum())).sum(-1))


def time_to_threshold(
    x: Num[np.ndarray, "*shared record"], values: Float[np.ndarray, "seed record"], threshold: float, window: int = 1
) -> Float[np.ndarray, " seed"]:
    """Where each seed first reaches a threshold; infinity if it never does.

    Infinity is a number that is larger than all others, so that medians over seeds, and `bootstrap` of them, remain
    meaningful: finite as long as more than half of the seeds arrive.

    Args:
        x: where the records are.
        values: the records, the larger the better.
        threshold: what to reach. To fall below one, change the sign of the values and of the threshold.
        window: the mean of so many successive records must reach it, all of them known; the last of them is when it
            does. (`moving_average` looks ahead, and would see success before it comes.)
    """
    window, places = check_integer("window", window), _places(x, values)
    if np.isnan(threshold):
        raise ValueError(f"threshold must be a number, got {threshold!r}.")
    if window > values.shape[1]:
        raise ValueError(f"window must be at most {values.shape[1]}, the number of records, got {window}.")
    with np.errstate(invalid="ignore"):  # infinities of both signs
        means = np.lib.stride_tricks.sliding_window_view(np.asarray(values, float), window, axis=1).mean(-1)
    return np.where(means >= threshold, places[:, window - 1 :], np.inf).min(1)


def log_log_line(x: Num[np.ndarray, " point"], y: Num[np.ndarray, " point"], *, level: float = 0.95) -> Line:
    """The least-squares line through (log x, log y), and a confidence interval of its slope at a level of confidence.

    The interval is Student's, with n - 2 degrees of freedom: right if the errors of log y are independent and normal,
    with one variance.
    """
    from scipy import stats

    tail, found = check_level(level), {"x": read_array("x", x), "y": read_array("y", y)}
    if found["x"].ndim != 1 or len(found["x"]) < 3 or found["x"].shape != found["y"].shape:
        raise ValueError(f"x and y must be three or more numbers each, got shapes {x.shape} and {y.shape}.")
    for name, numbers in found.items():
        if numbers.min() <= 0:
            raise ValueError(f"{name} must be positive to have a logarithm, got {numbers.min()}.")
    if found["x"].min() == found["x"].max():
        raise ValueError(f"x must have two or more different numbers, got {found['x'][0]} only.")
    line = stats.linregress(np.log(found["x"]), np.log(found["y"]))
    margin = -stats.t.ppf(tail, len(x) - 2) * line.stderr
    return Line(*map(float, (line.slope, line.intercept, line.slope - margin, line.slope + margin)))


def _places(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where the records of each seed are, [seed, record]."""
    if x.shape not in (values.shape, values.shape[1:]):
        raise ValueError(f"x must have shape {values.shape} as values or {values.shape[1:]}, got {x.shape}.")
    wrong = np.argwhere(~(x[..., 1:] >= x[..., :-1]))  # NaN is wrong too
    if len(wrong):
        *seed, record = wrong[0].tolist()
        line = x[tuple(seed)]
        raise ValueError(f"x must not decrease from record to record, got {line[record]} before {line[record + 1]}.")
    return np.broadcast_to(x, values.shape)

"""Statistics over seeds and records. A seed that was stopped is NaN from then on, and is left out."""

import numpy as np
from jaxtyping import Float

from occupax._errors import check_integer

Records = Float[np.ndarray, " record"]


def quartiles(values: Float[np.ndarray, "seed record"]) -> tuple[Records, Records, Records]:
    """The lower quartile, the median and the upper quartile over the seeds, for each record.

    Quantiles between two seeds are interpolated linearly. A record that no seed has is NaN.
    """
    known = ~np.isnan(values).all(0)
    result = np.full((3, values.shape[1]), np.nan)
    with np.errstate(invalid="ignore"):  # a utility may be infinite, and then nothing lies in between
        result[:, known] = np.nanquantile(np.asarray(values[:, known], float), [0.25, 0.5, 0.75], axis=0)
    return result[0], result[1], result[2]


def moving_average(values: Float[np.ndarray, "seed record"], window: int) -> Float[np.ndarray, "seed record"]:
    """The mean of the records around each record, of those there are; what is NaN stays NaN.

    Args:
        values: one line of records for each seed.
        window: how many records, the middle one included; an even number has one more before it than after.
    """
    window = check_integer("window", window)
    known = ~np.isnan(values)

    def sums(entries: np.ndarray) -> np.ndarray:
        # not by differences of running sums, in which one huge importance weight would swallow all later records
        padded = np.pad(entries, ((0, 0), (window // 2, (window - 1) // 2)))
        return np.lib.stride_tricks.sliding_window_view(padded, window, axis=1).sum(-1)

    with np.errstate(invalid="ignore"):
        means = sums(np.where(known, values, 0.0).astype(float)) / np.maximum(sums(known.astype(float)), 1.0)
    return np.where(known, means, np.nan)

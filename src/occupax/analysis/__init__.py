"""What training came to: statistics over seeds, comparisons, figures, and a page to read."""

from occupax.analysis.curves import Line, log_log_line, mean_over_grid, on_grid, time_to_threshold, trailing_average
from occupax.analysis.metrics import plot_metric
from occupax.analysis.report import write_report
from occupax.analysis.statistics import (
    Interval,
    bootstrap,
    bootstrap_difference,
    interquartile_mean,
    moving_average,
    quartiles,
)

__all__ = [
    "Interval",
    "Line",
    "bootstrap",
    "bootstrap_difference",
    "interquartile_mean",
    "log_log_line",
    "mean_over_grid",
    "moving_average",
    "on_grid",
    "plot_metric",
    "quartiles",
    "time_to_threshold",
    "trailing_average",
    "write_report",
]

"""What training came to: statistics over seeds, comparisons, figures, and a page to read.

Numbers:

* `statistics`: quartiles, interquartile means, moving averages and bootstrap intervals over seeds.
* `curves`: learning curves on one grid, the time to a threshold, and lines through powers.

Figures:

* `charts`: what a figure shows, as data.
* `plots`: charts as Matplotlib figures and as files.
* `metrics`: the chart of a metric that a run recorded.
* `visits`: maps of the states that a policy visits.

The report:

* `report`: the page about training runs.
* `comparison`: the part of it that compares several runs.
* `describe`: the configuration of a run in words.
* `words`: the names and meanings of the recorded numbers.
* `page/`: how a page of HTML is made: templates, style, script and drawings.
"""

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

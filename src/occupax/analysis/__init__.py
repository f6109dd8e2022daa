"""Analysis of training runs: statistics over seeds, comparisons, figures and reports.

* `statistics`: quartiles, averages and bootstrap intervals over seeds, and learning curves on one
  grid.
* `charts`: what a figure shows, as data.
* `plots`: charts as Matplotlib figures and as files.
* `describe`: the configuration and the metrics of a run in words, and the charts of its metrics.
* `verdict`: how good the policies of a run are, in a sentence; `diagnosis`: what went wrong, from
  `evidence`.
* `visits`: maps of the states that a policy visits.
* `report`: the page about training runs; `comparison`: how several of them compare.
* `page/`: how a page of HTML is made: templates, style, script and drawings.
"""

from occupax.analysis.describe import plot_metric
from occupax.analysis.report import write_report
from occupax.analysis.statistics import (
    Interval,
    Line,
    bootstrap,
    bootstrap_difference,
    interquartile_mean,
    log_log_line,
    mean_over_grid,
    moving_average,
    on_grid,
    quartiles,
    time_to_threshold,
    trailing_average,
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

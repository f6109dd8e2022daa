"""What training came to: statistics over seeds, figures, and a page to read."""

from occupax.analysis.plots import plot_metric
from occupax.analysis.report import write_report
from occupax.analysis.statistics import moving_average, quartiles

__all__ = ["moving_average", "plot_metric", "quartiles", "write_report"]

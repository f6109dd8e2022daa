"""The experiments of the paper's section 6, and the verdict on each of its claims.

- `tasks`: the environments and utilities, and how success is measured.
- `methods`: the algorithms, with the settings that are printed and those that a search found.
- `tuning`: that search.
- `cells`: one method on one task with one setting, at a scale: training, the curves, and the file they are kept in.
- `progress`: a bar over all the training.
- `reward`: section 6.1, the cumulative reward.
- `rate`: section 6.2, the rate of convergence.
- `utility`: section 6.3, a utility that is not linear.
- `ablations`: one ingredient at a time.
- `sections`: claims, verdicts and tables, with the words of `report.toml`.
- `views`: figures, tables and sections that several experiments share.
- `reproduction`: all of it, one after the other, and the report: a page, Markdown and CSV.
"""

from occupax.experiments.reproduction import reproduce

__all__ = ["reproduce"]

"""The experiments of the paper's section 6, and the verdict on each of its claims.

What is run:

- `tasks`: the environments and utilities of the paper; `small`: small problems with an optimum
  inside, and ascent along their exact gradients.
- `methods`: the algorithms with the settings that are printed; `maxent`: MaxEnt in its readings.
- `scale`: how much of everything; `judges`: who says what a policy is worth; `cells`: one method on
  one task with one setting; `tuning`: the search for settings.
- `store`, `progress`: work that is kept in files, and a bar over all of it.

One file for each part:

- `reward`: section 6.1, the cumulative reward; `readings`: what the paper leaves open there, and
  controls.
- `rate`: section 6.2, the paper's curve; `convergence`: the rate where the theorem applies;
  `episodes_to_gap`: the episodes that a gap takes.
- `utility`: section 6.3, a utility that is not linear; `ablations`: one ingredient at a time.

What is said of it:

- `inference`: intervals and tests; `sections`: claims, verdicts and tables, with the words and
  rules of `report.toml`; `figures`: curves and tables that several parts share; `opening`: the
  sentences at the head.
- `reproduction`: all of it, one after the other, and the report: a page, Markdown and CSV.
"""

from occupax.experiments.reproduction import reproduce

__all__ = ["reproduce"]

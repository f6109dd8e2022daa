"""Experiments of the paper's section 6, and a verdict on each of its claims.

Runs:

- `tasks`: environments and utilities of the paper. `small`: small problems with an interior
  optimum, and exact ascent on them.
- `methods`: algorithms with the printed hyperparameters. `maxent`: MaxEnt in its readings.
- `scale`: fraction of everything that is run. `evaluators`: performance during training. `cells`:
  one method on one task. `tuning`: search for hyperparameters.

Parts:

- `reward`: section 6.1, the cumulative reward. `readings`: open choices there, and controls.
- `rate`: section 6.2, the paper's curve. `convergence`: the rate where the theorem applies.
  `episodes_to_gap`: episodes to a given gap.
- `utility`: section 6.3, a utility that is not linear. `ablations`: one ingredient at a time.

Report:

- `inference`: intervals and tests. `sections`: claims, verdicts and tables, with the words and
  rules of `report.toml`. `figures`: shared curves and tables. `opening`: the first sentences.
- `reproduction`: all parts one after the other, and the report.
"""

from occupax.experiments.reproduction import reproduce

__all__ = ["reproduce"]

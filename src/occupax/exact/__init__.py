"""Ground truth for tabular problems, in float64: occupancies, values, gradients, optima and certificates.

- `dynamics`: where each state and action leads, and what it counts.
- `planning`: the best policy for a reward.
- `evaluation`: occupancy, value, gradient and certificate of a policy, or of many at once.
- `optimum`: the best policy for a concave utility, by Frank-Wolfe or, in `conic`, by a conic solver.
"""

from occupax.exact.evaluation import Certificate, Evaluator, certificate, feature_occupancy, gradient, occupancy, value
from occupax.exact.optimum import Optimum, solve
from occupax.exact.planning import BestResponse, value_iteration

__all__ = [
    "BestResponse",
    "Certificate",
    "Evaluator",
    "Optimum",
    "certificate",
    "feature_occupancy",
    "gradient",
    "occupancy",
    "solve",
    "value",
    "value_iteration",
]

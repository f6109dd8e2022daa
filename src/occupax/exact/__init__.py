"""Ground truth for tabular problems, in float64: occupancies, values, gradients, optima and certificates.

- `dynamics`: where each state and action leads, what it counts, and the best policy for a reward.
- `evaluation`: occupancy, value, gradient and certificate of a policy, or of many at once.
- `optimum`: the best policy for a concave utility, by Frank-Wolfe or, in `conic`, by a conic solver.
"""

from occupax.exact.dynamics import BestResponse, value_iteration
from occupax.exact.evaluation import Certificate, Evaluator, certificate, feature_occupancy, gradient, occupancy, value
from occupax.exact.optimum import Optimum, solve

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

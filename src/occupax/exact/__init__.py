"""Ground truth for tabular problems, in float64: occupancies, values, gradients, optima and certificates.

- `dynamics`: where each state and action leads, and what it counts.
- `evaluation`: occupancy, value and gradient of a policy.
- `evaluator`: values and gaps of many policies at once.
- `planning`: the best policy for a reward.
- `certificates`: how far a policy is at most from the best one.
- `optimum`: the best policy for a concave utility, by `frank_wolfe` or `conic`.
"""

from occupax.exact.certificates import Certificate, certificate
from occupax.exact.evaluation import feature_occupancy, gradient, occupancy, value
from occupax.exact.evaluator import Evaluator
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

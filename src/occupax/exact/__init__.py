"""Ground truth in float64 for tabular problems: occupancies, gradients, optima and certificates.

`lqr` has values, gradients and the optimum of linear systems with quadratic costs.
"""

from occupax.exact import evaluation, lqr
from occupax.exact.evaluation import (
    Certificate,
    Evaluator,
    certificate,
    feature_occupancy,
    gradient,
    occupancy,
    value,
)
from occupax.exact.optimum import Optimum, solve
from occupax.exact.returns import BestResponse, value_iteration
from occupax.exact.verification import verify

__all__ = [
    "BestResponse",
    "Certificate",
    "Evaluator",
    "Optimum",
    "certificate",
    "evaluation",
    "feature_occupancy",
    "gradient",
    "lqr",
    "occupancy",
    "solve",
    "value",
    "value_iteration",
    "verify",
]

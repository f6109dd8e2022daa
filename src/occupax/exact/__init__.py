"""Ground truth for tabular problems, in float64: occupancies, values, gradients, optima and certificates."""

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

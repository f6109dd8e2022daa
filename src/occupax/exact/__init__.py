"""Ground truth for tabular problems, in float64: occupancies, values, gradients, optima and certificates."""

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

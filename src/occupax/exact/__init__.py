"""Ground truth for tabular problems, in float64: occupancies, values, gradients, optima and certificates."""

from occupax.exact.certificate import Certificate, certificate
from occupax.exact.evaluation import feature_occupancy, gradient, occupancy, value
from occupax.exact.optimum import Optimum, solve
from occupax.exact.planning import Plan, value_iteration

__all__ = [
    "Certificate",
    "Optimum",
    "Plan",
    "certificate",
    "feature_occupancy",
    "gradient",
    "occupancy",
    "solve",
    "value",
    "value_iteration",
]

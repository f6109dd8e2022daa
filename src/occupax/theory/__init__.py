"""The constants, step sizes and sample counts of the theory of TSIVR-PG, as a calculator.

The source is Zhang, Ni, Yu, Szepesvari and Wang, "On the Convergence and Sample Efficiency of Variance-Reduced Policy
Gradient Method"; each docstring names the lemma or theorem by its label there. Where the constants printed in the paper
do not follow from its own proofs, the corrected ones are used and the docstring says so.
"""

from occupax.theory.constants import TABULAR_SOFTMAX, Constants, occupancy_smoothness, problem_constants
from occupax.theory.theorems import (
    Plan,
    Prescription,
    VarianceConstants,
    gradient_bound,
    gradient_mapping,
    horizon,
    occupancy_lipschitz,
    plan,
    radius,
    smoothness_theta,
    step_size_global,
    step_size_stationary,
    variance_constants,
    weight_bound,
    weight_variance,
)

__all__ = [
    "TABULAR_SOFTMAX",
    "Constants",
    "Plan",
    "Prescription",
    "VarianceConstants",
    "gradient_bound",
    "gradient_mapping",
    "horizon",
    "occupancy_lipschitz",
    "occupancy_smoothness",
    "plan",
    "problem_constants",
    "radius",
    "smoothness_theta",
    "step_size_global",
    "step_size_stationary",
    "variance_constants",
    "weight_bound",
    "weight_variance",
]

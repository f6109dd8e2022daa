"""What is maximised: utilities of the occupancy, and the convex sets for constraints."""

from occupax.utilities.base import Smoothness, Sum, Utility
from occupax.utilities.custom import Custom, as_utility, check
from occupax.utilities.library import UTILITIES, Entropy, Linear, LogCoverage, Reward, SetDistance, Total
from occupax.utilities.sets import Ball, Box, ConvexSet, Halfspace, Point, Polyhedron

__all__ = [
    "UTILITIES",
    "Ball",
    "Box",
    "ConvexSet",
    "Custom",
    "Entropy",
    "Halfspace",
    "Linear",
    "LogCoverage",
    "Point",
    "Polyhedron",
    "Reward",
    "SetDistance",
    "Smoothness",
    "Sum",
    "Total",
    "Utility",
    "as_utility",
    "check",
]

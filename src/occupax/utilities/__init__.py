"""What is maximised: utilities of the occupancy, and the convex sets for constraints."""

from occupax.utilities.base import Smoothness, Sum, Utility
from occupax.utilities.custom import OF_SOMETHING, Custom, as_utility, check
from occupax.utilities.library import (
    UTILITIES,
    Entropy,
    Linear,
    LogCoverage,
    Reward,
    SetDistance,
    Total,
)
from occupax.utilities.sets import Ball, Box, ConvexSet, Halfspace, Point, Polyhedron
from occupax.utilities.several import LogDet, NashWelfare, SoftMin
from occupax.utilities.targets import KL, ForwardKL

__all__ = [
    "KL",
    "OF_SOMETHING",
    "UTILITIES",
    "Ball",
    "Box",
    "ConvexSet",
    "Custom",
    "Entropy",
    "ForwardKL",
    "Halfspace",
    "Linear",
    "LogCoverage",
    "LogDet",
    "NashWelfare",
    "Point",
    "Polyhedron",
    "Reward",
    "SetDistance",
    "Smoothness",
    "SoftMin",
    "Sum",
    "Total",
    "Utility",
    "as_utility",
    "check",
]

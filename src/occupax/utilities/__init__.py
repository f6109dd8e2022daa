"""Utilities of the occupancy, and convex sets for `SetDistance`."""

from occupax.utilities.base import ConicForm, Custom, NoConicFormError, Smoothness, Sum, Utility
from occupax.utilities.checks import check
from occupax.utilities.library import (
    Entropy,
    Linear,
    LogCoverage,
    Reward,
    SetDistance,
    Total,
)
from occupax.utilities.names import OF_SOMETHING, UTILITIES, as_utility
from occupax.utilities.sets import Ball, Box, ConvexSet, Halfspace, Point, Polyhedron
from occupax.utilities.several import LogDet, NashWelfare, SoftMin
from occupax.utilities.targets import KL, ForwardKL

__all__ = [
    "KL",
    "OF_SOMETHING",
    "UTILITIES",
    "Ball",
    "Box",
    "ConicForm",
    "ConvexSet",
    "Custom",
    "Entropy",
    "ForwardKL",
    "Halfspace",
    "Linear",
    "LogCoverage",
    "LogDet",
    "NashWelfare",
    "NoConicFormError",
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

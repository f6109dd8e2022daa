"""Occupax optimises any smooth function of what a policy visits."""

from occupax import envs, estimators, exact, features, policies, theory, utilities
from occupax.batch import Trajectories
from occupax.envs import TabularMDP, make
from occupax.exact import solve
from occupax.problem import Problem
from occupax.samplers import sample

__version__ = "0.1.0"

__all__ = [
    "Problem",
    "TabularMDP",
    "Trajectories",
    "envs",
    "estimators",
    "exact",
    "features",
    "make",
    "policies",
    "sample",
    "solve",
    "theory",
    "utilities",
]

"""Occupax optimises any smooth function of what a policy visits."""

from occupax import algorithms, envs, estimators, exact, features, policies, theory, utilities
from occupax.algorithms import HSPGA, REINFORCE, SRVRPG, SVRPG, TSIVRPG, MaxEnt
from occupax.batch import Batch, Trajectories
from occupax.envs import TabularMDP, make
from occupax.exact import solve
from occupax.problem import Problem
from occupax.samplers import SampledBatch, sample

__version__ = "0.1.0"

__all__ = [
    "HSPGA",
    "REINFORCE",
    "SRVRPG",
    "SVRPG",
    "TSIVRPG",
    "Batch",
    "MaxEnt",
    "Problem",
    "SampledBatch",
    "TabularMDP",
    "Trajectories",
    "algorithms",
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

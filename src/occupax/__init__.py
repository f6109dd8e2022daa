"""Occupax optimises any smooth function of what a policy visits."""

from occupax import algorithms, envs, estimators, exact, features, policies, samplers, theory, training, utilities
from occupax.algorithms import HSPGA, REINFORCE, SRVRPG, SVRPG, TSIVRPG, MaxEnt
from occupax.batch import Batch, Trajectories
from occupax.envs import GymnasiumEnv, TabularMDP, check_env, make
from occupax.exact import solve
from occupax.problem import Problem
from occupax.samplers import SampledBatch, sample
from occupax.training import Result, Sweep, evaluate, load_policy, load_result, save_policy, sweep, train

__version__ = "0.2.0.dev0"

__all__ = [
    "HSPGA",
    "REINFORCE",
    "SRVRPG",
    "SVRPG",
    "TSIVRPG",
    "Batch",
    "GymnasiumEnv",
    "MaxEnt",
    "Problem",
    "Result",
    "SampledBatch",
    "Sweep",
    "TabularMDP",
    "Trajectories",
    "algorithms",
    "check_env",
    "envs",
    "estimators",
    "evaluate",
    "exact",
    "features",
    "load_policy",
    "load_result",
    "make",
    "policies",
    "sample",
    "samplers",
    "save_policy",
    "solve",
    "sweep",
    "theory",
    "train",
    "training",
    "utilities",
]

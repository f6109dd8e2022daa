"""Occupax optimises any smooth function of what a policy visits."""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from occupax import (
    algorithms,
    envs,
    estimators,
    exact,
    features,
    plot,
    policies,
    samplers,
    theory,
    training,
    utilities,
)
from occupax.algorithms import (
    HSPGA,
    NHARPG,
    NVRPG,
    PAGE,
    PPO,
    REINFORCE,
    SRVRPG,
    STORM,
    SVRPG,
    TSIVRPG,
    MaxEnt,
    PlugIn,
)
from occupax.api import (
    Result,
    Sweep,
    evaluate,
    load_policy,
    load_result,
    record,
    save_policy,
    sweep,
    train,
)
from occupax.batches import Batch, Query, SampledBatch
from occupax.constraints import Constraint
from occupax.demonstrations import demonstrations
from occupax.envs import GymnasiumEnv, TabularMDP, check_env, from_gymnax, make
from occupax.exact import solve
from occupax.problem import Problem
from occupax.samplers import sample
from occupax.trajectories import Trajectories

if TYPE_CHECKING:
    from occupax import bench

__version__ = metadata.version("occupax")

__all__ = [
    "HSPGA",
    "NHARPG",
    "NVRPG",
    "PAGE",
    "PPO",
    "REINFORCE",
    "SRVRPG",
    "STORM",
    "SVRPG",
    "TSIVRPG",
    "Batch",
    "Constraint",
    "GymnasiumEnv",
    "MaxEnt",
    "PlugIn",
    "Problem",
    "Query",
    "Result",
    "SampledBatch",
    "Sweep",
    "TabularMDP",
    "Trajectories",
    "algorithms",
    "bench",
    "check_env",
    "demonstrations",
    "envs",
    "estimators",
    "evaluate",
    "exact",
    "features",
    "from_gymnax",
    "load_policy",
    "load_result",
    "make",
    "plot",
    "policies",
    "record",
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


def __getattr__(name: str) -> Any:
    """Import `occupax.bench` when it is asked for: few need it, and it takes a while."""
    if name == "bench":
        return import_module("occupax.bench")
    raise AttributeError(f"module 'occupax' has no attribute {name!r}")

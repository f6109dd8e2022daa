"""Which sampler is used for what."""

import warnings
from typing import Literal, get_args

import jax

from occupax import kernels
from occupax._errors import unknown
from occupax.envs.tabular import TabularMDP
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.samplers.base import Sampler
from occupax.samplers.compiled import CompiledSampler
from occupax.samplers.device import DeviceSampler
from occupax.samplers.network import NetworkSampler, fits

Engine = Literal["auto", "compiled", "jax"]


def choose_engine(problem: Problem, policy: Policy, engine: Engine = "auto") -> Engine:
    """The engine that "auto" stands for: the compiled one where it can be used."""
    if engine not in get_args(Engine):
        raise unknown("engine", engine, get_args(Engine))
    fitting = (_is_table(problem, policy) or fits(policy)) and jax.default_backend() == "cpu"
    if engine == "jax" or (engine == "auto" and not fitting):
        return "jax"
    if not fitting:
        raise ValueError(
            "engine 'compiled' is for tabular environments with tabular policies and for networks of tanh layers fed "
            "with vectors, on the CPU."
        )
    reason = kernels.missing()
    if not reason:
        return "compiled"
    if engine == "compiled":
        raise ValueError(f"the compiled kernel cannot be used: {reason}.")
    warnings.warn(f"the compiled kernel is not used, and plain JAX is slower: {reason}.", stacklevel=2)
    return "jax"


def make_sampler(problem: Problem, policy: Policy, engine: Engine = "auto") -> Sampler:
    """The sampler of an engine, for policies like this one."""
    if choose_engine(problem, policy, engine) == "jax":
        return DeviceSampler(problem)
    return CompiledSampler(problem) if _is_table(problem, policy) else NetworkSampler(problem)


def _is_table(problem: Problem, policy: Policy) -> bool:
    return isinstance(problem.env, TabularMDP) and type(policy) is Tabular

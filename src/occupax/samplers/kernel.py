"""Sampling by the compiled kernels: tables and networks, in C++."""

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import jax

from occupax import kernels
from occupax.envs.tabular import TabularMDP
from occupax.errors import OccupaxWarning, unknown
from occupax.policies import Policy, Tabular, dense_layers
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource, Sampler
from occupax.samplers.network_kernel import NetworkKernelSource
from occupax.samplers.plain import Jax
from occupax.samplers.tabular_kernel import TabularKernelSource

Engine = Literal["auto", "kernel", "jax"]
"""What computes inside a program: the kernels, plain JAX, or the first of these that can be
used."""


@dataclass(frozen=True)
class Kernel(Sampler):
    """Samples with the compiled kernels, inside the compiled program, on the CPU.

    One is for tabular environments and policies, the other for networks of tanh layers fed with
    vectors.
    """

    def open(self, problem: Problem, policy: Policy) -> ProgramSource:
        """Open a source; a kernel that cannot be used is refused with the reason."""
        reason = _unfit(problem, policy) or kernels.missing()
        if reason:
            raise ValueError(f"the compiled kernel cannot be used: {reason}.")
        return (
            TabularKernelSource(problem)
            if _is_table(problem, policy)
            else NetworkKernelSource(problem)
        )

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Those of the kernels, which are counted by trajectory and step."""
        return "kernel"


def program_sampler(problem: Problem, policy: Policy, engine: Engine = "auto") -> Jax | Kernel:
    """The sampler inside a program that an engine stands for: "auto" is the kernel where it can be used."""
    if engine not in get_args(Engine):
        raise unknown("engine", engine, get_args(Engine))
    if engine == "kernel":
        Kernel().open(problem, policy)
        return Kernel()
    if engine == "jax" or _unfit(problem, policy):
        return Jax()
    reason = kernels.missing()
    if reason:
        said = f"the compiled kernel is not used, and plain JAX is slower: {reason}."
        warnings.warn(said, OccupaxWarning, stacklevel=2)
        return Jax()
    return Kernel()


def _unfit(problem: Problem, policy: Policy) -> str:
    """Why the kernels do not know such a problem; an empty text if they do."""
    if jax.default_backend() != "cpu":
        return "it runs on the CPU only"
    if _is_table(problem, policy) or dense_layers(policy) is not None:
        return ""
    return (
        "it is for tabular environments with tabular policies and for networks of tanh layers fed with vectors, got "
        f"{type(problem.env).__name__} and {type(policy).__name__}"
    )


def _is_table(problem: Problem, policy: Policy) -> bool:
    return isinstance(problem.env, TabularMDP) and type(policy) is Tabular

"""Sources of batches for tests."""

from typing import Any

import occupax as ox
from occupax.samplers.kernel import program_sampler
from occupax.samplers.program import ProgramSource


def source_of(
    problem: ox.Problem, policy: ox.policies.Policy, engine: Any = "auto"
) -> ProgramSource:
    """A source inside a program, for policies like this one."""
    return program_sampler(problem, policy, engine).open(problem, policy)

"""Execution of iterations.

* `iteration`: one iteration of one run, and its metrics.
* `multipliers`: multipliers of the constraints.
* `executor`: base class of the executors of all runs of a set-up.
* `compiled`: runs inside one compiled program.
* `eager`: runs outside compiled programs.
"""

from typing import Any

from occupax.samplers.base import Source
from occupax.samplers.program import ProgramSource
from occupax.training.execution.compiled import MAX_ITERATIONS, CompiledExecutor
from occupax.training.execution.eager import EagerExecutor
from occupax.training.execution.executor import Executor, Form
from occupax.training.setup import Setup

__all__ = ["MAX_ITERATIONS", "Executor", "Form", "make_executor"]


def make_executor(setup: Setup) -> Executor:
    """Return the executor of a set-up before the first iteration, compiled if the source can be."""
    source: Any = setup.sampler.open(setup.problem, setup.policies[0])
    if isinstance(source, ProgramSource):
        return CompiledExecutor(setup, source)
    if isinstance(source, Source):
        return EagerExecutor(setup, source)
    raise ValueError(
        f"open of {type(setup.sampler).__name__} must return a Source of batches, "
        f"got {source!r:.60}."
    )

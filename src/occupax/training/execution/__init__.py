"""How iterations are carried out.

* `iteration`: one iteration of one run: what a batch makes of it, and what is recorded.
* `executor`: all runs of a set-up, side by side: the abstract class, and runs outside of a compiled
  program.
* `program`, `compiled`: runs inside one compiled program.
"""

from typing import Any

from occupax.samplers.base import ProgramSource, Source
from occupax.training.execution.compiled import CompiledExecutor
from occupax.training.execution.executor import EagerExecutor, Executor, Form
from occupax.training.setup import Setup

__all__ = ["Executor", "Form", "make_executor"]


def make_executor(setup: Setup) -> Executor:
    """Put every run of a set-up before its first iteration, inside the compiled program if the sampler can be."""
    source: Any = setup.sampler.open(setup.problem, setup.policies[0])
    if not isinstance(source, Source):
        raise ValueError(
            f"open of {type(setup.sampler).__name__} must return a Source of batches, got {source!r:.60}."
        )
    return (
        CompiledExecutor(setup, source)
        if isinstance(source, ProgramSource)
        else EagerExecutor(setup, source)
    )

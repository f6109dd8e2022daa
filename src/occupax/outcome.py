"""Data of a finished training run: metrics, policies, their evaluation and diagnostics."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax.algorithms import Algorithm
from occupax.policies import Policy
from occupax.problem import Problem


class Finding(NamedTuple):
    """Diagnosed fault of a training run. docs/diagnosis.md has a section for each kind."""

    kind: str
    """A short name such as "no-progress"."""
    sentence: str
    """The observation, with its numbers."""
    advice: str
    """The remedy."""


@dataclass(frozen=True)
class References:
    """Utilities of other policies of a problem. None where a utility is unknown."""

    first: float
    """Utility of the initial policy of the first seed: exact for a table, otherwise an estimate."""
    uniform: float | None = None
    """Utility of the uniform policy, on a table."""
    optimum: float | None = None
    """Utility of the optimal policy, if a few seconds suffice to solve the problem. With a horizon
    the policy may depend on time."""
    gap: float | None = None
    """Certified optimality gap of `optimum`."""

    @property
    def way(self) -> float:
        """Difference between optimum and uniform policy. NaN if unknown or not positive."""
        if self.optimum is None or self.uniform is None or self.gap is None:
            return math.nan
        difference = self.optimum - self.uniform
        if difference > self.gap:
            return difference
        return math.nan

    def share(self, value: float) -> float:
        """Return the normalised score of a utility: 0 for the uniform policy, 1 for the optimum."""
        if self.uniform is None:
            return math.nan
        return (value - self.uniform) / self.way


@dataclass(frozen=True)
class Assessment:
    """Evaluation of the policies of all seeds."""

    utilities: Float[np.ndarray, " seed"]
    """The utility of each policy. NaN if its parameters are not finite."""
    source: str
    """The origin of the utilities: "exact", or "estimate from ... new episodes"."""
    gaps: Float[np.ndarray, " seed"] | None = None
    """The certified optimality gap of each policy, for a concave utility on a table."""
    reason: str = ""
    """The reason for missing gaps, if their computation failed."""
    visits: Float[np.ndarray, "seed S"] | None = None
    """The exact discounted visits of each state of a table, or the estimated visits of each cell of
    a grid of observations."""
    excesses: Float[np.ndarray, "seed K"] | None = None
    """The violation of each constraint by each policy. Negative where there is slack."""
    references: References | None = None
    """Utilities of other policies."""


@dataclass(frozen=True, repr=False)
class Outcome:
    """Metrics and policies of the seeds of a training run."""

    problem: Problem | None
    """The problem. None if a file does not restore the problem."""
    algorithm: Algorithm[Any] | None
    """Algorithm with its hyperparameters. None if a file does not restore the algorithm."""
    seeds: tuple[int, ...]
    """Seed of each run."""
    episodes: Int[np.ndarray, " record"]
    """Trajectories that each seed had sampled at each record."""
    steps: Int[np.ndarray, "seed record"]
    """Environment steps that each seed had taken."""
    metrics: dict[str, Float[np.ndarray, "seed record"]]
    """Logged metrics by name. docs/diagnosis.md explains each metric."""
    policies: tuple[Policy, ...]
    """The trained policy of each seed."""
    status: tuple[str, ...]
    """"finished", or the reason why a seed was stopped."""
    seconds: float
    """Duration of the training."""
    config: dict[str, Any]
    """The content of `config.json`."""
    arrays: dict[str, np.ndarray]
    """The arrays of `config.json`."""
    initial_policy: Policy | None = None
    """The initial policy of the first seed."""
    models: tuple[Any, ...] = ()
    """The learned model of the environment of each seed. None for most algorithms."""
    saved_assessment: Assessment | None = None
    """The evaluation of the policies, if the run was loaded from a file."""
    saved_diagnosis: tuple[Finding, ...] | None = None
    """The diagnosis, if the run was loaded from a file."""

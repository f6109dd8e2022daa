"""Environments and utilities of the paper's section 6."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from occupax import exact, policies, utilities
from occupax.envs import make
from occupax.envs.tabular import TabularMDP
from occupax.experiments.sections import text
from occupax.problem import Problem, Termination

LAKE = "FrozenLake8x8"
CARTPOLE = "CartPole-v0"
ACROBOT = "Acrobot-v1"
COVERAGE = "Log coverage"
ABSORBING = "Log coverage (absorbing)"
SIGMA = 0.125
NEARLY = 0.9
"""Normalised score that counts as nearly optimal, where the optimum is known."""


@dataclass(frozen=True)
class Task:
    """Problem with a budget, and the threshold from which it counts as solved."""

    name: str
    problem: Problem
    episodes: int = 0
    seeds: int = 1
    snapshots: tuple[int, ...] = ()
    """Sizes N of snapshots that the search tries."""
    step_sizes: tuple[float, float] = (0.0, 0.0)
    """Range in which the search begins. It leaves the range if the best is at its edge."""
    fixed_threshold: float | None = None
    """Threshold, by default the normalised score `NEARLY`."""

    @property
    def policy(self) -> policies.Initialiser:
        """Initial policy: a table with the scale of a linear layer of 64 inputs, or a network."""
        if self.tabular:
            return policies.tabular(scale=0.125 / np.sqrt(3))
        return policies.mlp(scale=1.0, normalise=False)

    @property
    def tabular(self) -> bool:
        """Whether policies are evaluated by their exact utility, not by episodes."""
        return isinstance(self.problem.env, TabularMDP)

    @property
    def unit(self) -> str:
        """Axis label of the performance."""
        if self.tabular:
            return text("units", "exact")
        return text("units", "evaluation")

    @cached_property
    def optimum(self) -> float:
        """Best value of any policy within the horizon, policies that depend on time included."""
        return exact.solve(self.problem, tolerance=1e-5, progress=False).value

    @cached_property
    def uniform(self) -> float:
        """Value of the uniform policy."""
        env: Any = self.problem.env
        probs = np.full((env.num_states, env.num_actions), 1 / env.num_actions)
        return exact.value(self.problem, probs)

    @cached_property
    def threshold(self) -> float:
        """Performance from which the task counts as solved."""
        if self.fixed_threshold is not None:
            return self.fixed_threshold
        return self.uniform + NEARLY * (self.optimum - self.uniform)

    def normalised(self, value: float) -> str:
        """Return the normalised score of a value as a percentage."""
        return f"{(value - self.uniform) / (self.optimum - self.uniform):.0%}"


@cache
def tasks() -> dict[str, Task]:
    """Return all tasks by name. The episodes are those of the tuned hyperparameters."""
    lake = make("FrozenLake8x8-v1")
    tasks_in_order = (
        Task(
            LAKE,
            Problem(lake, None, 0.99, 200),
            episodes=300_000,
            seeds=10,
            snapshots=(25, 100),
            step_sizes=(1e-2, 1e2),
        ),
        Task(
            CARTPOLE,
            Problem(make("CartPole-v0"), None, 0.99, 200),
            episodes=4_000,
            seeds=10,
            snapshots=(10, 25),
            step_sizes=(1e-4, 1e-1),
            fixed_threshold=195.0,
        ),
        Task(
            ACROBOT,
            Problem(make("Acrobot-v1"), None, 0.999, 500),
            episodes=2_000,
            seeds=10,
            snapshots=(100,),
            step_sizes=(1e-4, 1e-1),
            fixed_threshold=-100.0,
        ),
        _coverage_task(COVERAGE, lake, "episodic"),
        _coverage_task(ABSORBING, lake, "absorbing"),
    )
    return {task.name: task for task in tasks_in_order}


def _coverage_task(name: str, lake: Any, termination: Termination) -> Task:
    return Task(
        name,
        Problem(lake, utilities.LogCoverage(SIGMA), 0.99, 200, termination),
        episodes=50_000,
        seeds=10,
        snapshots=(50, 100),
        step_sizes=(1e-3, 1.0),
    )

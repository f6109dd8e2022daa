"""What is trained on: the environments and utilities of the paper's section 6."""

from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from typing import Any, Literal

import numpy as np

from occupax import exact, features, policies, utilities
from occupax.envs import make
from occupax.envs.tabular import TabularMDP
from occupax.experiments.sections import text
from occupax.problem import Problem, Termination

Measure = Literal["return", "discounted_return", "utility", "exact"]

LAKE, CARTPOLE, ACROBOT = "FrozenLake8x8", "CartPole-v0", "Acrobot-v1"
COVERAGE, COVERAGE_ABSORBING = "FrozenLake8x8 (log coverage)", "FrozenLake8x8 (log coverage, absorbing)"
COVERAGE_CARTPOLE = "CartPole-v0 (log coverage)"

TASKS = (LAKE, CARTPOLE, ACROBOT, COVERAGE, COVERAGE_ABSORBING, COVERAGE_CARTPOLE)
SIGMA = 0.125
NEARLY = 0.9
"""The share of the way from the uniform policy to the optimum that counts as nearly optimal, where that is known."""


@dataclass(frozen=True)
class Task:
    """A problem, how success is measured on it, and how long to train."""

    name: str
    problem: Problem
    measure: Measure
    """What a curve shows: the mean return of the sampled episodes, the utility of what snapshots estimate (it depends
    on their size, and compares only where that is the same), or the exact utility of the present policy."""
    episodes: int
    seeds: int
    step_sizes: tuple[float, float]
    """The range in which the search looks, with so many trials for each N."""
    trials: int
    given_threshold: float | None = None
    """From where on the task counts as solved; by default `NEARLY` all of the way to the optimum."""

    @property
    def policy(self) -> policies.Initialiser:
        """What every run starts from, drawn anew for each; tables as the weights of a linear layer with 64 inputs."""
        return policies.tabular(scale=0.125 / np.sqrt(3)) if self.tabular else policies.mlp(scale=1.0, normalise=False)

    @property
    def tabular(self) -> bool:
        """Whether exact values are known."""
        return isinstance(self.problem.env, TabularMDP)

    @property
    def unit(self) -> str:
        """What the measure is called on an axis."""
        return text("units", self.measure)

    @cached_property
    def optimum(self) -> float | None:
        """The best that any policy can do within the horizon, be it dependent on time; None if it is not known."""
        return exact.solve(self.problem, tolerance=1e-3).value if self.tabular else None

    @cached_property
    def uniform(self) -> float:
        """What acting at random is worth."""
        env: Any = self.problem.env
        return exact.value(self.problem, np.full((env.num_states, env.num_actions), 1 / env.num_actions))

    @cached_property
    def threshold(self) -> float:
        """From where on the task counts as solved."""
        if self.given_threshold is not None:
            return self.given_threshold
        if self.optimum is None:
            return inf
        return self.uniform + NEARLY * (self.optimum - self.uniform)


@cache
def tasks() -> dict[str, Task]:
    """All tasks, by name."""
    lake, cartpole = make("FrozenLake8x8-v1"), make("CartPole-v0")
    networks, tables = (1e-4, 1e-1), (1e-4, 1e2)

    def coverage(name: str, termination: Termination) -> Task:
        problem = Problem(lake, utilities.LogCoverage(SIGMA), 0.99, 200, termination)
        return Task(name, problem, "exact", 50_000, 10, (1e-4, 1.0), 16)

    cells = features.Grid(low=[-2.4, -0.2095], high=[2.4, 0.2095], bins=[8, 8], coordinates=[0, 2])
    spread = Problem(cartpole, utilities.LogCoverage(SIGMA), 0.99, 200, features=cells)
    listed = [
        Task(LAKE, Problem(lake, None, 0.99, 200), "discounted_return", 100_000, 10, tables, 16),
        Task(CARTPOLE, Problem(cartpole, None, 0.99, 200), "return", 5_000, 50, networks, 12, 195.0),
        Task(ACROBOT, Problem(make("Acrobot-v1"), None, 0.999, 500), "return", 3_000, 50, networks, 12, -100.0),
        coverage(COVERAGE, "episodic"),
        coverage(COVERAGE_ABSORBING, "absorbing"),
        Task(COVERAGE_CARTPOLE, spread, "utility", 5_000, 10, networks, 12),
    ]
    return {task.name: task for task in listed}

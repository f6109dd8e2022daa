"""What is trained on: the environments and utilities of the paper's section 6, and the judge of each."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from occupax import exact, policies, utilities
from occupax.envs import make
from occupax.envs.tabular import TabularMDP
from occupax.experiments.sections import text
from occupax.problem import Problem, Termination

LAKE, CARTPOLE, ACROBOT = "FrozenLake8x8", "CartPole-v0", "Acrobot-v1"
COVERAGE, ABSORBING = "Log coverage", "Log coverage (absorbing)"
SIGMA = 0.125
NEARLY = 0.9
"""The share of the way from the uniform policy to the optimum that counts as nearly optimal, where
that is known."""


@dataclass(frozen=True)
class Task:
    """A problem, how long to train on it, and from where on it counts as solved."""

    name: str
    problem: Problem
    episodes: int
    seeds: int
    snapshots: tuple[int, ...]
    """The sizes N of snapshots that the search for tuned settings tries."""
    step_sizes: tuple[float, float]
    """The range in which that search begins; it goes on beyond it where the best is at its edge."""
    given_threshold: float | None = None
    """From where on the task counts as solved; by default `NEARLY` all of the way to the
    optimum."""

    @property
    def policy(self) -> policies.Initialiser:
        """What every run starts from, drawn anew for each; tables as the weights of a linear layer with 64 inputs."""
        return (
            policies.tabular(scale=0.125 / np.sqrt(3))
            if self.tabular
            else policies.mlp(scale=1.0, normalise=False)
        )

    @property
    def tabular(self) -> bool:
        """Whether policies are judged by their exact utility, and not by episodes of evaluation."""
        return isinstance(self.problem.env, TabularMDP)

    @property
    def unit(self) -> str:
        """What the judge's number is called on an axis."""
        return text("units", "exact" if self.tabular else "evaluation")

    @cached_property
    def optimum(self) -> float:
        """The best that any policy can do within the horizon, be it dependent on time."""
        return exact.solve(self.problem, tolerance=1e-3).value

    @cached_property
    def uniform(self) -> float:
        """What acting at random is worth."""
        env: Any = self.problem.env
        return exact.value(
            self.problem, np.full((env.num_states, env.num_actions), 1 / env.num_actions)
        )

    @cached_property
    def threshold(self) -> float:
        """From where on the task counts as solved."""
        if self.given_threshold is not None:
            return self.given_threshold
        return self.uniform + NEARLY * (self.optimum - self.uniform)


@cache
def tasks() -> dict[str, Task]:
    """All tasks, by name; the episodes are those of the tuned settings."""
    lake = make("FrozenLake8x8-v1")

    def coverage(name: str, termination: Termination) -> Task:
        return Task(
            name,
            Problem(lake, utilities.LogCoverage(SIGMA), 0.99, 200, termination),
            50_000,
            10,
            (50, 100),
            (1e-3, 1.0),
        )

    listed = [
        Task(LAKE, Problem(lake, None, 0.99, 200), 300_000, 10, (25, 100), (1e-2, 1e2)),
        Task(
            CARTPOLE,
            Problem(make("CartPole-v0"), None, 0.99, 200),
            4_000,
            10,
            (10, 25),
            (1e-4, 1e-1),
            195.0,
        ),
        Task(
            ACROBOT,
            Problem(make("Acrobot-v1"), None, 0.999, 500),
            2_000,
            10,
            (100,),
            (1e-4, 1e-1),
            -100.0,
        ),
        coverage(COVERAGE, "episodic"),
        coverage(ABSORBING, "absorbing"),
    ]
    return {task.name: task for task in listed}

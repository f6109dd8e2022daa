"""Budgets of training runs, in episodes or in environment steps."""

from typing import Any

import numpy as np

from occupax.algorithms import Budget
from occupax.errors import check_integer
from occupax.io.records import RecordTable

MAX_EPISODES = 10**10
"""Largest number of episodes, more than any machine samples in a year."""
MAX_STEPS = 10**13
"""Largest number of environment steps."""


def read_budget(episodes: Any, steps: Any) -> Budget:
    """Return the budget of two arguments, exactly one of which is given.

    Args:
        episodes: number of trajectories of each seed, or None.
        steps: number of environment steps of each seed, or None.

    Raises:
        ValueError: if both or none are given, or the number is not a positive integer.
    """
    if episodes is None and steps is None:
        raise ValueError(
            "episodes or steps must be the budget of each seed, got neither. Pass for example "
            "steps=100_000 or episodes=10_000."
        )
    if episodes is not None and steps is not None:
        raise ValueError(
            "episodes and steps must not be given together, "
            f"got episodes={episodes!r} and steps={steps!r}. Leave out one of them."
        )
    if episodes is not None:
        return Budget(episodes=check_integer("episodes", episodes, maximum=MAX_EPISODES))
    return Budget(steps=check_integer("steps", steps, maximum=MAX_STEPS))


def unit(budget: Budget) -> str:
    """Return the unit of a budget, which is the name of its argument."""
    if budget.steps is not None:
        return "steps"
    return "episodes"


def size(budget: Budget) -> int:
    """Return the number of a budget in its unit."""
    return getattr(budget, unit(budget))


def used(budget: Budget, table: RecordTable) -> int:
    """Return the part of a budget that is used up at the last record.

    Seeds take different numbers of steps. The slowest seed that is still trained counts.
    """
    if not len(table.episodes):
        return 0
    if budget.steps is None:
        return int(table.episodes[-1])
    is_trained = np.isfinite(table.metrics["utility"][:, -1])
    steps = table.steps[is_trained, -1]
    if not steps.size:
        return budget.steps
    return min(int(steps.min()), budget.steps)


def check_budget(budget: Budget, sampled: int, steps: np.ndarray, before: Budget, out: Any) -> None:
    """Raise ValueError if the runs in a directory have used up more than a budget.

    Args:
        budget: new budget.
        sampled: number of episodes in the directory.
        steps: number of environment steps of each run in the directory.
        before: budget of the runs in the directory.
        out: the directory.
    """
    name = unit(budget)
    least = sampled
    if budget.steps is not None:
        least = int(steps.max(initial=0))
        if before.steps is not None:  # the last batch of a run exceeds its budget
            least = min(least, before.steps)
    if size(budget) < least:
        raise ValueError(
            f"{name} must be at least {least:,}, the number already sampled in {out}, "
            f"got {size(budget):,}."
        )

"""Utility of policies during training: exact on tables and linear systems, estimated elsewhere."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Float, Int

from occupax.algorithms import Algorithm, Budget
from occupax.analysis.statistics import mean_over_grid, on_grid
from occupax.envs.lqr import LQR
from occupax.envs.tabular import TabularMDP
from occupax.exact import lqr
from occupax.policies import Gaussian, Initialiser, Policy, gaussian
from occupax.problem import Problem
from occupax.training.evaluation import PolicyEvaluator
from occupax.training.loggers import Logger
from occupax.training.loop import run
from occupax.training.schedule import Schedule
from occupax.training.setup import make_setup

RECORDS = 40
"""Number of exact evaluations during training."""
ESTIMATES = 20
"""Number of estimated evaluations during training, which take longer."""
EPISODES = 64
"""Number of new episodes of an estimated evaluation."""
MIN_SCORE = -1.0
"""Lower bound of scores, which policies with non-finite values get."""
BUDGET_FRACTIONS = {"tenth": 0.1, "third": 1 / 3, "end": 1.0}
"""Fractions of the budget after which a policy is scored, by measure."""

Values = Float[np.ndarray, "seed record"]
Evaluate = Callable[[Sequence[Policy], int], Float[np.ndarray, " run"]]
"""Function of policies and of a number that selects the random episodes."""


class Curve(NamedTuple):
    """Utility of the policies of all seeds during training, from the initial policies on."""

    episodes: Int[np.ndarray, " record"]
    values: Values

    def normalised(self, best: float) -> Values:
        """Return scores that are 0 for the mean of the initial policies and 1 for the optimum."""
        initial = self.values[:, 0].mean()
        with np.errstate(invalid="ignore"):
            scores = (self.values - initial) / (best - initial)
        return np.where(np.isnan(scores), MIN_SCORE, np.maximum(scores, MIN_SCORE))

    def scores(self, best: float, budget: int) -> dict[str, Float[np.ndarray, " seed"]]:
        """Return the scores after fractions of the budget, and their mean over the training."""
        normalised = self.normalised(best)
        grid = np.unique(np.append(np.minimum(self.episodes, budget), budget))
        mean = mean_over_grid(grid, on_grid(self.episodes, normalised, grid))
        counts = budget * np.array(list(BUDGET_FRACTIONS.values()))
        scores = on_grid(self.episodes, normalised, counts)
        return {"mean": mean, **dict(zip(BUDGET_FRACTIONS, scores.T, strict=True))}


def train(
    problem: Problem,
    algorithms: Sequence[Algorithm[Any]],
    episodes: int,
    seeds: Sequence[int],
    seed: int,
    logger: Logger | None = None,
) -> list[Curve]:
    """Train with algorithms that differ in numbers only, and return a curve for each.

    Args:
        problem: Problem to train on.
        algorithms: Algorithms that one compiled program trains together.
        episodes: Budget of each run.
        seeds: Seeds of each algorithm.
        seed: Seed of everything.
        logger: Logger of the training.

    Returns:
        The curves of the algorithms.
    """
    records = ESTIMATES
    if isinstance(problem.env, TabularMDP):
        records = RECORDS
    every = max(1, Schedule(algorithms[0]).iterations(episodes) // records)
    policy = policy_source(problem)
    setup = make_setup(problem, algorithms, policy, seeds, seed, every, exact=False)
    evaluate = make_evaluator(problem, setup.policies[0])
    counts = [0]
    values = [evaluate([policy for _, _, policy in setup.runs], 0)]

    def record(progress: Any) -> None:
        counts.append(progress.episodes)
        values.append(evaluate(progress.policies, len(values)))

    callbacks: list[Any] = [record]
    if logger is not None:
        callbacks.append(logger)
    results = run(setup, Budget(episodes), callbacks, progress=False)
    # callbacks do not see an incomplete last record
    counts.append(int(results[0].episodes[-1]))
    policies = [policy for result in results for policy in result.policies]
    values.append(evaluate(policies, len(values)))
    blocks = np.split(np.array(values, float).T, len(results))
    return [Curve(np.array(counts), block) for block in blocks]


def constant_curve(problem: Problem, episodes: int, seeds: int) -> Curve:
    """Return the curve of an algorithm that does not change the initial policy, with score 0."""
    setup = make_setup(problem, [None], policy_source(problem), 1, 0, 1, exact=False)
    policy = setup.policies[0]
    value = make_evaluator(problem, policy)([policy], 0)[0]
    return Curve(np.array([0, episodes]), np.full((seeds, 2), value))


def policy_source(problem: Problem) -> Initialiser | None:
    """Return the initialiser of the policy, or None for the default.

    Values of linear systems are exact for linear-Gaussian policies only.
    """
    if isinstance(problem.env, LQR):
        return gaussian(hidden=())
    return None


def make_evaluator(problem: Problem, policy: Policy) -> Evaluate:
    """Return a function that evaluates policies of the same form as `policy`."""
    if isinstance(problem.env, LQR):

        def evaluate_linear(policies: Sequence[Policy], _: int) -> np.ndarray:
            return np.array([lqr.value(problem, cast("Gaussian", policy)) for policy in policies])

        return evaluate_linear
    evaluator = PolicyEvaluator(problem, policy, EPISODES)

    def evaluate(policies: Sequence[Policy], number: int) -> np.ndarray:
        key = jax.random.fold_in(jax.random.key(0), number)
        return evaluator.utilities(evaluator.occupancies(policies, key))

    return evaluate

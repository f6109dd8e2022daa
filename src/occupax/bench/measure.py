"""How good policies are during training: exactly on tables and linear systems, and from new episodes elsewhere."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import softmax

from occupax.algorithms import Algorithm
from occupax.analysis.statistics import mean_over_grid, on_grid
from occupax.envs.lqr import LQR
from occupax.envs.tabular import TabularMDP
from occupax.exact import Evaluator, lqr
from occupax.policies import Initialiser, Policy, gaussian
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource
from occupax.samplers.kernel import program_sampler
from occupax.training.loggers import Logger
from occupax.training.loop import run
from occupax.training.schedule import Schedule
from occupax.training.setup import make_setup

RECORDS, ESTIMATES = 40, 20
"""How often policies are evaluated during training: on a table, and elsewhere, where it takes
longer."""
EPISODES = 64
"""From how many new episodes each is evaluated where there is no table."""
LOWEST = -1.0
"""Shares below this, and those of policies that are not finite, count as this."""
SHARES = {"tenth": 0.1, "third": 1 / 3, "end": 1.0}
"""The shares of the budget after which a policy is scored."""

Values = Float[np.ndarray, "seed record"]


class Curve(NamedTuple):
    """The utility of the policies of all seeds during training; the first record is that of the first policies."""

    episodes: Int[np.ndarray, " record"]
    values: Values

    def shares(self, best: float) -> Values:
        """The share of the way from the mean of the first policies to the best one."""
        first = self.values[:, 0].mean()
        with np.errstate(invalid="ignore"):
            shares = (self.values - first) / (best - first)
        return np.where(np.isnan(shares), LOWEST, np.maximum(shares, LOWEST))

    def scores(self, best: float, budget: int) -> dict[str, Float[np.ndarray, " seed"]]:
        """The share of the way after a tenth, a third and all of the budget, and its mean over the training."""
        shares = self.shares(best)
        at = on_grid(self.episodes, shares, np.array([budget * share for share in SHARES.values()]))
        grid = np.unique(np.append(np.minimum(self.episodes, budget), budget))
        mean = mean_over_grid(grid, on_grid(self.episodes, shares, grid))
        return {"mean": mean, **dict(zip(SHARES, at.T, strict=True))}


def train(
    problem: Problem,
    algorithms: Sequence[Algorithm[Any]],
    episodes: int,
    seeds: Sequence[int],
    seed: int,
    logger: Logger | None = None,
) -> list[Curve]:
    """Train with each of some algorithms that differ in numbers only; return a curve for each."""
    records = RECORDS if isinstance(problem.env, TabularMDP) else ESTIMATES
    every = max(1, Schedule(algorithms[0]).iterations(episodes) // records)
    setup = make_setup(problem, algorithms, first_policy(problem), seeds, seed, every, exact=False)
    evaluate, places, values = evaluator(problem, setup.policies[0]), [0], list[np.ndarray]()

    def add(policies: Sequence[Policy]) -> None:
        values.append(evaluate(policies, len(values)))

    def look(at: Any) -> None:
        places.append(at.episodes)
        add(at.policies)

    add([policy for _, _, policy in setup.runs])
    results = run(setup, episodes, [look, *([] if logger is None else [logger])], progress=False)
    places.append(
        int(results[0].episodes[-1])
    )  # a last record that is incomplete is not seen by callbacks
    add([policy for result in results for policy in result.policies])
    return [
        Curve(np.array(places), part) for part in np.split(np.array(values, float).T, len(results))
    ]


def unmoved(problem: Problem, episodes: int, seeds: Sequence[int]) -> Curve:
    """The curve of an algorithm that leaves the first policy as it is; a score of it is 0."""
    like = make_setup(problem, [None], first_policy(problem), 1, 0, 1, exact=False).policies[0]
    value = evaluator(problem, like)([like], 0)[0]
    return Curve(np.array([0, episodes]), np.full((len(seeds), 2), value))


def first_policy(problem: Problem) -> Initialiser | None:
    """The policy to train where it is not the default: of linear systems, values are known for linear-normal ones."""
    return gaussian(hidden=()) if isinstance(problem.env, LQR) else None


def evaluator(
    problem: Problem, like: Policy
) -> Callable[[Sequence[Policy], int], Float[np.ndarray, " run"]]:
    """A function of policies, all of the form of `like`, and of a number that other episodes belong to each time."""
    if isinstance(problem.env, TabularMDP):
        exact = Evaluator(problem)

        def known(policies: Sequence[Any], _: int) -> np.ndarray:
            logits = np.array([policy.table for policy in policies], float)
            return exact.utilities(exact.occupancies(softmax(logits, axis=2)))

        return known
    if isinstance(problem.env, LQR):
        return lambda policies, _: np.array([lqr.value(problem, policy) for policy in policies])  # pyright: ignore[reportArgumentType]
    source = program_sampler(problem, like).open(problem, like)

    def estimated(policies: Sequence[Policy], number: int) -> np.ndarray:
        key = jax.random.fold_in(jax.random.key(0), number)
        return np.array([_estimate(source, policy, key) for policy in policies], float)

    return estimated


@eqx.filter_jit
def _estimate(source: ProgramSource, policy: Policy, key: Key[Array, ""]) -> Float[Array, ""]:
    return source.problem.estimated_utility(source.draw(policy, EPISODES, key).occupancy())

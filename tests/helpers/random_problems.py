"""Random tabular problems with all utilities, terminations, horizons and constraints."""

from typing import Any

import jax
import numpy as np

import occupax as ox

utilities = ox.utilities


def random_problem(seed: int) -> ox.Problem:
    """Return a problem of 3 to 12 states. Its constraints are those of some random policy."""
    random = np.random.default_rng(seed)
    S = int(random.integers(3, 13))
    A = int(random.integers(2, 5))
    branching = int(random.integers(1, min(S, 4) + 1))
    source = ox.TabularMDP.garnet(S, A, branching, jax.random.key(seed))
    terminal = np.arange(S) == S - 1 if random.random() < 0.5 else None
    reward = np.asarray(source.reward) - 0.4
    env = ox.TabularMDP(source.transition, reward, source.initial, terminal)
    horizon: int | None = None
    if random.random() < 0.4:
        horizon = int(random.integers(1, 12))
    discount = float(random.choice([0.5, 0.9, 0.99]))
    termination: Any = str(random.choice(["episodic", "absorbing"]))
    utility = random_utility(random, S, A)
    plain = ox.Problem(env, utility, discount, horizon, termination)
    if random.random() < 0.6:
        return plain
    policy = random.dirichlet(np.ones(A), S)
    occupancy = ox.exact.occupancy(plain, policy)
    constraints: list[ox.Constraint] = []
    for number in range(int(random.integers(1, 3))):
        cost = random.random((S, A))
        limit = float((cost * occupancy).sum()) + 0.01
        constraints.append(ox.Constraint(cost, at_most=limit, name=f"cost{number}"))
    return ox.Problem(env, utility, discount, horizon, termination, constraints=constraints)


def random_utility(random: np.random.Generator, S: int, A: int) -> ox.utilities.Utility:
    """Return a concave utility of the library."""
    feedback = random.normal(size=(S, A, 2))
    rewards = [random.random((S, A)) for _ in range(3)]
    target = random.dirichlet(np.ones(S))
    choices = [
        utilities.Reward(),
        utilities.LogCoverage(0.1),
        utilities.Entropy(1e-3),
        utilities.Reward() + 0.1 * utilities.LogCoverage(0.5),
        utilities.Linear(random.normal(size=S * A)) + 2.0 * utilities.Entropy(1e-2),
        utilities.SetDistance(feedback, utilities.Ball([1.0, 1.0], 0.1)),
        utilities.SoftMin(*rewards),
        utilities.NashWelfare(*rewards),
        utilities.LogDet(feedback),
        utilities.KL(target),
        utilities.ForwardKL(target),
    ]
    return choices[int(random.integers(len(choices)))]

"""Exploration of PlugIn for returns: deep seas, FrozenLake, Taxi and random problems.

    python benchmarks/exploration.py choose      eta on random problems
    python benchmarks/exploration.py confirm     the default on the problems below
    python benchmarks/exploration.py compare     eta = 0 and the default on tables of OccupancyBench

The rule, written before any figure: `choose` trains on random problems with noisy and negative
rewards (garnets with Gaussian noise and a shift of the rewards, and deep seas with 5 to 7 rows),
with eta in 0, 0.3, 1 and 3. The score of a run is (value - uniform) / (optimum - uniform), at least
-1, of the exact value of the policy after the budget. The default is the smallest eta above 0 whose
mean score is within 0.01 of the best one, if eta = 0 is not within 0.01 itself. `confirm` is run
once with the default: each problem lists the normalised score to reach, the episodes and the seeds.
"""

import sys

import numpy as np

import occupax as ox
from occupax.bench.families import FAMILIES, BenchProblem

COMPARED_EPISODES = 1_000
MAX_COMPARED_STATES = 100
ETAS = (0.0, 0.3, 1.0, 3.0)


def deep_sea(rows: int, failure: float, seed: int) -> ox.Problem:
    """Return a deep sea whose actions are permuted. A move to the right fails with a probability.

    A step to the right costs 0.01 / rows, and the treasure pays 1.
    """
    random = np.random.default_rng([seed, rows])
    states = rows * rows + 1
    end = states - 1
    outcomes = []
    for row, column in np.ndindex(rows, rows):
        state = row * rows + column
        right = random.integers(2)
        is_last = row == rows - 1
        moves = [(1 - right, max(column - 1, 0), 1.0)]
        moves.append((right, min(column + 1, rows - 1), 1.0 - failure))
        moves.append((right, max(column - 1, 0), failure))
        for action, next_column, probability in moves:
            next_state = end if is_last else state - column + rows + next_column
            reward = -0.01 / rows * (action == right)
            is_treasure = is_last and column == rows - 1 and next_column == column
            reward += is_treasure and action == right
            outcomes.append((state, action, next_state, probability, float(reward)))
    outcomes += [(end, action, end, 1.0, 0.0) for action in (0, 1)]
    columns = zip(*[outcome for outcome in outcomes if outcome[3] > 0], strict=True)
    state, action, next_state, probability, reward = map(np.array, columns)
    initial = np.zeros(states)
    initial[0] = 1.0
    env = ox.TabularMDP.from_arrays(
        state,
        action,
        next_state,
        probability,
        reward,
        initial,
        np.arange(states) == end,
    )
    return ox.Problem(env, discount=0.99, horizon=rows)


def noisy_garnet(seed: int, shift: float) -> ox.Problem:
    """Return a garnet of 20 states whose rewards depend on chance and are shifted."""
    random = np.random.default_rng([seed, 20])
    transition = np.zeros((20, 3, 20))
    for state, action in np.ndindex(20, 3):
        next_states = random.choice(20, 4, replace=False)
        transition[state, action, next_states] = random.dirichlet(np.ones(4))
    reward = random.random((20, 3, 1)) + shift + random.normal(size=(20, 3, 20))
    env = ox.TabularMDP(transition, reward, np.full(20, 0.05))
    return ox.Problem(env, discount=0.95, horizon=50)


def table_of(problem: ox.Problem) -> ox.TabularMDP:
    """Return the environment of a tabular problem."""
    if not isinstance(problem.env, ox.TabularMDP):
        raise TypeError("the environment must be a table.")
    return problem.env


def scores(problem: ox.Problem, algorithm: ox.PlugIn, episodes: int, seeds: int) -> np.ndarray:
    """Return the normalised score of each seed."""
    table = table_of(problem)
    shape = (table.num_states, table.num_actions)
    uniform = ox.exact.value(problem, np.full(shape, 1 / table.num_actions))
    optimum = ox.exact.value_iteration(problem).value
    result = ox.train(problem, algorithm, episodes, seeds, progress=False)
    values = [ox.exact.value(problem, result.policy(seed)) for seed in range(seeds)]
    return np.maximum((np.array(values) - uniform) / (optimum - uniform), -1.0)


def choose() -> None:
    """Print the mean score of each eta on random problems."""
    problems = [(noisy_garnet(seed, shift), 300) for seed in (0, 1) for shift in (0.0, -2.0)]
    problems += [(deep_sea(rows, 0.0, 1), 300) for rows in (5, 7)]
    problems.append((deep_sea(6, 1 / 6, 1), 300))
    for eta in ETAS:
        rows = [scores(problem, ox.PlugIn(optimism=eta), n, 3) for problem, n in problems]
        means = " ".join(f"{row.mean():.3f}" for row in rows)
        print(f"eta {eta}: mean {np.mean(rows):.3f}   {means}", flush=True)


def confirm() -> None:
    """Print the scores of the default on every problem."""
    confirm_deep_sea(8, 500)
    confirm_deep_sea(16, 2_000)
    report("FrozenLake-v1", ox.Problem("FrozenLake-v1", horizon=100), 10_000, 30, 0.95)
    report("FrozenLake8x8-v1", ox.Problem("FrozenLake8x8-v1", horizon=200), 10_000, 30, 0.95)
    confirm_deep_sea(30, 8_000)
    report("Taxi-v4", ox.Problem("Taxi-v4", horizon=200), 20_000, 3, 0.98)


def confirm_deep_sea(rows: int, episodes: int) -> None:
    """Print the scores on a deep sea without and with failing moves."""
    for failure in (0.0, 1 / rows):
        problem = deep_sea(rows, failure, 100)
        report(f"deep sea {rows}, failure {failure:.3f}", problem, episodes, 10, 0.95)


def report(name: str, problem: ox.Problem, episodes: int, seeds: int, goal: float) -> None:
    """Print how many seeds reach the goal."""
    values = scores(problem, ox.PlugIn(), episodes, seeds)
    reached = int((values >= goal).sum())
    print(
        f"{name}: {reached} of {seeds} seeds reach {goal} in {episodes:,} episodes, "
        f"smallest {values.min():.3f}, mean {values.mean():.3f}",
        flush=True,
    )


def compare() -> None:
    """Print the mean scores of both explorations on returns of OccupancyBench's smaller tables."""
    for family, group in FAMILIES.items():
        for entry in group.entries:
            bench = BenchProblem(family, entry, "return")
            if "return" not in entry.utilities or not bench.tabular:
                continue
            problem = bench.problem
            if table_of(problem).num_states > MAX_COMPARED_STATES:
                continue
            before = scores(problem, ox.PlugIn(optimism=0.0), COMPARED_EPISODES, 3)
            after = scores(problem, ox.PlugIn(), COMPARED_EPISODES, 3)
            print(f"{entry.name}: {before.mean():.3f} -> {after.mean():.3f}", flush=True)


if __name__ == "__main__":
    {"choose": choose, "confirm": confirm, "compare": compare}[sys.argv[1]]()

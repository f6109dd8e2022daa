"""Performance of the defaults of `occupax.train` on several problems, from fixed seeds.

python examples/learning.py                  all of it, a few minutes on two cores
python examples/learning.py lake coverage    some of it
"""

import sys
from collections.abc import Callable
from math import inf
from typing import NamedTuple

import jax
import numpy as np

import occupax as ox

SEEDS = 10
Scores = Callable[[ox.Result], np.ndarray]


class Lesson(NamedTuple):
    """A problem, and what counts as having learned it."""

    problem: Callable[[], ox.Problem]
    episodes: int
    scores: Scores
    """What is measured for each seed."""
    median: float
    """What the median over the seeds must reach."""
    worst: float
    """What each seed must reach."""
    says: str


def table(
    env: str | ox.TabularMDP, utility: ox.utilities.Utility | None = None, discount: float = 0.99
) -> ox.Problem:
    """A problem with a table, at the horizon of its environment."""
    made = ox.make(env) if isinstance(env, str) else env
    return ox.Problem(
        made, utility, discount=discount, horizon=100 if env == "FrozenLake-v1" else 200
    )


def shares(result: ox.Result) -> np.ndarray:
    """The share of the way from the uniform policy to the optimum, both exact."""
    assert result.problem is not None  # noqa: S101
    assert isinstance(result.problem.env, ox.TabularMDP)  # noqa: S101
    shape = result.problem.env.num_states, result.problem.env.num_actions
    uniform = ox.exact.value(result.problem, np.full(shape, 1 / shape[1]))
    return (result.utilities - uniform) / (ox.solve(result.problem, tolerance=1e-3).value - uniform)


def returns(name: str) -> Scores:
    """The mean return of 20 episodes in Gymnasium itself."""
    return lambda result: np.array(
        [ox.evaluate(policy, name, episodes=20).mean for policy in result.policies]
    )


def far_and_safe() -> ox.Problem:
    """Return a grid problem with bounds on the steps in the right, at the bottom and on falls.

    At least 5 discounted steps in the right and at the bottom, at most 0.3 beside the holes.
    """
    env = ox.TabularMDP.gridworld("S....\n..H..\n.....\n..H..\n.....", slip=0.2)
    rows, columns = np.divmod(np.arange(25), 5)
    falls = env.transition.toarray()[:, env.terminal].sum(1).reshape(25, 4) > 0
    everywhere = np.ones((25, 4))
    feedback = np.stack(
        [falls, (columns >= 3)[:, None] * everywhere, (rows >= 3)[:, None] * everywhere], -1
    )
    allowed = ox.utilities.Box([-np.inf, 5.0, 5.0], [0.3, np.inf, np.inf])
    return ox.Problem(env, ox.utilities.SetDistance(feedback, allowed), discount=0.95, horizon=100)


def distances(result: ox.Result) -> np.ndarray:
    """Return the negated exact distance from the allowed set, over the norm of the bounds."""
    return -np.sqrt(np.maximum(-result.utilities, 0.0)) / np.linalg.norm([0.3, 5.0, 5.0])


def cells_of_the_car() -> ox.Problem:
    """Cover the positions and velocities of MountainCar."""
    cells = ox.features.Grid([-1.2, -0.07], [0.6, 0.07], [16, 16])
    return ox.Problem(
        ox.make("MountainCar-v0"), ox.utilities.LogCoverage(), discount=0.99, features=cells
    )


def times_as_many_cells(result: ox.Result) -> np.ndarray:
    """Return exp(entropy of the occupancy), relative to that of the initial policy."""
    problem = result.problem
    assert problem is not None  # noqa: S101

    def effective(policy: ox.policies.Policy) -> float:
        drawn = ox.sample(problem, policy, 500, jax.random.key(1))
        share = np.asarray(ox.estimators.occupancy(problem, drawn, policy), float)
        share = share[share > 0] / share.sum()
        return float(np.exp(-np.sum(share * np.log(share))))

    first = ox.policies.mlp(scale=0.0)(problem.env, jax.random.key(0))
    return np.array([effective(policy) for policy in result.policies]) / effective(first)


COVERAGE, WAY = (
    ox.utilities.LogCoverage(0.125),
    "share of the way from the uniform policy to the optimum",
)
LESSONS = {
    "cartpole": Lesson(
        lambda: ox.Problem(ox.make("CartPole-v1")),
        2_000,
        returns("CartPole-v1"),
        475,
        300,
        "return on CartPole-v1",
    ),
    "acrobot": Lesson(
        lambda: ox.Problem(ox.make("Acrobot-v1")),
        1_500,
        returns("Acrobot-v1"),
        -100,
        -499,
        "return on Acrobot-v1",
    ),
    "lake": Lesson(
        lambda: table("FrozenLake8x8-v1"),
        50_000,
        shares,
        0.93,
        -inf,
        f"{WAY}, FrozenLake8x8-v1, return",
    ),
    "coverage": Lesson(
        lambda: table("FrozenLake8x8-v1", COVERAGE),
        50_000,
        shares,
        0.965,
        -inf,
        f"{WAY}, FrozenLake8x8-v1, coverage",
    ),
    "pond": Lesson(
        lambda: table("FrozenLake-v1"), 20_000, shares, 0.96, -inf, f"{WAY}, FrozenLake-v1"
    ),
    "cliff": Lesson(
        lambda: table("CliffWalking-v1"), 20_000, shares, 0.99, -inf, f"{WAY}, CliffWalking-v1"
    ),
    "taxi": Lesson(lambda: table("Taxi-v4"), 50_000, shares, 0.99, -inf, f"{WAY}, Taxi-v4"),
    "car": Lesson(
        cells_of_the_car,
        3_000,
        times_as_many_cells,
        4,
        -inf,
        "times the first policy's cells of MountainCar-v0",
    ),
    "constraint": Lesson(
        far_and_safe,
        100_000,
        distances,
        -1e-3,
        -1e-3,
        "minus the relative distance from the allowed set of a grid",
    ),
}


def learn(name: str, progress: bool = True) -> tuple[np.ndarray, ox.Result]:
    """Train with the default, and measure what was learned."""
    lesson = LESSONS[name]
    result = ox.train(lesson.problem(), episodes=lesson.episodes, seeds=SEEDS, progress=progress)
    return lesson.scores(result), result


def main() -> None:
    reached = True
    for name in sys.argv[1:] or LESSONS:
        lesson = LESSONS[name]
        scores, result = learn(name)
        good = np.median(scores) >= lesson.median and scores.min() >= lesson.worst
        reached = reached and good
        wanted = f"{lesson.median:g}" + (
            "" if lesson.worst == -inf else f", and no seed below {lesson.worst:g}"
        )
        print(
            f"{name}: median {np.median(scores):.4g}, worst {scores.min():.4g}; wanted {wanted}: ",
            end="",
        )
        print(f"{'reached' if good else 'NOT reached'} ({lesson.says})")
        print(
            f"    {lesson.episodes:,} episodes, {SEEDS} seeds, {result.seconds:.0f} s", flush=True
        )
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()

"""What TSIVR-PG learns, from fixed seeds, with settings that `examples/tuning.py` found.

python examples/learning.py                  all of them, about ten minutes on two cores
python examples/learning.py lake coverage    some of them
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import occupax as ox

BOUNDS = {"beside a hole": 0.3, "in the right": 5.0, "at the bottom": 5.0}


@dataclass(frozen=True)
class Lesson:
    """A problem, how it is learned, and what counts as having learned it."""

    problem: ox.Problem
    algorithm: ox.TSIVRPG
    episodes: int
    seeds: int
    measure: Callable[[ox.Result], float]
    target: float
    says: str


def return_of_the_median_seed(result: ox.Result) -> float:
    """The exact return of the trained policies of a table."""
    return float(np.median(result.utilities))


def share_of_the_way_to_the_optimum(result: ox.Result) -> float:
    """How much of the distance from the uniform policy to the optimum is closed, both exact."""
    assert result.problem is not None  # noqa: S101
    shape = result.problem.env.num_states, result.problem.env.num_actions  # pyright: ignore
    uniform = ox.exact.value(result.problem, np.full(shape, 1 / shape[1]))
    best = ox.solve(result.problem, tolerance=1e-3).value
    return (float(np.median(result.utilities)) - uniform) / (best - uniform)


def distance_from_feasible(result: ox.Result) -> float:
    """Distance of the discounted feedback from the allowed set, exact, relative to the size of the bounds; negated."""
    return -float(np.sqrt(-np.median(result.utilities)) / np.linalg.norm(list(BOUNDS.values())))


def mean_return_of_fresh_episodes(result: ox.Result) -> float:
    """The return of 100 episodes in Gymnasium itself, for the median seed."""
    name = "CartPole-v0" if result.problem.env.time_limit == 200 else "Acrobot-v1"  # pyright: ignore
    return float(np.median([ox.evaluate(policy, name, episodes=100).mean for policy in result.policies]))


def far_and_safe() -> ox.Problem:
    """Spend 5 discounted steps in the right and 5 at the bottom of a grid, and at most 0.3 where one may fall."""
    env = ox.TabularMDP.gridworld("S....\n..H..\n.....\n..H..\n.....", slip=0.2)
    rows, columns = np.divmod(np.arange(25), 5)
    falls = env.transition.toarray()[:, env.terminal].sum(1).reshape(25, 4) > 0
    everywhere = np.ones((25, 4))
    feedback = np.stack([falls, (columns >= 3)[:, None] * everywhere, (rows >= 3)[:, None] * everywhere], -1)
    beside, right, bottom = BOUNDS.values()
    allowed = ox.utilities.Box([-np.inf, right, bottom], [beside, np.inf, np.inf])
    return ox.Problem(env, ox.utilities.SetDistance(feedback, allowed), discount=0.95, horizon=100)


LAKE = ox.make("FrozenLake8x8-v1")
SMALL: dict[str, Any] = {"snapshot_batch": 100, "batch": 10, "epoch_length": 10, "baseline": "mean"}
LESSONS = {
    "lake": Lesson(
        ox.Problem(LAKE, discount=0.99, horizon=200),
        ox.TSIVRPG(**SMALL, step_size=3.0, radius=0.05),
        200_000,
        10,
        return_of_the_median_seed,
        0.373,
        "exact return on FrozenLake8x8, of at most 0.4146",
    ),
    "coverage": Lesson(
        ox.Problem(LAKE, ox.utilities.LogCoverage(sigma=0.125), discount=0.99, horizon=200),
        ox.TSIVRPG(**SMALL, step_size=0.02, radius=0.2),
        50_000,
        10,
        share_of_the_way_to_the_optimum,
        0.9,
        "share of the way from uniform to the optimum of log coverage on FrozenLake8x8",
    ),
    "constraint": Lesson(
        far_and_safe(),
        ox.TSIVRPG(**SMALL, step_size=0.3, radius=0.2),
        100_000,
        10,
        distance_from_feasible,
        -0.01,
        "minus the relative distance from the allowed set of a constrained grid",
    ),
    "cartpole": Lesson(
        ox.Problem(ox.make("CartPole-v0"), discount=0.99),
        ox.TSIVRPG(snapshot_batch=25, batch=5, epoch_length=5, baseline="mean", step_size=5e-3, radius=0.1),
        4_000,
        10,
        mean_return_of_fresh_episodes,
        195.0,
        "return on CartPole-v0, of at most 200",
    ),
    "acrobot": Lesson(
        ox.Problem(ox.make("Acrobot-v1"), discount=0.99),
        ox.TSIVRPG(snapshot_batch=25, batch=5, epoch_length=5, baseline="mean", step_size=0.02, radius=0.1),
        2_000,
        10,
        mean_return_of_fresh_episodes,
        -120.0,
        "return on Acrobot, -500 for a policy that never swings up",
    ),
}


def learn(name: str, progress: bool = True) -> tuple[float, ox.Result]:
    """Train, and measure what was learned."""
    lesson = LESSONS[name]
    result = ox.train(lesson.problem, lesson.algorithm, lesson.episodes, seeds=lesson.seeds, progress=progress)
    return lesson.measure(result), result


def main() -> None:
    reached = True
    for name in sys.argv[1:] or LESSONS:
        lesson = LESSONS[name]
        found, result = learn(name)
        reached = reached and found >= lesson.target
        verdict = "reached" if found >= lesson.target else "NOT reached"
        print(f"{name}: {found:.4f}, target {lesson.target:g} {verdict} ({lesson.says})")
        print(f"    {lesson.episodes:,} episodes, {lesson.seeds} seeds, {result.seconds:.0f} s")
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()

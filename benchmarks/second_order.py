"""A step of N-HARPG, which needs second derivatives, against one of REINFORCE.

Nanoseconds of the processor for a live step of the environment, compilation left out: the least of
three trainings with five seeds. Both draw batches of 20 trajectories, and their steps have no
length, so that both stay at the first policy and play episodes of the same lengths.
"""

import time
from typing import Any

import occupax as ox
from occupax.algorithms import Algorithm
from tables import Table, at_most, show

PROBLEMS = {
    "FrozenLake8x8, a table": (
        ox.Problem(ox.make("FrozenLake8x8-v1"), discount=0.99, horizon=200),
        20_000,
    ),
    "CartPole, a network": (ox.Problem(ox.make("CartPole-v1"), discount=0.99, horizon=200), 5_000),
}
REPEATS, WANTED = 3, 3.0


def seconds_a_step(problem: ox.Problem, algorithm: Algorithm[Any], episodes: int) -> float:
    """The shortest of some trainings after a first one, over its environment steps."""
    times: list[float] = []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        result = ox.train(problem, algorithm, episodes, seeds=5, progress=False, record_every=20)
        times.append((time.process_time() - began) / float(result.steps[:, -1].sum()))
    return min(times[1:])


def measure() -> list[Table]:
    """A row for each problem."""
    rows, targets = list[list[str]](), list[Any]()
    for name, (problem, episodes) in PROBLEMS.items():
        plain = seconds_a_step(problem, ox.REINFORCE(batch=20, step_size=0.0), episodes)
        ours = seconds_a_step(
            problem, ox.NHARPG(snapshot_batch=20, batch=20, step_size=0.0), episodes
        )
        rows.append([name, f"{plain * 1e9:.0f}", f"{ours * 1e9:.0f}", f"{ours / plain:.2f}"])
        targets.append(at_most(WANTED, ours / plain, f"times as long as REINFORCE on {name}"))
    return [
        Table("Nanoseconds a step", ["problem", "REINFORCE", "N-HARPG", "ratio"], rows, targets)
    ]


if __name__ == "__main__":
    show(measure())

"""How long a step of N-HARPG takes, against one of REINFORCE, on a table and on a network.

python benchmarks/second_order.py

Both draw as many trajectories in all; the times are those of the processor, without compilation, per environment step.
"""

import time
from typing import Any

import occupax as ox
from occupax.algorithms import Algorithm

PROBLEMS = {
    "FrozenLake8x8": (ox.Problem(ox.make("FrozenLake8x8-v1"), discount=0.99, horizon=200), 20_000),
    "CartPole": (ox.Problem(ox.make("CartPole-v1"), discount=0.99, horizon=200), 5_000),
}
REPEATS = 3


def seconds_a_step(problem: ox.Problem, algorithm: Algorithm[Any], episodes: int) -> float:
    """The shortest of some trainings, over its environment steps."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        result = ox.train(problem, algorithm, episodes, seeds=5, progress=False, record_every=20)
        times.append((time.process_time() - began) / result.steps[:, -1].sum())
    return min(times[1:])


def main() -> None:
    """Print the times and their ratio."""
    for name, (problem, episodes) in PROBLEMS.items():
        # steps of no length: both stay at the first policy, and so play episodes of the same length
        plain = seconds_a_step(problem, ox.REINFORCE(batch=20, step_size=0.0), episodes)
        ours = seconds_a_step(problem, ox.NHARPG(snapshot_batch=20, batch=20, step_size=0.0), episodes)
        print(f"{name}: REINFORCE {plain * 1e9:.0f} ns a step, N-HARPG {ours * 1e9:.0f} ns, {ours / plain:.2f} times")


if __name__ == "__main__":
    main()

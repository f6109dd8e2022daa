"""Performance of each algorithm with its defaults on FrozenLake8x8 and CartPole.

python benchmarks/algorithms.py [NAME ...]      for example storm plug-in; all of them by default

Medians, lowest and highest of ten seeds. On the lake (discount 0.99, horizon 200, sigma 0.125,
50,000 episodes) the exact share of the way from the uniform policy to the optimum over policies
that depend on time; on CartPole-v1 (2,000 episodes) the mean return of the last tenth of the
episodes; for plug-in, which needs a table, its first episodes too.
"""

import sys
import time

import numpy as np

import occupax as ox
from occupax.algorithms import ALGORITHMS

UTILITIES = {"return": ox.utilities.Reward(), "log coverage": ox.utilities.LogCoverage(0.125)}
FIRST = (500, 2_000, 5_000)


def spread(values: np.ndarray) -> str:
    """The median with the lowest and the highest."""
    return f"{np.median(values):.3f} [{np.min(values):.3f}, {np.max(values):.3f}]"


def main(names: list[str]) -> None:
    """Print a line for each algorithm and problem."""
    for name in names or ALGORITHMS:
        algorithm = ALGORITHMS[name]()
        for utility, goal in UTILITIES.items():
            problem = ox.Problem(ox.make("FrozenLake8x8-v1"), goal, discount=0.99, horizon=200)
            uniform = ox.exact.value(problem, np.full((64, 4), 0.25))
            best = ox.solve(problem, tolerance=1e-3).value
            began = time.monotonic()
            result = ox.train(problem, algorithm, 50_000, seeds=10, progress=False, record_every=50)
            took = time.monotonic() - began
            shares = (result.utilities - uniform) / (best - uniform)
            print(
                f"{name:10} lake {utility:13} {spread(shares)} of the way, {took:.0f} s", flush=True
            )
            for episodes in FIRST if name == "plug-in" else ():
                short = ox.train(problem, algorithm, episodes, seeds=10, progress=False)
                print(
                    f"{name:10} lake {utility:13} after {episodes}: {spread(short.utilities)}",
                    flush=True,
                )
        if name != "plug-in":
            began = time.monotonic()
            result = ox.train(
                ox.Problem(ox.make("CartPole-v1")), algorithm, 2_000, seeds=10, progress=False
            )
            last = result.metrics["return"][:, result.episodes > 1_800].mean(1)
            print(
                f"{name:10} cartpole {spread(last)}, {time.monotonic() - began:.0f} s", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])

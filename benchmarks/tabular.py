"""Tabular training against a bare C++ loop that does the same sampling and gradients, in one run on one machine."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import occupax as ox

HERE = Path(__file__).parent
REPEATS = 3
CASES = [(10, 100, 10, 10, 200), (10, 1_000, 100, 10, 20), (10, 10_000, 1_000, 10, 3)]
"""Seeds, N, B, m and epochs."""


def problem() -> ox.Problem:
    return ox.Problem(ox.make("FrozenLake8x8-v1"), ox.utilities.LogCoverage(0.125), discount=0.99, horizon=200)


def bare(case: tuple[int, ...], program: str, folder: str) -> tuple[float, float]:
    """Live steps a second, and the utility that is reached."""
    seeds, N, B, m, epochs = case
    env = problem().env
    assert isinstance(env, ox.TabularMDP)
    numbers = [*env.successors.shape, 200, N, B, m, epochs, seeds, os.cpu_count(), 0.99, 0.125, 0.02, 0.2]
    arrays = [env.successors, env.thresholds, env.terminal.astype(int)]
    lines = [" ".join(map(str, numbers)), *(" ".join(map(str, array.ravel())) for array in arrays)]
    file = Path(folder) / "problem.txt"
    file.write_text("\n".join(lines))
    steps, seconds, value = subprocess.run(
        [program, str(file)], capture_output=True, text=True, check=True
    ).stdout.split()
    return int(steps) / float(seconds), float(value)


def ours(case: tuple[int, ...]) -> tuple[float, float]:
    """The same with `ox.train`, compilation left out: from the second record of a run on."""
    seeds, N, B, m, epochs = case
    algorithm = ox.TSIVRPG(snapshot_batch=N, batch=B, epoch_length=m, step_size=0.02, radius=0.2)
    episodes = epochs * (N + (m - 1) * B)
    ox.train(problem(), algorithm, episodes=N + B, seeds=seeds, progress=False)
    result = ox.train(problem(), algorithm, episodes=episodes, seeds=seeds, progress=False)
    return result.steps[:, -1].sum() / result.seconds, float(np.mean(result.metrics["utility"][:, -1]))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "bare_loop")
        compiler = os.environ.get("CXX", "c++")
        options = ["-std=c++17", "-O3", "-march=native", "-pthread"]
        subprocess.run([compiler, *options, "-o", program, str(HERE / "bare_loop.cc")], check=True)
        print("TSIVR-PG, log coverage, FrozenLake8x8, horizon 200: millions of live environment steps a second")
        print(f"{'seeds':>6} {'N':>6} {'B':>6} {'bare C++':>10} {'Occupax':>10} {'ratio':>7}   utilities")
        for case in CASES:
            pairs = [(bare(case, program, folder), ours(case)) for _ in range(REPEATS)]
            theirs, mine = (max(pair[i] for pair in pairs) for i in (0, 1))
            print(
                f"{case[0]:6} {case[1]:6} {case[2]:6} {theirs[0] / 1e6:10.2f} {mine[0] / 1e6:10.2f} "
                f"{mine[0] / theirs[0]:7.2f}   {theirs[1]:.1f} {mine[1]:.1f}"
            )


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    print(f"({time.perf_counter() - start:.0f} s)")

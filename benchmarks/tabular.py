"""Training of tables against a bare C++ loop that does the same sampling and gradients.

TSIVR-PG maximises log coverage on FrozenLake8x8 with a horizon of 200. `bare_loop.cc` does the same
for this one problem and nothing else, fused by hand, on all cores, one trajectory after the other;
the kernel of Occupax draws eight side by side, which is how it can be the faster one. The figures
are millions of live environment steps a second, the best of three runs of each in turn, compilation
left out. The utilities that both reach show that they do the same work.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import occupax as ox
from tables import Table, at_least, show

HERE = Path(__file__).parent
REPEATS = 3
CASES = [(10, 100, 10, 10, 200), (10, 1_000, 100, 10, 20), (10, 10_000, 1_000, 10, 3)]
"""Seeds, N, B, m and epochs."""
WANTED = [0.6, 0.8, 0.8]


def problem() -> ox.Problem:
    return ox.Problem(
        ox.make("FrozenLake8x8-v1"), ox.utilities.LogCoverage(0.125), discount=0.99, horizon=200
    )


def compile_bare(folder: str) -> str:
    """The program that `bare` runs."""
    program = str(Path(folder) / "bare_loop")
    options = ["-std=c++17", "-O3", "-march=native", "-pthread"]
    subprocess.run(
        [os.environ.get("CXX", "c++"), *options, "-o", program, str(HERE / "bare_loop.cc")],
        check=True,
    )
    return program


def bare(case: tuple[int, ...], program: str, folder: str) -> tuple[float, float]:
    """Live steps a second, and the utility that is reached."""
    seeds, N, B, m, epochs = case
    env = problem().env
    assert isinstance(env, ox.TabularMDP)
    numbers = [
        *env.successors.shape,
        200,
        N,
        B,
        m,
        epochs,
        seeds,
        os.cpu_count(),
        0.99,
        0.125,
        0.02,
        0.2,
    ]
    arrays = [env.successors, env.thresholds, env.terminal.astype(int)]
    lines = [" ".join(map(str, numbers)), *(" ".join(map(str, array.ravel())) for array in arrays)]
    file = Path(folder) / "problem.txt"
    file.write_text("\n".join(lines))
    steps, seconds, value = subprocess.run(
        [program, str(file)], capture_output=True, text=True, check=True
    ).stdout.split()
    return int(steps) / float(seconds), float(value)


def ours(case: tuple[int, ...]) -> tuple[float, float]:
    """Return the speed of `ox.train`, compilation excluded."""
    seeds, N, B, m, epochs = case
    plain: Any = {
        "rule": "gradient",
        "baseline": "none",
        "weight_guard": None,
    }  # as the loop in C++ does it
    algorithm = ox.TSIVRPG(
        snapshot_batch=N, batch=B, epoch_length=m, step_size=0.02, radius=0.2, **plain
    )
    episodes = epochs * (N + (m - 1) * B)
    ox.train(problem(), algorithm, episodes=N + B, seeds=seeds, progress=False)
    result = ox.train(problem(), algorithm, episodes=episodes, seeds=seeds, progress=False)
    return result.steps[:, -1].sum() / result.seconds, float(np.mean(result.utilities))


def measure() -> list[Table]:
    """All cases."""
    rows: list[list[str]] = []
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        program = compile_bare(folder)
        for case in CASES:
            pairs = [(bare(case, program, folder), ours(case)) for _ in range(REPEATS)]
            theirs, mine = (max(pair[i] for pair in pairs) for i in (0, 1))
            ratios.append(mine[0] / theirs[0])
            rates = [f"{theirs[0] / 1e6:.2f}", f"{mine[0] / 1e6:.2f}", f"{ratios[-1]:.2f}"]
            rows.append(
                [
                    *(f"{number:,}" for number in case[:3]),
                    *rates,
                    f"{theirs[1]:.1f}",
                    f"{mine[1]:.1f}",
                ]
            )
    columns = [
        "seeds",
        "N",
        "B",
        "bare C++",
        "Occupax",
        "ratio",
        "utility of bare C++",
        "utility of Occupax",
    ]
    targets = [
        at_least(wanted, ratio, f"of the bare C++ loop with {case[0]} seeds and B = {case[2]:,}")
        for wanted, ratio, case in zip(WANTED, ratios, CASES, strict=True)
    ]
    return [Table("Millions of live steps a second", columns, rows, targets)]


if __name__ == "__main__":
    show(measure())

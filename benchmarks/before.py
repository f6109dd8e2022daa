"""Sampling CartPole outside of the compiled program, against an earlier commit.

TSIVR-PG on Gymnasium's CartPole-v1 with `Host(envs=8)` and with `Ray(workers=2)`, everything
included but start-up and compilation, which the first epochs pay for. Both versions run in
processes of their own, in turns, and the best of several runs counts. The earlier commit is named
by the environment variable OCCUPAX_BEFORE; without it there is nothing to compare with, and the
benchmark is left out.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import jax

from tables import Table, at_least, show

ROOT = Path(__file__).parent.parent
REPEATS = 3
CHILD = """
import sys, time
import occupax as ox

samplers = {"Host(envs=8)": ox.samplers.Host(envs=8), "Ray(workers=2)": ox.samplers.Ray(workers=2)}
problem = ox.Problem(ox.GymnasiumEnv("CartPole-v1"), discount=0.99, horizon=200)
sizes = dict(snapshot_batch=50, batch=10, epoch_length=5)
algorithm = ox.TSIVRPG(**sizes, step_size=1e-4, radius=0.01)
calls = []

def record(progress):
    length = progress.metrics["episode_length"][0]
    calls.append((time.perf_counter(), progress.episodes, length))

ox.train(
    problem, algorithm, 90 * 14, sampler=samplers[sys.argv[1]], progress=False, callbacks=[record]
)
first = 4 * 5
steps = 0.0
for previous, current in zip(calls[first:], calls[first + 1 :]):
    steps += (current[1] - previous[1]) * current[2]
seconds = calls[-1][0] - calls[first][0]
print(steps / seconds)
"""


def rate(tree: Path, sampler: str) -> float:
    """Steps a second of the version in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-c", CHILD, sampler]
    return float(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    )


def measure() -> list[Table]:
    """One row for each sampler, or nothing if there is nothing to compare with."""
    commit = os.environ.get("OCCUPAX_BEFORE")
    if commit is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(before), commit], check=True
        )
        try:
            kernels = before / "src" / "occupax" / "kernels"
            flags = [
                "-std=c++17",
                "-O3",
                "-fPIC",
                "-shared",
                "-Wno-psabi",
                f"-isystem{jax.ffi.include_dir()}",
            ]
            files = ["-o", str(kernels / "libkernels.so"), *map(str, sorted(kernels.glob("*.cc")))]
            subprocess.run([os.environ.get("CXX", "c++"), *flags, *files], check=True)
            return [_table(before)]
        finally:
            shutil.rmtree(before)
            subprocess.run(["git", "-C", str(ROOT), "worktree", "prune"], check=True)


def _table(before: Path) -> Table:
    rows, targets = [], []
    for sampler in ("Host(envs=8)", "Ray(workers=2)"):
        pairs = [(rate(before, sampler), rate(ROOT, sampler)) for _ in range(REPEATS)]
        old, new = (max(rates) for rates in zip(*pairs, strict=True))
        middle = statistics.median(after / earlier for earlier, after in pairs)
        rows.append([sampler, f"{old:,.0f}", f"{new:,.0f}", f"{new / old:.2f}", f"{middle:.2f}"])
        targets.append(at_least(0.95, new / old, f"of the speed before with {sampler}", 2))
    columns = [
        "sampler",
        "steps/s before",
        "steps/s now",
        "ratio of the best",
        "median ratio of pairs",
    ]
    return Table("CartPole-v1 of Gymnasium, batches of 50 and 10 episodes", columns, rows, targets)


if __name__ == "__main__":
    show(measure())

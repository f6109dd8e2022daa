"""Memory of a snapshot.

Peak resident memory of a process that takes one snapshot of TSIVR-PG on FrozenLake8x8 with a
horizon of 200, for one seed; each in a process of its own. Batches that are larger than a block are
drawn block by block, so memory should not grow any more from there on. The first row is a process
that imports Occupax and does nothing.
"""

import resource
import subprocess
import sys

import occupax as ox
from tables import Table, at_most, show

SIZES = (0, 100, 1_000, 10_000, 100_000, 1_000_000)


def snapshot(size: int) -> None:
    """Take one, and print peak memory in MiB and seconds."""
    seconds = 0.0
    if size:
        problem = ox.Problem(ox.make("FrozenLake8x8-v1"), discount=0.99, horizon=200)
        algorithm = ox.TSIVRPG(snapshot_batch=size)
        seconds = ox.train(problem, algorithm, episodes=size, progress=False).seconds
    unit = 2**20 if sys.platform == "darwin" else 2**10
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, seconds)


def measure() -> list[Table]:
    """Every size in its own process."""
    found: list[list[float]] = []
    for size in SIZES:
        command = [sys.executable, __file__, str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append([float(number) for number in done.stdout.split()])
    rows = [
        [f"{size:,}", f"{peak:,.0f}", f"{took:.1f}"]
        for size, (peak, took) in zip(SIZES, found, strict=True)
    ]
    columns = ["trajectories", "peak MiB", "seconds, compilation included"]
    says = f"times the memory of {SIZES[-2]:,} for {SIZES[-1]:,} trajectories"
    target = at_most(1.1, found[-1][0] / found[-2][0], says)
    return [Table("Memory of a snapshot", columns, rows, [target])]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        snapshot(int(sys.argv[1]))
    else:
        show(measure())

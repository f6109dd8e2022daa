"""Seconds until a command shows progress.

`occupax train` runs in a terminal of its own, and what it shows there is timed from the start of
the process: the title, when everything is imported and the problem is built; the empty bar, when
the seeds are set up; and the first episodes in the bar, which are the first progress. Cold is with
no compiled program on disk; warm is after that run, the best of three. The time of a process that
only imports the command line is given beside it.
"""

import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tables import Table, at_most, show

TRAIN = (
    "train FrozenLake8x8-v1 --utility log-coverage --algorithm tsivr-pg --discount 0.99 "
    "--episodes 50000 --seeds 10"
)
SIGNS = (b"FrozenLake8x8", b"compiling", b"steps/s")
"""What the title, the empty bar and the first progress have in them."""
REPEATS, WANTED = 3, 4.0


def watched(cache: Path, out: Path, to_the_end: bool) -> list[float]:
    """Seconds until each of the signs is on the terminal."""
    leader, follower = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from occupax.cli import main; main()",
        *TRAIN.split(),
        "--out",
        str(out),
    ]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "COLUMNS": "200", "TERM": "xterm"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    seen, times = b"", list[float]()
    while chunk := _read(leader):
        seen += chunk
        while len(times) < len(SIGNS) and SIGNS[len(times)] in seen:
            times.append(time.perf_counter() - start)
        if len(times) == len(SIGNS) and not to_the_end:
            process.kill()
    process.wait()
    os.close(leader)
    if len(times) < len(SIGNS):
        raise RuntimeError(
            f"the command ended without showing progress: {seen.decode(errors='replace')}"
        )
    return times


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""


def imports() -> float:
    """Seconds of a process that imports the command line, the best of three."""
    found: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import occupax.cli"], check=True)
        found.append(time.perf_counter() - start)
    return min(found)


def measure() -> list[Table]:
    """Cold and warm."""
    with tempfile.TemporaryDirectory() as folder:
        cache, out = Path(folder) / "cache", Path(folder) / "out"
        imported = imports()
        cold = watched(cache, out / "cold", to_the_end=True)
        warm = [watched(cache, out / str(i), to_the_end=False) for i in range(REPEATS)]
    best = min(warm, key=lambda times: times[-1])
    rows = [
        [
            name,
            *(
                f"{took:.1f}"
                for took in (imported, times[0], times[1] - times[0], times[2] - times[1], times[2])
            ),
        ]
        for name, times in (("cold", cold), ("warm", best))
    ]
    columns = [
        "programs",
        "imports alone",
        "until the title",
        "set-up",
        "first iteration",
        "until the first progress",
    ]
    return [
        Table(
            "Seconds",
            columns,
            rows,
            [at_most(WANTED, best[-1], "seconds to the first progress, warm", digits=1)],
        )
    ]


if __name__ == "__main__":
    show(measure())

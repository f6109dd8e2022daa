"""Memory and checkpoint sizes of a long tabular training run, over time."""

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import occupax as ox

PAGE = os.sysconf("SC_PAGE_SIZE")


def megabytes() -> float:
    """Return the resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def measure(seconds: float, say: Any) -> dict[str, float]:
    """Train for `seconds`. Return the memory growth in MB per minute and the final file sizes."""
    problem = ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), horizon=100)
    seen: list[tuple[float, float]] = []
    over = threading.Event()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"

        def watch() -> None:
            began = time.monotonic()
            while time.monotonic() - began < seconds and not over.wait(5):
                seen.append((time.monotonic() - began, megabytes()))
                if len(seen) % 12 == 0:
                    say(f"after {seen[-1][0]:.0f} s: {seen[-1][1]:.1f} MB")
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=watch, daemon=True).start()
        try:
            ox.train(problem, ox.REINFORCE(batch=1), 10**10, seeds=4, out=folder, progress=False)
        except KeyboardInterrupt as stop:
            say(str(stop))
        over.set()
        sizes = [file.stat().st_size / 1e6 for file in (folder / "checkpoint").iterdir()]
        records = (folder / "metrics.csv").stat().st_size / 1e6
    late = np.array([pair for pair in seen if pair[0] > seconds / 10])
    slope = float(np.polyfit(late[:, 0] / 60, late[:, 1], 1)[0])
    return {"MB a minute": slope, "MB of a checkpoint": max(sizes), "MB of metrics.csv": records}


if __name__ == "__main__":
    print(measure(float(sys.argv[1]), print))  # noqa: T201

"""Runs that are killed or interrupted at random moments and resume to identical results."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EPISODES = 2_000
COMMAND = [
    *(
        "train",
        "FrozenLake-v1",
        "--utility",
        "log-coverage",
        "--horizon",
        "20",
        "--seeds",
        "2",
        "--set",
        "batch=2",
    ),
    *("--episodes", str(EPISODES), "--record-every", "7"),
]
CHILD = """
import os, random, signal, sys
from pathlib import Path
import occupax.training.loop as loop
from occupax.api.training import train
from occupax.io import files
real, often = files.write_bytes, float(os.environ.get("KILL_WRITES", "0"))

def write(path, content):
    if random.random() < often:  # in the middle of a write, as a power failure does
        half = Path(path).with_name("." + Path(path).name + ".0123abcd")
        half.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, content)

files.write_bytes = write
loop.CALL_SECONDS = 0.02
train.__defaults__ = tuple(0.05 if value == 30.0 else value for value in train.__defaults__)
from occupax.cli import main
sys.argv = ["occupax", *sys.argv[1:]]
main()
"""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = "from occupax_command import main; main()"
WITH_PROCESSES = [
    *(
        "train",
        "gymnasium.envs.classic_control:CartPoleEnv",
        "--horizon",
        "20",
        "--episodes",
        "1000000000",
    ),
    *("--workers", "2", "--no-progress"),
]


def start(folder: Path, writes: float = 0.0) -> subprocess.Popen[bytes]:
    """Start or resume training in a folder. Each write is killed with probability `writes`."""
    resume = ["--resume"] if (folder / "config.json").exists() else []
    arguments = [*COMMAND, "--out", str(folder), *resume]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"KILL_WRITES": str(writes), "JAX_PLATFORMS": "cpu"},
    )


def trained(folder: Path) -> dict[str, bytes]:
    """Return the records and policies of a finished run."""
    files = [folder / "metrics.csv", *sorted((folder / "policies").glob("*.safetensors"))]
    return {file.name: file.read_bytes() for file in files}


def attack(say: Any, count: int = 60) -> dict[str, int]:
    """Kill `count` processes, half of them while writing. Every run must end with equal files."""
    counts = {"kills": 0, "during a write": 0, "trainings": 0, "wrong": 0}
    moments = random.Random(0)  # noqa: S311
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        whole = start(Path(place) / "whole")
        whole.wait()
        expected, seconds = trained(Path(place) / "whole"), time.monotonic() - began
        folder = Path(place) / "killed"
        while counts["kills"] < count:
            writing = counts["kills"] % 2 == 1
            child = start(folder, 0.1 if writing else 0.0)
            if not writing:
                try:
                    child.wait(moments.uniform(0.5, seconds))
                except subprocess.TimeoutExpired:
                    child.kill()
            said = child.communicate()[1].decode(errors="replace").strip()
            if child.returncode == -signal.SIGKILL:
                counts["kills"] += 1
                counts["during a write"] += writing
                if counts["kills"] % 5 == 0:
                    say(f"kills so far: {counts}")
            elif child.returncode == 0:
                counts["trainings"] += 1
                if trained(folder) != expected or any(folder.rglob(".*")):
                    counts["wrong"] += 1
                    say("a training that was killed ended with other files")
                shutil.rmtree(folder)
            else:
                counts["wrong"] += 1
                say(f"a training that was killed does not go on: {said[-300:]}")
                shutil.rmtree(folder)
        last = start(folder)
        said = last.communicate()[1].decode(errors="replace").strip()
        counts["trainings"] += 1
        if last.returncode or trained(folder) != expected:
            counts["wrong"] += 1
            say(f"the last training ended with other files: {said[-300:]}")
    return counts


def interrupt(say: Any, count: int = 30) -> dict[str, int]:
    """Send signals to process groups. Each must end with the right status and one message."""
    counts = {"signals": 0, "wrong": 0}
    moments = random.Random(1)  # noqa: S311
    for i in range(count):
        number = SIGNALS[i % len(SIGNALS)]
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, *WITH_PROCESSES],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            start_new_session=True,
        )
        time.sleep(
            moments.uniform(0.5, 15.0)
        )  # imports, then the start of the processes, then episodes
        os.killpg(child.pid, number)
        said = child.communicate()[1].decode(errors="replace").strip()
        counts["signals"] += 1
        if child.returncode != 128 + number or said.count("\n") or not said.startswith("occupax: "):
            counts["wrong"] += 1
            say(f"signal {number} ended with {child.returncode}: {said[-300:]}")
    return counts


if __name__ == "__main__":
    print(attack(print, int(sys.argv[1])))  # noqa: T201

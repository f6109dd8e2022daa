"""A full disk: a small file system in memory where allowed, else a limit on file sizes."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

MOUNT, UNMOUNT = shutil.which("mount") or "mount", shutil.which("umount") or "umount"
COMMAND = [
    *(
        "train",
        "FrozenLake-v1",
        "--horizon",
        "20",
        "--seeds",
        "2",
        "--set",
        "batch=2",
        "--episodes",
        "200000",
    ),
]
CHILD = """
import sys
from occupax.api.training import train
train.__defaults__ = tuple(0.2 if value == 30.0 else value for value in train.__defaults__)
from occupax.cli import main
sys.argv = ["occupax", *sys.argv[1:]]
main()
"""


def run(folder: Path, *more: str) -> tuple[int, str]:
    """Train in a folder and return the exit code and the message."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *COMMAND, "--out", str(folder), *more],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    return done.returncode, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""


def attack(say: Any) -> dict[str, int]:
    """Fill the disk in the middle of a training, then make space and go on."""
    counts = {"disks": 0, "wrong": 0}
    place = Path(tempfile.mkdtemp())
    options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    mounted = subprocess.run([MOUNT, *options], check=False, capture_output=True)
    if mounted.returncode:
        say("a file system in memory is not allowed here: the full disk was not tried")
        with suppress(OSError):
            place.rmdir()
        return counts
    try:
        counts["disks"] += 1
        code, said = run(place / "run")
        saved = list((place / "run" / "checkpoint").glob("iteration-*"))
        if (
            code != 1
            or "No space left on device" not in said
            or "to resume" not in said
            or str(place) not in said
        ):
            counts["wrong"] += 1
            say(f"a full disk ended with {code}: {said}")
        if not saved:
            counts["wrong"] += 1
            say("a full disk left no checkpoint")
        subprocess.run([MOUNT, "-o", "remount,size=300m", str(place)], check=True)
        code, said = run(place / "run", "--resume")
        if code:
            counts["wrong"] += 1
            say(f"after the disk was full, the training did not go on: {said}")
    finally:
        subprocess.run([UNMOUNT, "-l", str(place)], check=False)
        shutil.rmtree(place, ignore_errors=True)
    return counts


if __name__ == "__main__":
    print(attack(print))  # noqa: T201

"""Training in a process of its own that is killed or interrupted, and resumed in another one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from interrupted import trained
from occupax.io.files import read_arrays

SCRIPT = """
import os, sys, time
from occupax.analysis import report
from occupax.training import loop
from interrupted import trained

report.write_pages = lambda *_: None  # it would take longer than the training
folder, pace = sys.argv[1:]
loop.MAX_ITERATIONS = 25  # so that there are many moments to be killed at
if pace == "slow":
    os.fsync = lambda descriptor: time.sleep(0.2)
try:
    trained(folder, checkpoint_every=0.0)
except KeyboardInterrupt as interrupt:
    print(interrupt, flush=True)
    sys.exit(130)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory, compiled_fast):
    """Start a process that trains or resumes in a folder, compiled as in this process."""
    script = tmp_path_factory.mktemp("children") / "child.py"
    script.write_text(SCRIPT)
    env = compiled_fast | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), *sys.path])
    }

    def begin(folder, pace):
        command = [sys.executable, str(script), str(folder), pace]
        return subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    return begin


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    trained(folder)
    return folder


def checkpoints(folder):
    return {file.name for file in Path(folder).glob("checkpoint/iteration-*.safetensors")}


def wait_until(child, happened):
    """Look again and again, until something happened in the folder or the child ended."""
    end = time.monotonic() + 100
    while not happened():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.001)


def kill(child):
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL  # it was still at work


def assert_same_run(one, other):
    assert (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()
    for seed in (0, 1):
        name = f"policies/seed-{seed}.safetensors"
        np.testing.assert_equal(read_arrays(one / name), read_arrays(other / name))
    arrays = [read_arrays(max(folder.glob("checkpoint/iteration-*")))[0] for folder in (one, other)]
    np.testing.assert_equal(*arrays)


def test_kills_at_any_moment_change_no_bit(start, undisturbed, tmp_path):
    def unfinished():
        return set(tmp_path.glob("checkpoint/.iteration-*"))

    child = start(tmp_path, "steady")
    wait_until(child, (tmp_path / "config.json").exists)
    kill(child)  # before the first checkpoint
    assert not checkpoints(tmp_path)
    child = start(tmp_path, "steady")
    wait_until(child, lambda: checkpoints(tmp_path))
    time.sleep(0.03)
    kill(child)  # between two
    reached = max(checkpoints(tmp_path))
    assert (
        1 <= len(checkpoints(tmp_path)) <= 3
    )  # a third one, if the kill fell before the first was removed
    child, before = start(tmp_path, "slow"), checkpoints(tmp_path)
    wait_until(child, lambda: checkpoints(tmp_path) - before and unfinished())
    kill(child)  # in the middle of a write, which leaves a file that nobody takes for a checkpoint
    assert unfinished()
    assert max(checkpoints(tmp_path)) > reached  # it went on
    trained(tmp_path)
    assert not unfinished()  # what a killed process left is removed by the next one
    assert len(checkpoints(tmp_path)) == 2
    assert_same_run(undisturbed, tmp_path)


def test_an_interrupt_saves_and_says_how_to_go_on(start, undisturbed, tmp_path):
    child = start(tmp_path, "steady")
    wait_until(child, lambda: checkpoints(tmp_path))
    before = max(checkpoints(tmp_path))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    message = out.strip()
    assert "\n" not in message
    assert message.startswith("stopped after ")
    command = f"occupax train --out {tmp_path} --resume (in Python: resume=True)"
    assert message.endswith(f"of 8,000 episodes; to resume: {command}.")
    assert max(checkpoints(tmp_path)) >= before
    assert not (
        tmp_path / "summary.json"
    ).exists()  # a run that is not finished is not taken for one
    trained(tmp_path)
    assert_same_run(undisturbed, tmp_path)

"""Signals from terminals and schedulers during training, start-up and forked processes."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import occupax as ox
from occupax.signals import ending_signals
from occupax.training.loop import Terminated

SOURCES = os.pathsep.join(sys.path)
TRAIN = (
    "train",
    "FrozenLake-v1",
    "--utility",
    "log-coverage",
    "--horizon",
    "10",
    "--episodes",
    "100000000",
)
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "occupax", *sys.argv[1:]])
"""
SLOW = """
import time
from pathlib import Path

with Path(__file__).with_name("imports").open("a") as file:
    file.write("begun\\n")
time.sleep(1)  # the import that every process begins with


def make():
    import gymnasium

    return gymnasium.make("CartPole-v1")
"""
FORK = """
import os, sys
import jax
import occupax as ox

problem = ox.Problem("FrozenLake-v1", utility="entropy", horizon=5)
calls = {
    "train": lambda: ox.train(problem, "reinforce", 20, progress=False),
    "sweep": lambda: ox.sweep(problem, "reinforce", {"step_size": [0.1]}, 20, progress=False),
    "evaluate": lambda: ox.evaluate(ox.policies.tabular()(problem.env, jax.random.key(0)), problem,
    2), "solve": lambda: ox.solve(problem),
}
if sys.argv[1] != "nothing":
    calls[sys.argv[1]]()
if os.fork() == 0:
    try:
        calls[sys.argv[2]]()
        print("finished", flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def environment(compiled_fast: dict[str, str], *places: Path) -> dict[str, str]:
    return compiled_fast | {"PYTHONPATH": os.pathsep.join([*map(str, places), SOURCES])}


def wait_for(condition: Any, process: "subprocess.Popen[Any]") -> None:
    end = time.monotonic() + 100
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


def test_sighup_is_left_alone_where_it_is_ignored():
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        assert ending_signals() == [signal.SIGINT, signal.SIGTERM]
        problem = ox.Problem(ox.TabularMDP.chain(3), horizon=4)
        hangs_up: Any = lambda _: os.kill(os.getpid(), signal.SIGHUP)  # noqa: E731
        result = ox.train(problem, ox.REINFORCE(batch=2), 20, callbacks=[hangs_up], progress=False)
        assert result.episodes[-1] == 20
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert ending_signals() == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        with pytest.raises(Terminated) as ended:
            ox.train(problem, ox.REINFORCE(batch=2), 20, callbacks=[hangs_up], progress=False)
        assert ended.value.number == signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_closed_leaves_a_checkpoint(
    tmp_path: Path, compiled_fast: dict[str, str]
):
    terminal, inside = pty.openpty()
    command = [sys.executable, "-c", IN_TERMINAL, *TRAIN, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        command,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=environment(compiled_fast),
        start_new_session=True,
    )
    os.close(inside)
    records = tmp_path / "run" / "metrics.csv"
    wait_for(lambda: records.exists() and records.stat().st_size > 200, process)
    os.close(terminal)  # which sends SIGHUP, and nothing can be printed any more
    assert process.wait(60) == 128 + signal.SIGHUP
    assert list((tmp_path / "run" / "checkpoint").glob("iteration-*"))


def server_imports(group: int) -> bool:
    """Return whether the fork server of a process group runs."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if (
                b"multiprocessing.forkserver" in file.read_bytes()
                and os.getpgid(int(file.parent.name)) == group
            ):
                return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
@pytest.mark.parametrize(
    ("importing", "number"),
    [("server", signal.SIGINT), ("process", signal.SIGINT), ("process", signal.SIGHUP)],
)
def test_a_signal_while_processes_of_environments_start(
    importing: str, number: int, tmp_path: Path, compiled_fast: dict[str, str]
):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "script.py").write_text(
        "import slow\n"
        "import occupax as ox\n"
        "if __name__ == '__main__':\n"
        "    env = ox.GymnasiumEnv(slow.make)\n"
        "    print('begun', flush=True)\n"
        "    sampler = ox.samplers.Host(envs=2, processes=2)\n"
        "    options = dict(sampler=sampler, progress=False)\n"
        "    ox.train(ox.Problem(env, horizon=9), ox.REINFORCE(batch=2), 10**9, **options)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(compiled_fast, tmp_path),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    imports = tmp_path / "imports"
    if importing == "server":
        wait_for(lambda: server_imports(process.pid), process)
    else:
        wait_for(
            lambda: imports.read_text().count("begun") > 1, process
        )  # the first is that of the script
    os.killpg(process.pid, number)
    said = process.communicate(timeout=100)[1]
    assert said.count("Traceback") == 1  # that of this script, which catches neither exception
    if number == signal.SIGHUP:
        assert process.returncode == 1
        assert said.splitlines()[-1].startswith("occupax.training.loop.Terminated: stopped after ")
    else:
        assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
        assert said.splitlines()[-1].startswith("KeyboardInterrupt: stopped after ")


def run(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=100, check=False
    )


def test_python_m_occupax_is_the_command(compiled_fast: dict[str, str]):
    env = environment(compiled_fast)
    done = run("-m", "occupax", "--version", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"occupax {ox.__version__}\n", "")
    done = run("-m", "occupax", "solve", "--help", env=env)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: occupax solve ")
    done = run("-m", "occupax", "tarin", env=env)
    assert done.returncode == 2
    assert "__main__" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.parametrize(
    ("before", "after"),
    [("solve", "train"), ("evaluate", "sweep"), ("sweep", "evaluate"), ("train", "solve")],
)
def test_a_process_forked_after_jax_was_used_is_told_so(
    before: str, after: str, compiled_fast: dict[str, str]
):
    done = run("-W", "ignore", "-c", FORK, before, after, env=environment(compiled_fast))
    assert done.stdout.startswith(
        "this process was forked after JAX had been used, and JAX would wait for threads"
    )
    assert done.stdout.count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_process_forked_before_jax_was_used_trains(compiled_fast: dict[str, str]):
    done = run("-c", FORK, "nothing", "train", env=environment(compiled_fast))
    assert done.stdout == "finished\n", done.stderr

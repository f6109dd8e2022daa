"""A cluster of `ray start` with token authentication, and programs that train on it."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import occupax as ox
from clustered import trained, weights

SCRIPT = """
import sys
import occupax as ox
from clustered import trained, weights

if __name__ == "__main__":
    sampler = ox.samplers.Ray(sys.argv[1] or None, workers=1, shards=2)
    print(weights(trained(sampler, 8)), flush=True)
    if not sys.argv[1]:  # and then for ever
        trained(sampler, 10**9, callbacks=[lambda _: print("going", flush=True)])
"""


class Head(NamedTuple):
    """A cluster of one machine, which is this one."""

    place: Path
    address: str
    """For those who are elsewhere."""
    env: dict[str, str]
    """Of a process that may join."""

    def begin(self, address: str, env: dict[str, str]) -> subprocess.Popen[str]:
        """Start a program that trains on the cluster."""
        command = [sys.executable, "-c", SCRIPT, address]
        return subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def workers(self) -> list[int]:
        """The processes that sample on this cluster."""
        found: dict[int, tuple[int, str]] = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(place.name)] = parent, (place / "cmdline").read_text().replace("\0", " ")
        ours = {
            number
            for number, (_, command) in found.items()
            if "/raylet " in command and str(self.place) in command
        }
        return [
            number
            for number, (parent, command) in found.items()
            if parent in ours and "ray::Remote" in command
        ]


@pytest.fixture(scope="module")
def head(compiled_fast: dict[str, str]) -> Iterator[Head]:
    """Start a cluster like the tutorial, with a token and with ports of its own."""
    place = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: sockets are in it
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = compiled_fast | {"RAY_TMPDIR": str(place), "RAY_USAGE_STATS_ENABLED": "0"}
    env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a-secret-of-this-test"}
    env["RAY_worker_niceness"] = (
        "0"  # with Ray's own, they starve where other tests keep all cores busy
    )
    # Ray's client server forks to start a process for each client. What gRPC does in the child
    # then, on descriptors that are closed at the same time, ended one such process in eight on busy
    # cores.
    env["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    env["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[1] / "helpers"), env.get("PYTHONPATH", "")]
    )
    ray = str(Path(sys.executable).with_name("ray"))
    more = [f"--ray-client-server-port={port}"] if importlib.util.find_spec("grpc") else []
    command = [
        ray,
        "start",
        "--head",
        "--block",
        "--port=0",
        "--num-cpus=1",
        f"--temp-dir={place}",
        *more,
    ]
    with (place / "said").open("w") as said:
        process = subprocess.Popen(command, env=env, stdout=said, stderr=said)
    try:
        end = time.monotonic() + 60
        while not (place / "ray_current_cluster").exists():
            assert process.poll() is None, (place / "said").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        yield Head(place, f"ray://127.0.0.1:{port}", env)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def expected() -> str:
    """Return the result of training without a cluster."""
    return weights(trained(ox.samplers.Host(shards=2), 8))


def test_ray_address_auto_joins_what_ray_start_began_and_a_killed_driver_leaves_no_worker(
    head, expected
):
    with head.begin("", head.env | {"RAY_ADDRESS": "auto"}) as driver:
        watch = threading.Timer(
            100, driver.kill
        )  # it may have joined a cluster of somebody else, and wait
        watch.start()
        said = [driver.stdout.readline().strip() for _ in range(2)]
        watch.cancel()
        there = head.workers()
        driver.send_signal(signal.SIGKILL)
        assert (said, len(there)) == ([expected, "going"], 1), driver.communicate()[1]
    end = time.monotonic() + 60
    while head.workers():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_address_of_ray_client_is_joined_with_a_token_and_not_without(head, expected):
    pytest.importorskip("grpc", reason="it needs ray[client]")
    outside = {name: value for name, value in head.env.items() if not name.startswith("RAY_AUTH")}
    outside |= {
        f"RAY_CLIENT_{which}_CONNECTION_TIMEOUT_S": "1" for which in ("INITIAL", "MAX")
    }  # of three tries
    with (
        head.begin(head.address, outside) as stranger,
        head.begin(head.address, head.env) as driver,
    ):
        out, err = driver.communicate(timeout=100)
        assert out.strip() == expected, err
        said = stranger.communicate(timeout=100)[1].strip().splitlines()[-1]
    assert said.startswith(f"ValueError: no Ray cluster at {head.address!r} could be joined: ")
    assert said.endswith(
        "If it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN in the environment."
    )

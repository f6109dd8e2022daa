"""A cluster of machines, by Ray."""

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from occupax.signals import ending_signals

LOSSES = 3
"""How many workers may be lost over one task before the task is taken for the reason."""


class Cluster:
    """A connection to a cluster. One that was made here is ended by `close`."""

    def __init__(self, address: str | None, cores: int | None):
        """Join a cluster, or start one with so many cores."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        try:
            with _later_signals():
                import ray
                from ray.exceptions import RayError
        except ImportError:
            raise ValueError("a cluster needs Ray: pip install 'occupax[ray]'.") from None
        self.ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            fresh: dict[str, Any] = {"num_cpus": cores, "include_dashboard": False}
            more = fresh if address == "local" else {}
            try:
                with warnings.catch_warnings():
                    # a fork is safe here, because another program replaces the process at once
                    warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
                    with _kept_handler():
                        ray.init(
                            address=address,
                            log_to_driver=False,
                            logging_level=logging.ERROR,
                            **more,
                        )
            except (OSError, ValueError, RuntimeError, RayError) as error:
                why = (
                    str(error).strip().splitlines()[-1].rstrip(".")
                )  # Ray adds what its server printed
                raise ValueError(
                    f"no Ray cluster at {address!r} could be joined: {why}. If it asks for a "
                    "token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN in the environment."
                ) from error

    def send(self, *contents: Any) -> "Package":
        """Put values into the memory of the cluster."""
        try:
            return Package(tuple(sys.path), self.ray.put(contents))
        except TypeError as error:
            raise ValueError(
                f"the problem or the policy cannot be sent to a cluster: {error}."
            ) from error

    def cores(self) -> int:
        """Return the number of cores of the cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        """End the connection, if it was made here."""
        if self._ours:
            self.ray.shutdown()


@contextmanager
def _later_signals() -> Generator[None]:
    """Let ending signals wait: in the middle of its import, Ray may lose an exception."""
    noticed: list[int] = []
    with ExitStack() as stack:
        for number in ending_signals() if _in_main_thread() else ():
            stack.enter_context(_kept_handler(number))
            signal.signal(number, lambda number, _: noticed.append(number))
        yield
    for number in noticed:
        signal.raise_signal(number)


@contextmanager
def _kept_handler(number: int = signal.SIGTERM) -> Generator[None]:
    """Restore the handler of a signal, because Ray installs its own for SIGTERM."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if _in_main_thread():
            signal.signal(number, before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@dataclass(frozen=True)
class Package:
    """Values in the memory of a cluster, with the places where the sender finds modules."""

    path: tuple[str, ...]
    place: Any

    def open(self) -> Any:
        """Return the values, on a worker."""
        import ray

        sys.path.extend(place for place in self.path if place not in sys.path)
        return ray.get(self.place)

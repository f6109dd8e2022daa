"""A cluster of machines, by Ray, and what is sent there."""

import logging
import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import jax

from occupax.policies import Policy
from occupax.serial import FUNCTIONS

LOSSES = 3
"""How many workers a piece of work may cost before it is taken for the reason."""


class Cluster:
    """A connection to a cluster; one that began here ends here."""

    def __init__(self, address: str | None, cores: int | None):
        """Join a cluster, or start one with so many cores."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        try:
            import ray
        except ImportError:
            raise ValueError("a cluster needs Ray: pip install 'occupax[ray]'.") from None
        self.ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            fresh: dict[str, Any] = {"num_cpus": cores, "include_dashboard": False}
            more = fresh if address == "local" else {}
            try:
                with warnings.catch_warnings():  # of a fork, which is followed by another program at once
                    warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **more)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ValueError(f"there is no Ray cluster at {address!r}: {error}") from error

    def parcel(self, *contents: Any) -> "Parcel":
        """Put values into the memory of the cluster."""
        try:
            return Parcel(tuple(sys.path), self.ray.put(contents))
        except TypeError as error:
            raise ValueError(f"what is trained cannot be sent to a cluster: {error}.") from error

    def cores(self) -> int:
        """How many cores it has."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        """Leave it, if it was joined here."""
        if self._ours:
            self.ray.shutdown()


@dataclass(frozen=True)
class Parcel:
    """Values on their way to a worker of the same cluster, who looks for their modules where they were found before."""

    path: tuple[str, ...]
    place: Any

    def open(self) -> Any:
        """The values."""
        import ray

        sys.path.extend(place for place in self.path if place not in sys.path)
        return ray.get(self.place)


@dataclass(frozen=True)
class Known:
    """A function by name: those of JAX do not arrive as what they were."""

    name: str


def parting(policy: Policy) -> Policy:
    """A policy ready to be sent."""
    known = {id(function): Known(name) for name, function in FUNCTIONS.items()}
    return jax.tree.map(lambda leaf: known.get(id(leaf), leaf), policy)


def arrived(policy: Policy) -> Policy:
    """A policy that was sent."""
    return jax.tree.map(lambda leaf: FUNCTIONS[leaf.name] if isinstance(leaf, Known) else leaf, policy)

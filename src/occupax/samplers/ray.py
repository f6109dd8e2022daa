"""Sampling on a cluster, with Ray.

Every worker is an actor of Ray with environments of its own. It is given tasks, one at a time: to draw shards of a
batch, if it has not drawn them already, and to answer a request about them. If a worker or its machine is lost, its
task is given to another; the answer would have been the same.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt32

from occupax._compiled import arrays_of, with_arrays
from occupax._errors import check_integer, check_number
from occupax.baselines import Regression
from occupax.batch import Earnings, Transitions
from occupax.policies import Observed, Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler, Source
from occupax.samplers.batches.block import ABOUT_VECTORS, Request, Tally
from occupax.samplers.batches.shards import Shard, ShardedBatch, answering, split
from occupax.samplers.cluster import Cluster, Package, with_function_names, with_functions
from occupax.samplers.host import Host
from occupax.samplers.kernel import Engine
from occupax.samplers.workers import Workers

Arrays = list[np.ndarray]
LARGE = 100_000
"""Policies of more bytes are put into the memory of the cluster once, instead of being sent with every task."""

SUMS: dict[str, Any] = {
    "earnings": Earnings,
    "observed": Observed,
    "regression": Regression,
    "tally": Tally,
    "transitions": Transitions,
}
"""What the arrays of an answer are the fields of."""

RUNS_AT_ONCE = 16
"""How many runs draw from a cluster at the same time; a worker keeps the shards of as many batches."""


@dataclass(frozen=True)
class Ray(Sampler):
    """Samples on a cluster of machines with Ray, or on all cores of this one.

    Args:
        address: of the cluster, such as "auto" or "ray://head:10001"; by default the one that the environment variable
            RAY_ADDRESS names or, if there is none, a new one on this machine.
        workers: how many; by default one for each core of the cluster. It does not change the results.
        envs: how many environments of Gymnasium each worker has, which take turns.
        timeout: how many seconds a step of all environments of a worker may take; beyond it the training ends with an
            error.
        patience: how many seconds to wait for a first worker, or for another after the last was lost. If a worker takes
            longer over a task, one that has nothing else to do is given it too.
        shards: in how many parts a batch is split up, of which a worker has one at a time. Equal shards give results
            that are equal to the last bit, whoever samples.
        engine: what computes the estimates, as for `Host`.
    """

    address: str | None = None
    workers: int | None = None
    envs: int = 1
    timeout: float = 60.0
    patience: float = 120.0
    shards: int = 8
    engine: Engine = "auto"

    def __post_init__(self) -> None:
        if self.address is not None and not isinstance(self.address, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"address must be a text such as 'ray://head:10001', got {self.address!r}.")
        for name in ("envs", "shards", *([] if self.workers is None else ["workers"])):
            check_integer(name, getattr(self, name))
        for name in ("timeout", "patience"):
            check_number(name, getattr(self, name), low=0.0, open_low=True)

    @property
    def host(self) -> Host:
        """How each worker samples."""
        return Host(envs=self.envs, timeout=self.timeout, engine=self.engine)

    def open(self, problem: Problem, policy: Policy) -> "RaySource":
        """Join the cluster and start the workers."""
        cluster = Cluster(self.address, self.workers)
        workers = cluster.cores() if self.workers is None else self.workers
        double = bool(jax.config.read("jax_enable_x64"))
        try:
            sent = cluster.send(self.host, problem, with_function_names(policy), double)
            pool = Workers(cluster, RemoteWorker, sent, workers, self.patience)
        except BaseException:
            cluster.close()
            raise
        return RaySource(problem, pool, self.shards, count())

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Those of the workers."""
        return self.host.random_numbers(problem, policy)


class RaySource(Source):
    """Draws batches on the workers of a cluster."""

    problem: Problem
    workers: Workers
    shards: int
    numbers: "count[int]"
    """Of the batches that are drawn."""

    @property
    def runs_at_once(self) -> int:
        """As many as keep the workers busy."""
        return RUNS_AT_ONCE

    def draw(self, policy: Policy, n: int, key: Key[Array, ""]) -> ShardedBatch:
        """A batch whose shards are drawn by the workers when they are asked for the first time."""
        shards, size = split(n, self.shards)
        batch = RemoteBatch(next(self.numbers), size, np.asarray(jax.random.key_data(key)))
        sent: dict[int, tuple[Policy, Any]] = {}  # by the identity of policies, which live as long as this

        def send(sent_policy: Policy) -> Any:
            if id(sent_policy) not in sent:
                arrays = _sent(sent_policy)
                large = sum(array.nbytes for array in arrays) > LARGE
                sent[id(sent_policy)] = sent_policy, self.workers.put(arrays) if large else arrays
            return sent[id(sent_policy)][1]

        tallies: dict[Any, list[Any]] = {}

        def ask(about: tuple[Shard, ...], request: Request) -> list[Any]:
            target = None if request.target is policy else request.target
            known = id(target), request.half, about
            if request.kind == "tally" and known in tallies:
                return tallies[known]
            kinds = ("occupancy", "tally") if request.kind == "occupancy" else (request.kind,)
            told = [_without_target(request)._replace(kind=kind) for kind in kinds]
            there = None if target is None else send(target)
            found = self.workers.ask(batch, about, send(policy), there, told)
            answers = [[_restored(policy, kind, it[i]) for it in found] for i, kind in enumerate(kinds)]
            if request.kind == "occupancy":  # its sums for the records are asked for later, and cost little now
                tallies[known] = answers[1]
            return answers[0]

        return ShardedBatch(self.problem, shards, n, size, ask)

    def close(self) -> None:
        """End the workers, and the connection to the cluster."""
        self.workers.close()


class RemoteBatch(NamedTuple):
    """Which batch a task is about."""

    number: int
    part_size: int
    key: UInt32[np.ndarray, "2"]


class RemoteWorker:
    """Draws shards and answers requests about them, on the cluster; keeps the shards of the latest batches."""

    def __init__(self, package: Package):
        host, problem, policy, self._double = package.open()
        self._policy = with_functions(policy)
        self._source = host.open(problem, self._policy)
        self._drawn: OrderedDict[int, dict[Shard, Callable[[Request], Any]]] = OrderedDict()

    def ready(self) -> None:
        """Return as soon as the worker has been made."""

    def answer(
        self, batch: RemoteBatch, shards: Sequence[Shard], acting: Arrays, target: Arrays | None, asked: list[Request]
    ) -> list[list[Arrays]]:
        """The arrays of the answers to some requests about each of some shards."""
        with jax.enable_x64(self._double):
            form = eqx.filter(self._policy, eqx.is_inexact_array) if asked[0].kind in ABOUT_VECTORS else self._policy
            about = None if target is None else with_arrays(form, target)
            asked = [request._replace(target=about) for request in asked]
            blocks = [self._block(batch, shard, acting) for shard in shards]
            return [[_sent(block(request)) for request in asked] for block in blocks]

    def _block(self, batch: RemoteBatch, shard: Shard, acting: Arrays) -> Callable[[Request], Any]:
        drawn = self._drawn.setdefault(batch.number, {})
        self._drawn.move_to_end(batch.number)
        while len(self._drawn) > RUNS_AT_ONCE:
            self._drawn.popitem(last=False)
        if shard not in drawn:
            key = jax.random.wrap_key_data(jnp.asarray(batch.key))
            policy = with_arrays(self._policy, [jnp.asarray(array) for array in acting])
            drawn[shard] = answering(self._source.block(policy, key, shard, batch.part_size))
        return drawn[shard]


def _without_target(request: Request) -> Request:
    """A request that can be sent: arrays of NumPy, and no policy, whose arrays are sent on their own."""
    reward, baseline = request.quasi_reward, request.baseline
    return request._replace(
        target=None,
        quasi_reward=None if reward is None else np.asarray(reward),
        baseline=baseline if isinstance(baseline, str) else jax.tree.map(np.asarray, baseline),
    )


def _sent(tree: Any) -> Arrays:
    return [np.asarray(array) for array in arrays_of(tree)]


def _restored(policy: Policy, kind: str, arrays: Arrays) -> Any:
    there = [jnp.asarray(array) for array in arrays]
    if kind in ("gradient", "fisher_vector"):
        return with_arrays(eqx.filter(policy, eqx.is_inexact_array), there)
    if kind == "hessian_vector":
        return there[0], with_arrays(eqx.filter(policy, eqx.is_inexact_array), there[1:])
    return there[0] if kind == "occupancy" else SUMS[kind](*there)

"""Sampling on a cluster, with Ray.

Every worker is an actor of Ray with environments of its own. It is given tasks, one at a time: to
draw shards of a batch, if it has not drawn them already, and to answer a query about them. If a
worker or its machine is lost, its task is given to another; the answer would have been the same.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt32

from occupax.batches.batch import Batch
from occupax.batches.caching import TreeCache
from occupax.batches.parted import PartedBatch, Path, Shard, Shards, compiled_answers, split
from occupax.batches.queries import Occupancy, Query, Tally
from occupax.errors import check_integer, check_number
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler, Source
from occupax.samplers.cluster import Cluster, Package
from occupax.samplers.host import Host
from occupax.samplers.kernel import Engine
from occupax.samplers.messages import (
    Place,
    SentPolicy,
    as_arrays,
    received,
    sent,
    sent_policy,
    with_function_names,
    with_functions,
)
from occupax.samplers.workers import Workers

LARGE = 100_000
"""Policies of more bytes are put into the memory of the cluster once, instead of being sent with
every task."""

RUNS_AT_ONCE = 16
"""How many runs draw from a cluster at the same time; a worker keeps the shards of as many
batches."""


@dataclass(frozen=True)
class Ray(Sampler):
    """Samples on a cluster of machines with Ray, or on all cores of this one.

    Args:
        address: of the cluster, such as "auto" or "ray://head:10001"; by default the one that the
            environment variable RAY_ADDRESS names or, if there is none, a new one on this machine.
        workers: how many; by default one for each core of the cluster. It does not change the
            results.
        envs: how many environments of Gymnasium each worker has, which take turns.
        timeout: how many seconds a step of all environments of a worker may take; beyond it the
            training ends with an error.
        patience: how many seconds to wait for a first worker, or for another after the last was
            lost. If a worker takes longer over a task, one that has nothing else to do is given it
            too.
        shards: in how many parts a batch is split up, of which a worker has one at a time. Equal
            shards give results that are equal to the last bit, whoever samples.
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
            raise ValueError(
                f"address must be a string such as 'ray://head:10001', got {self.address!r}."
            )
        for name in ("envs", "shards", *([] if self.workers is None else ["workers"])):
            check_integer(name, getattr(self, name))
        for name in ("timeout", "patience"):
            check_number(name, getattr(self, name), low=0.0, open_low=True)

    @property
    def host(self) -> Host:
        """Sampler of each worker."""
        return Host(envs=self.envs, timeout=self.timeout, engine=self.engine)

    def open(self, problem: Problem, policy: Policy) -> "RaySource":
        """Join the cluster and start the workers."""
        cluster = Cluster(self.address, self.workers)
        workers = cluster.cores() if self.workers is None else self.workers
        double = bool(jax.config.read("jax_enable_x64"))
        try:
            package = cluster.send(self.host, problem, with_function_names(policy), double)
            pool = Workers(cluster, RemoteWorker, package, workers, self.patience)
        except BaseException:
            cluster.close()
            raise
        return RaySource(problem, pool, self.shards, count())

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Return the identifier of the random numbers of the workers."""
        return self.host.random_numbers(problem, policy)


class RaySource(Source):
    """Draws batches on the workers of a cluster."""

    problem: Problem
    workers: Workers
    shards: int
    numbers: "count[int]"
    """Numbers of the batches, in the order of sampling."""

    @property
    def runs_at_once(self) -> int:
        """Number of runs that sample at the same time, enough to keep the workers busy."""
        return RUNS_AT_ONCE

    def draw(self, policy: Policy, n: int, key: Key[Array, ""]) -> Batch:
        """Return a batch whose shards are drawn by the workers at the first query."""
        shards, size = split(n, self.shards)
        key_data = np.asarray(jax.random.key_data(key))
        batch = RemoteBatch(next(self.numbers), size, key_data)
        answers = RemoteAnswers(self.workers, batch, policy)
        return PartedBatch(self.problem, Shards(shards, n, size, answers))

    def close(self) -> None:
        """End the workers, and the connection to the cluster."""
        self.workers.close()


class RemoteBatch(NamedTuple):
    """Batch of a task: number, shard size and random key."""

    number: int
    part_size: int
    key: UInt32[np.ndarray, "2"]


class RemoteAnswers:
    """Answers of the workers about the shards of one batch."""

    def __init__(self, workers: Workers, batch: RemoteBatch, policy: Policy):
        self._workers = workers
        self._batch = batch
        self._policy = policy
        self._sent = TreeCache()
        self._tallies: dict[tuple[tuple[Shard, ...], Path], TreeCache] = defaultdict(TreeCache)
        """Sums for the log, which cost little beside an occupancy, and would be a journey of their
        own later."""

    def __call__(self, shards: tuple[Shard, ...], query: Query[Any], path: Path) -> list[Any]:
        """Return the answers about some shards."""
        tallies = self._tallies[shards, path]
        known = tallies.find(query)
        if known is not None:
            return known
        if not isinstance(query, Occupancy):
            return self._ask(shards, path, [query])[0]
        tally = Tally(target=query.target, is_complete=query.is_complete)
        answers, sums = self._ask(shards, path, [query, tally])
        tallies.add(tally, sums)
        return answers

    def _ask(
        self, shards: tuple[Shard, ...], path: Path, queries: list[Query[Any]]
    ) -> list[list[Any]]:
        """Return, for each query, the answers about the shards."""
        policies = [self._send(self._policy)]

        def place(policy: Policy) -> Place:
            policies.append(self._send(policy))
            return Place(len(policies) - 1)

        questions = [sent(query, place) for query in queries]
        by_shard = self._workers.ask(self._batch, shards, path, questions, *policies)
        return [
            [received(answers[i], self._policy) for answers in by_shard]
            for i in range(len(queries))
        ]

    def _send(self, policy: Policy) -> Any:
        """Return a policy as it is sent. A large one is put into the memory of the cluster once."""
        message = self._sent.find(policy)
        if message is None:
            message = sent_policy(policy)
            message = self._workers.put(message) if message.nbytes > LARGE else message
            self._sent.add(policy, message)
        return message


class RemoteWorker:
    """Worker on the cluster, which draws and caches shards and computes the answers to queries."""

    def __init__(self, package: Package):
        host, problem, policy, self._double = package.open()
        self._policy = with_functions(policy)
        self._source = host.open(problem, self._policy)
        self._drawn: OrderedDict[int, dict[Shard, Callable[..., Any]]] = OrderedDict()

    def ready(self) -> None:
        """Return as soon as the worker has been made."""

    def answer(
        self,
        batch: RemoteBatch,
        shards: Sequence[Shard],
        path: Path,
        questions: list[Any],
        *policies: SentPolicy,
    ) -> list[list[Any]]:
        """Return, for each shard, the answers to some queries, as they are sent.

        Args:
            batch: the batch.
            shards: some of its shards.
            path: which part of each shard is queried.
            questions: the queries, with places in the place of policies.
            policies: the behaviour policy, and those of the queries.
        """
        with jax.enable_x64(self._double):
            known = [policy.received(self._policy) for policy in policies]
            queries = [_with_policies(question, known) for question in questions]
            by_shard = [self._shard(batch, shard, known[0]) for shard in shards]
            return [[sent(answer(query, path)) for query in queries] for answer in by_shard]

    def _shard(self, batch: RemoteBatch, shard: Shard, acting: Policy) -> Callable[..., Any]:
        """Return the function that answers queries on a shard. Draw the shard if necessary."""
        sampled = self._drawn.setdefault(batch.number, {})
        self._drawn.move_to_end(batch.number)
        while len(self._drawn) > RUNS_AT_ONCE:
            self._drawn.popitem(last=False)
        if shard not in sampled:
            key = jax.random.wrap_key_data(jnp.asarray(batch.key))
            block = self._source.block(as_arrays(acting), key, shard, batch.part_size)
            sampled[shard] = compiled_answers(block)
        return sampled[shard]


def _with_policies(question: Any, policies: list[Policy]) -> Query[Any]:
    return jax.tree.map(
        lambda leaf: policies[leaf.index] if isinstance(leaf, Place) else leaf, question
    )

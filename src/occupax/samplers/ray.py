"""Sampling on a cluster, with Ray.

Every worker is an actor with environments of its own. It is given shards of batches, one at a time, and sends back
sums. Whose worker or machine is lost, that shard is given to another; the answer would have been the same.
"""

import time
from dataclasses import dataclass
from typing import Any

import jax

from occupax._errors import check_integer, check_number
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.cluster import LOSSES, Cluster, Parcel, arrived, parting
from occupax.samplers.engine import Engine
from occupax.samplers.episodes import EpisodeError, episode_seeds
from occupax.samplers.pools import Host
from occupax.samplers.shards import Answers, Flat, Inquiry, Pool, Shard, Worker, equal

Task = tuple[Inquiry, Shard]


@dataclass(frozen=True)
class Ray:
    """Samples on a cluster of machines with Ray, or on all cores of this one.

    Args:
        address: of the cluster, such as "auto" or "ray://head:10001"; by default the one that the environment variable
            RAY_ADDRESS names or, if there is none, a new one on this machine.
        workers: how many; by default one for each core of the cluster. It does not change the results.
        envs: how many environments of Gymnasium each worker has, which take turns.
        timeout: how many seconds a step of all environments of a worker may take; beyond it the training ends with an
            error.
        patience: how many seconds to wait for a first worker, or for another after the last was lost. If a worker takes
            longer over a shard, one that has nothing else to do is given it too.
        shards: in how many parts a batch is split up, of which a worker has one at a time. Equal shards give results
            that are equal to the last bit, whoever samples.
    """

    address: str | None = None
    workers: int | None = None
    envs: int = 1
    timeout: float = 60.0
    patience: float = 120.0
    shards: int = 8

    def __post_init__(self) -> None:
        if self.address is not None and not isinstance(self.address, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"address must be a text such as 'ray://head:10001', got {self.address!r}.")
        for name in ("envs", "shards", *([] if self.workers is None else ["workers"])):
            check_integer(name, getattr(self, name))
        for name in ("timeout", "patience"):
            check_number(name, getattr(self, name), low=0.0, open_low=True)

    def open(self, problem: Problem, policy: Policy, engine: Engine) -> Pool:
        """Join the cluster and start the workers."""
        cluster = Cluster(self.address, self.workers)
        host = Host(envs=self.envs, timeout=self.timeout)
        workers = cluster.cores() if self.workers is None else self.workers
        worker = host, problem, parting(policy), engine, bool(jax.config.read("jax_enable_x64"))
        try:
            return Actors(cluster, worker, workers, self.patience, self.shards)
        except BaseException:
            cluster.close()
            raise


class Member:
    """A worker on the cluster."""

    def __init__(self, parcel: Parcel):
        host, problem, policy, engine, self._double = parcel.open()
        policy = arrived(policy)
        self._worker = Worker(host.sampler(problem, policy, engine), policy)

    def is_there(self) -> None:
        """Return."""

    def answer(self, inquiry: Inquiry, policies: tuple[Flat, ...], shard: Shard) -> Answers:
        """See `Worker.answer`; the policies come apart, because they are sent once an iteration."""
        with jax.enable_x64(self._double):
            return self._worker.answer(inquiry._replace(policies=policies), shard)


@dataclass
class Seat:
    """The place of a worker, who may be lost and replaced."""

    actor: Any
    doing: Any
    """What it was asked and has not answered yet; the first thing is whether it is there."""
    since: float
    task: int | None = None
    """The number of the task it works at; none if nobody waits for the answer."""
    is_there: bool = False


class Round:
    """The tasks of one round of questions, and what became of them."""

    def __init__(self, tasks: list[Task]):
        self.tasks, self.left = tasks, list(range(len(tasks)))
        self.found: dict[int, Answers] = {}
        self._losses = [0] * len(tasks)

    def lose(self, number: int) -> None:
        """Note that a worker was lost over a task, which is to be given to another."""
        self._losses[number] += 1
        if self._losses[number] == LOSSES:
            inquiry, shard = self.tasks[number]
            seeds = episode_seeds(inquiry.key, shard.first, shard.stop)
            raise EpisodeError(
                f"{LOSSES} workers died over the episodes {shard.first} to {shard.stop - 1}, whose seeds are "
                f"{', '.join(map(str, seeds[:10]))}{', ...' if len(seeds) > 10 else ''}."
            )
        self.left.insert(0, number)


class Actors(Pool):
    """Workers that are actors of Ray."""

    def __init__(self, cluster: Cluster, worker: tuple[Any, ...], workers: int, patience: float, shards: int):
        super().__init__(shards)
        self._cluster, self._ray, self._patience = cluster, cluster.ray, patience
        self._kind = self._ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Member)
        self._worker = cluster.parcel(*worker)
        self._failed_starts = 0
        self._seats = [self._start() for _ in range(workers)]
        self._iteration = -1
        self._sent: dict[int, tuple[tuple[Flat, ...], Any]] = {}
        """The policies of each run in the present iteration, and where they are in the cluster's memory."""
        self._home: dict[tuple[int, Shard], Seat] = {}
        """Who drew which shard of which run, and can answer more about it without drawing it again."""

    def answers(self, tasks: list[Task]) -> list[Answers]:
        """Give every task to a worker until all are done."""
        work, lonely_since = Round(tasks), time.monotonic()
        if tasks[0][0].iteration != self._iteration:
            self._iteration, self._sent, self._home = tasks[0][0].iteration, {}, {}
        for seat in self._seats:
            seat.task = None  # a late answer to what another has answered
        while len(work.found) < len(tasks):
            self._hand_out(work)
            busy = {seat.doing: seat for seat in self._seats if seat.doing is not None}
            self._ray.wait(list(busy), num_returns=1, timeout=1.0)
            ready, _ = self._ray.wait(list(busy), num_returns=len(busy), timeout=0)
            for answered in ready:
                self._receive(busy[answered], work)
            if any(seat.is_there for seat in self._seats):
                lonely_since = time.monotonic()
            elif time.monotonic() - lonely_since > self._patience:
                raise EpisodeError(
                    f"no worker was there for {self._patience:g} seconds: the cluster has {self._cluster.cores()} "
                    "cores, and each worker needs one."
                )
        return [work.found[number] for number in range(len(tasks))]

    def close(self) -> None:
        """Dismiss the workers, and leave the cluster."""
        for seat in self._seats:
            self._ray.kill(seat.actor)
        self._cluster.close()

    def _start(self) -> Seat:
        actor = self._kind.remote(self._worker)
        return Seat(actor, actor.is_there.remote(), time.monotonic())

    def _hand_out(self, work: Round) -> None:
        """Give every free worker a task: one it has drawn already, or one that nobody has, or one that takes long."""
        for seat in self._seats:
            if seat.doing is not None:
                continue
            owners = {number: self._home.get(_place(work.tasks[number])) for number in work.left}
            mine = [number for number, owner in owners.items() if owner is seat]
            free = [number for number, owner in owners.items() if owner is None or self._is_late(owner)]
            late = {other.task for other in self._seats if other.task is not None and self._is_late(other)}
            in_time = {other.task for other in self._seats if not self._is_late(other)}
            late = sorted(late - in_time - work.found.keys())
            for number in [*mine, *free, *late][:1]:
                if number in work.left:
                    work.left.remove(number)
                inquiry, shard = work.tasks[number]
                told = inquiry._replace(policies=())
                seat.doing = seat.actor.answer.remote(told, self._send(inquiry), shard)
                seat.task, seat.since = number, time.monotonic()

    def _is_late(self, seat: Seat) -> bool:
        return seat.doing is not None and time.monotonic() - seat.since > self._patience

    def _send(self, inquiry: Inquiry) -> Any:
        """Where the policies of an inquiry are in the cluster's memory; they are put there once an iteration."""
        sent, place = self._sent.get(inquiry.run, ((), None))
        if len(sent) != len(inquiry.policies) or not all(map(equal, sent, inquiry.policies)):
            place = self._ray.put(inquiry.policies)
            self._sent[inquiry.run] = inquiry.policies, place
        return place

    def _receive(self, seat: Seat, work: Round) -> None:
        doing, seat.doing, number, seat.task = seat.doing, None, seat.task, None
        try:
            answer = self._ray.get(doing)
        except self._ray.exceptions.RayTaskError as error:
            if number is None or number in work.found:  # another has answered
                return
            cause = error.cause
            known = isinstance(cause, EpisodeError)
            raise EpisodeError(str(cause) if known else f"a worker failed. {type(cause).__name__}: {cause}") from error
        except self._ray.exceptions.RayError as error:
            self._replace(seat, error)
            if number is not None and number not in work.found:
                work.lose(number)
            return
        seat.is_there, self._failed_starts = True, 0
        if number is not None:
            work.found.setdefault(number, answer)
            self._home[_place(work.tasks[number])] = seat

    def _replace(self, seat: Seat, error: Exception) -> None:
        """Put another worker in the place of one that was lost."""
        self._failed_starts += not seat.is_there
        if self._failed_starts == LOSSES:
            raise EpisodeError(f"{LOSSES} workers could not be started: {error}") from error
        self._home = {place: owner for place, owner in self._home.items() if owner is not seat}
        new = self._start()
        seat.actor, seat.doing, seat.since, seat.is_there = new.actor, new.doing, new.since, False


def _place(task: Task) -> tuple[int, Shard]:
    return task[0].run, task[1]

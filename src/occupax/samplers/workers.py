"""The workers of a cluster, and who does which task."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from occupax.batches.parted import Shard
from occupax.samplers.cluster import LOSSES, Cluster
from occupax.samplers.episodes import EpisodeError, episode_seeds

GIVEN_UP = 10
"""After so many times the patience a worker that does not answer is ended."""
SECONDS_TO_END = 30.0
"""How long is waited at the end for threads to hear that their workers are gone."""


@dataclass(eq=False)
class ShardTask:
    """Shards of one batch that one worker is asked about."""

    batch: Any
    shards: tuple[Shard, ...]
    arguments: tuple[Any, ...]
    """The rest of what `RemoteWorker.answer` takes."""
    home: "Worker | None"
    """The worker that has drawn the shards already, if there is one."""
    answer: "Future[list[Any]]" = field(default_factory=Future)
    workers: "list[Worker]" = field(default_factory=list)
    """Who is at work on it."""
    losses: int = 0


@dataclass(eq=False)
class Worker:
    """An actor of Ray, which is replaced when it is lost."""

    actor: Any
    ready: bool = False
    since: float | None = None
    """When it was given the task that it is at work on, if there is one."""


class Workers:
    """Gives tasks to workers: each of them has a thread here, which waits for its answers.

    The actors are of the class `kind`, each made from `package`. After `patience` seconds a worker
    is late, and an idle one takes over its task; as long is waited when no worker is there. After
    ten times as long it is replaced.
    """

    def __init__(self, cluster: Cluster, kind: type, package: Any, count: int, patience: float):
        self._cluster, self._ray, self._patience, self._package = (
            cluster,
            cluster.ray,
            patience,
            package,
        )
        self._kind = self._ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(kind)
        self._changed = threading.Condition()
        self._tasks: list[ShardTask] = []
        self._home: dict[tuple[int, Shard], Worker] = {}
        self._newest = 0
        self._failed_starts, self._failure = 0, ""
        self._closed = False
        self._workers = [Worker(self._kind.remote(package)) for _ in range(count)]
        self._threads: list[threading.Thread] = []
        for worker in self._workers:
            thread = threading.Thread(target=self._serve, args=(worker,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def put(self, value: Any) -> Any:
        """Put a value into the memory of the cluster."""
        return self._ray.put(value)

    def ask(self, batch: Any, shards: Sequence[Shard], *arguments: Any) -> list[Any]:
        """Return the answers of the workers for each shard, after the last worker has finished."""
        with self._changed:
            tasks = self._new_tasks(batch, shards, arguments)
            self._tasks += tasks
            self._changed.notify_all()
        answers: dict[Shard, Any] = {}
        try:
            self._wait(tasks)
            for task in tasks:
                answers.update(zip(task.shards, task.answer.result(), strict=True))
        finally:
            with self._changed:
                self._tasks = [task for task in self._tasks if task not in tasks]
        return [answers[shard] for shard in shards]

    def _new_tasks(
        self, batch: Any, shards: Sequence[Shard], arguments: tuple[Any, ...]
    ) -> list[ShardTask]:
        """Return a task for each new shard, and one for each worker that has drawn shards."""
        tasks: list[ShardTask] = []
        shards_by_worker: dict[Worker, list[Shard]] = {}
        for shard in dict.fromkeys(shards):
            worker = self._home.get((batch.number, shard))
            if worker is None:
                tasks.append(ShardTask(batch, (shard,), arguments, None))
            else:
                shards_by_worker.setdefault(worker, []).append(shard)
        for worker, own_shards in shards_by_worker.items():
            tasks.append(ShardTask(batch, tuple(own_shards), arguments, worker))
        return tasks

    def close(self) -> None:
        """End the workers, and the connection to the cluster.

        Ray must not be shut down under a thread that waits inside of it: that ends the whole
        process.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            self._ray.kill(worker.actor)
        end = time.monotonic() + SECONDS_TO_END
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._cluster.close()

    def _wait(self, tasks: list[ShardTask]) -> None:
        answers, last_seen = [task.answer for task in tasks], time.monotonic()
        while wait(answers, timeout=1.0, return_when="FIRST_EXCEPTION").not_done:
            if any(answer.done() and answer.exception() for answer in answers):
                return
            if self._failed_starts >= LOSSES:
                raise EpisodeError(self._failure)
            self._give_up_stuck()
            if any(worker.ready for worker in self._workers):
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > self._patience:
                raise EpisodeError(
                    f"no worker was there for {self._patience:g} seconds: the cluster has "
                    f"{self._cluster.cores()} cores, and each worker needs one."
                )

    def _give_up_stuck(self) -> None:
        """Kill workers that exceed the time of a task by far. They are replaced."""
        for worker in self._workers:
            if worker.since is None:
                continue
            current = time.monotonic()
            if current - worker.since > GIVEN_UP * self._patience:
                worker.since = current  # restart the timeout in case the kill has no effect
                self._ray.kill(worker.actor)

    def _serve(self, worker: Worker) -> None:
        """Give one worker tasks for as long as the pool is open."""
        while not self._closed:
            if not worker.ready and not self._start(worker):
                continue
            with self._changed:
                task = self._next(worker)
                if task is None:
                    self._changed.wait(1.0)  # another worker may be late by then
                    continue
                task.workers.append(worker)
                worker.since = time.monotonic()
            self._do(worker, task)

    def _start(self, worker: Worker) -> bool:
        """Wait until a worker is there. Whether it is."""
        try:
            self._ray.get(worker.actor.ready.remote())
        except Exception as error:  # noqa: BLE001 - Ray raises what the worker raised, and errors of its own
            if not self._closed:
                self._failed_starts += 1
                self._failure = f"{LOSSES} workers could not be started: {error}"
                if self._failed_starts < LOSSES:
                    worker.actor = self._kind.remote(self._package)
                else:
                    time.sleep(1.0)
            return False
        worker.ready, self._failed_starts = True, 0
        return True

    def _next(self, worker: Worker) -> ShardTask | None:
        """Return a task with shards of the worker, or an unstarted task, or one that is late."""
        waiting = [
            task for task in self._tasks if not task.answer.done() and worker not in task.workers
        ]
        mine = [task for task in waiting if task.home is worker and not task.workers]
        free = [
            task
            for task in waiting
            if not task.workers and (task.home is None or self._is_late(task.home))
        ]
        late = [task for task in waiting if task.workers and all(map(self._is_late, task.workers))]
        return next(iter([*mine, *free, *late]), None)

    def _is_late(self, worker: Worker) -> bool:
        return worker.since is not None and time.monotonic() - worker.since > self._patience

    def _do(self, worker: Worker, task: ShardTask) -> None:
        try:
            answer = self._ray.get(
                worker.actor.answer.remote(task.batch, task.shards, *task.arguments)
            )
        except self._ray.exceptions.RayTaskError as error:
            known = isinstance(error.cause, EpisodeError)
            reason = "" if known else f"a worker failed. {type(error.cause).__name__}: "
            self._end(worker, task, EpisodeError(f"{reason}{error.cause}"))
        except self._ray.exceptions.RayError:
            self._lose(worker, task)
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
            self._end(worker, task, error)
        else:
            with self._changed:
                if task.batch.number > self._newest:
                    self._newest = task.batch.number
                    self._home = {
                        key: home
                        for key, home in self._home.items()
                        if key[0] > self._newest - 1000
                    }
                self._home.update({(task.batch.number, shard): worker for shard in task.shards})
            self._end(worker, task, answer)

    def _end(self, worker: Worker, task: ShardTask, outcome: Any) -> None:
        with self._changed:
            worker.since = None
            if not task.answer.done():  # another may have been faster
                if isinstance(outcome, Exception):
                    task.answer.set_exception(outcome)
                else:
                    task.answer.set_result(outcome)
            self._changed.notify_all()

    def _lose(self, worker: Worker, task: ShardTask) -> None:
        """Replace a worker that was lost, and let another do its task."""
        with self._changed:
            worker.ready, worker.since = False, None
            self._home = {key: home for key, home in self._home.items() if home is not worker}
            for other in self._tasks:
                if other.home is worker:
                    other.home = None
            task.workers.remove(worker)
            task.losses += 1
            if self._closed:
                task.answer.cancel()
            else:
                worker.actor = self._kind.remote(self._package)
                if task.losses == LOSSES and not task.answer.done():
                    task.answer.set_exception(_lost(task))
            self._changed.notify_all()


def _lost(task: ShardTask) -> EpisodeError:
    first, stop = min(task.shards)[0], max(task.shards)[1]
    seeds = [seed for shard in task.shards for seed in episode_seeds(task.batch.key, *shard)]
    return EpisodeError(
        f"{LOSSES} workers died over the episodes {first} to {stop - 1}, whose seeds are "
        f"{', '.join(map(str, seeds[:10]))}{', ...' if len(seeds) > 10 else ''}."
    )

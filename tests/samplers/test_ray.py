"""Shards whose workers are lost, slow or wrong, on a mock of Ray without a cluster."""

import builtins
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ray import exceptions

import occupax as ox
from occupax.samplers import EpisodeError, host
from occupax.samplers.cluster import LOSSES, Cluster, Package
from occupax.samplers.episodes import episode_seeds
from occupax.samplers.ray import RaySource, RemoteWorker
from occupax.samplers.workers import Workers

KEY = jax.random.key(5)
N, SHARDS = 10, 4
Fate = Callable[[int, int], str]


class Actor:
    """Mock worker. `fate(actor, call)` is "answer", "fail", "die" or "hang"."""

    def __init__(self, number: int, worker: Any, fate: Fate):
        self.number, self.calls, self.killed = number, 0, threading.Event()
        self.ready = SimpleNamespace(remote=lambda: self._call(worker.ready, fate))
        self.answer = SimpleNamespace(
            remote=lambda *given: self._call(lambda: worker.answer(*given), fate)
        )

    def _call(self, function: Callable[[], Any], fate: Fate) -> Any:
        what = fate(self.number, self.calls)
        self.calls += 1
        return {"die": _die, "fail": _fail, "hang": self._hang}.get(what, function)

    def _hang(self) -> Any:
        while not RELEASED.wait(0.01):
            if self.killed.is_set():
                _die()
        return _fail()


RELEASED = threading.Event()
"""Ends all calls that hang, at the end of a test: their workers then fail, and nobody listens."""


def _die() -> Any:
    raise exceptions.RayActorError


def _fail() -> Any:
    raise exceptions.RayTaskError("answer", "", EpisodeError("episode 3 (seed 5) is wrong"))


class PlayedRay:
    """The parts of Ray's interface that the sampler uses."""

    exceptions = exceptions

    def __init__(self, fate: Fate):
        self.fate, self.started, self.stored = fate, 0, 0

    def remote(self, **_: Any) -> Any:
        def kind(worker: Any) -> Any:
            def start(*parts: Any) -> Actor:
                self.started += 1
                return Actor(self.started - 1, worker(*parts), self.fate)

            return SimpleNamespace(remote=start)

        return kind

    def put(self, value: Any) -> Any:
        self.stored += 1
        return value

    def get(self, call: Callable[[], Any]) -> Any:
        return call()

    def kill(self, actor: Actor) -> None:
        actor.killed.set()


class PlayedPackage(Package):
    """Is there already."""

    def open(self) -> Any:
        return self.place


class PlayedCluster(Cluster):
    """Two cores."""

    def __init__(self, fate: Fate):
        self.ray: Any = PlayedRay(fate)

    def cores(self) -> int:
        return 2

    def close(self) -> None:
        """Nothing was joined."""


def always(what: str) -> Fate:
    return lambda *_: what


@pytest.fixture(scope="module")
def problem() -> ox.Problem:
    return ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), horizon=8)


@pytest.fixture(scope="module")
def policies(problem: ox.Problem) -> list[ox.policies.Policy]:
    return [ox.policies.tabular(0.5)(problem.env, jax.random.key(i)) for i in range(2)]


@pytest.fixture
def make_source(problem: ox.Problem, policies: Any) -> Iterator[Callable[..., RaySource]]:
    """Open a source whose workers have a fate."""
    opened: list[RaySource] = []
    RELEASED.clear()

    def make(fate: Fate, workers: int = 2, patience: float = 60.0) -> RaySource:
        package = PlayedPackage((), (ox.samplers.Host(), problem, policies[0], False))
        pool = Workers(PlayedCluster(fate), RemoteWorker, package, workers, patience)
        opened.append(RaySource(problem, pool, SHARDS, count()))
        return opened[-1]

    yield make
    RELEASED.set()
    for source in opened:
        source.close()


def answers(batch: Any, target: Any) -> list[np.ndarray]:
    """All that is asked of a batch in an iteration."""
    r = jnp.linspace(-1.0, 1.0, batch.problem.size)
    fit = batch.regression(r).fit()
    found = batch.occupancy(), batch.gradient(target, r, "mean"), batch.statistics(target), fit
    found = *found, batch.gradient(target, r, fit)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


@pytest.fixture(scope="module")
def expected(problem: ox.Problem, policies: Any) -> list[np.ndarray]:
    source = ox.samplers.Host(shards=SHARDS).open(problem, policies[0])
    return answers(source.draw(policies[0], N, KEY), policies[1])


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_number_of_workers_changes_nothing(
    make_source: Any, policies: Any, expected: Any, workers: int
):
    batch = make_source(always("answer"), workers).draw(policies[0], N, KEY)
    assert_same(answers(batch, policies[1]), expected)


@pytest.mark.parametrize("call", [0, 1, 2])
def test_shard_of_a_lost_worker_is_given_to_another(
    make_source: Any, policies: Any, expected: Any, call: int
):
    source = make_source(
        lambda actor, number: "die" if (actor, number) == (0, call) else "answer", workers=1
    )
    for _ in range(2):
        assert_same(answers(source.draw(policies[0], N, KEY), policies[1]), expected)
    assert source.workers._ray.started == 2


@pytest.mark.parametrize("call", [1, 2, 4])
def test_workers_that_are_stuck_are_not_waited_for_and_their_late_answers_ignored(
    make_source: Any, policies: Any, expected: Any, call: int
):
    # in the later cases with shards that nobody else has drawn; a late worker fails, which nobody
    # is told
    source = make_source(
        lambda actor, number: "hang" if actor < 2 and number == call else "answer", 3, 0.01
    )
    for _ in range(2):
        assert_same(answers(source.draw(policies[0], N, KEY), policies[1]), expected)
    RELEASED.set()
    assert_same(answers(source.draw(policies[0], N, KEY), policies[1]), expected)
    other = answers(source.draw(policies[0], N, jax.random.key(6)), policies[1])
    assert not np.array_equal(other[0], expected[0])


def test_a_worker_that_is_stuck_while_no_other_is_free_is_given_up(
    make_source: Any, policies: Any, expected: Any
):
    source = make_source(
        lambda actor, number: "hang" if (actor, number) == (0, 1) else "answer", 1, 0.01
    )
    assert_same(answers(source.draw(policies[0], N, KEY), policies[1]), expected)


def test_error_of_a_worker_is_that_of_the_batch(make_source: Any, policies: Any):
    source = make_source(lambda _, call: "fail" if call == 2 else "answer")
    with pytest.raises(EpisodeError, match=r"^episode 3 .* is wrong$"):
        answers(source.draw(policies[0], N, KEY), policies[1])


def test_shard_that_costs_several_workers_is_named(make_source: Any, policies: Any):
    source = make_source(lambda _, call: "answer" if call == 0 else "die", workers=1)
    seeds = episode_seeds(np.asarray(jax.random.key_data(KEY)), 0, 3)
    listed = ", ".join(map(str, seeds))
    message = f"{LOSSES} workers died over the episodes 0 to 2, whose seeds are {listed}"
    with pytest.raises(EpisodeError, match=message):
        source.draw(policies[0], N, KEY).occupancy()


def test_workers_that_cannot_be_started_are_an_error(make_source: Any, policies: Any):
    with pytest.raises(EpisodeError, match=f"{LOSSES} workers could not be started"):
        make_source(always("die")).draw(policies[0], N, KEY).occupancy()


def test_cluster_without_room_is_an_error(make_source: Any, policies: Any):
    with pytest.raises(
        EpisodeError, match=r"no worker was there for 0\.01 seconds: the cluster has 2 cores"
    ):
        make_source(always("hang"), patience=0.01).draw(policies[0], N, KEY).occupancy()


def test_ray_is_not_ended_under_threads_that_wait_for_workers(
    make_source: Any, monkeypatch: pytest.MonkeyPatch
):
    pool, waiting = make_source(always("hang")).workers, list[bool]()
    monkeypatch.setattr(
        pool._cluster, "close", lambda: waiting.extend(it.is_alive() for it in pool._threads)
    )
    pool.close()
    assert waiting == [False, False]


def test_large_policies_are_sent_once_a_batch_and_shards_drawn_once(
    make_source: Any, policies: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("occupax.samplers.ray.LARGE", 0)
    drawn: list[Any] = []
    source, draw = make_source(always("answer"), workers=3), host._draw
    monkeypatch.setattr(host, "_draw", lambda *given: (drawn.append(given), draw(*given))[1])
    batch = source.draw(policies[0], N, KEY)
    for _ in range(3):
        answers(batch, policies[1])
    assert len(drawn) == batch.parts == SHARDS
    assert source.workers._ray.stored == 2
    halves = batch.halves()
    np.testing.assert_allclose(
        sum(half.occupancy() for half in halves) / 2, batch.occupancy(), rtol=1e-6
    )
    assert len(drawn) == SHARDS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_the_import_of_ray_and_find_their_handlers(
    number: int, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []
    real = builtins.__import__

    def loses_exceptions(name: str, *given: Any) -> Any:
        if name == "ray":
            with suppress(BaseException):
                signal.raise_signal(number)
            said.append("imported")
        return real(name, *given)

    def init(**_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does
        said.append("joined")

    before = signal.signal(number, lambda *_: said.append("signal"))
    try:
        with monkeypatch.context() as patch:
            patch.setattr("builtins.__import__", loses_exceptions)
            patch.setattr("ray.init", init)
            Cluster("auto", None)
        signal.raise_signal(number)
        assert said == ["imported", "signal", "joined", "signal"]
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionAbortedError(
            "Initialization failure from server:\nTraceback:\nthe head is gone."
        ),
        FileNotFoundError(2, "No such file or directory", "token"),  # where Ray keeps a token
        exceptions.AuthenticationError("no token"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_a_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch
):
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(
        ValueError,
        match=r"^no Ray cluster at 'auto' could be joined: [^\n]+\. If it asks for a token, ",
    ):
        Cluster("auto", None)

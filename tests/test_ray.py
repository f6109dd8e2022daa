"""What becomes of shards whose workers are lost, slow or wrong, without a cluster: Ray is played by this module."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from ray import exceptions

import occupax as ox
from occupax.samplers import EpisodeError, shards
from occupax.samplers.cluster import LOSSES, Cluster, Parcel
from occupax.samplers.episodes import episode_seeds
from occupax.samplers.questions import Question
from occupax.samplers.ray import Actors
from occupax.samplers.shards import Flat, Inquiry, Shard, flatten

QUESTIONS = (
    Question("occupancy", None, 0, "none"),
    Question("gradient", None, 1, "none"),
    Question("tally", None, 1, "none"),
)


class Call:
    """What is under way: it is computed when it is asked for, or never answered."""

    def __init__(self, function: Callable[[], Any], answers: bool = True):
        self.function, self.answers = function, answers


class Actor:
    """A worker that behaves as `fate(actor, call)` says: "answer", "fail", "die" or "hang"."""

    def __init__(self, number: int, member: Any, fate: Callable[[int, int], str]):
        self.number, self.calls = number, 0
        self.is_there = SimpleNamespace(remote=lambda: self._call(member.is_there, fate))
        self.answer = SimpleNamespace(remote=lambda *given: self._call(lambda: member.answer(*given), fate))

    def _call(self, function: Callable[[], Any], fate: Callable[[int, int], str]) -> Call:
        what = fate(self.number, self.calls)
        self.calls += 1
        return Call({"die": _die, "fail": _fail}.get(what, function), what != "hang")


def _die() -> Any:
    raise exceptions.RayActorError


def _fail() -> Any:
    raise exceptions.RayTaskError("answer", "", EpisodeError("episode 3 (seed 5) is wrong"))


class PlayedRay:
    """As much of Ray as is used."""

    exceptions = exceptions

    def __init__(self, fate: Callable[[int, int], str]):
        self.fate, self.started, self.stored = fate, 0, 0

    def remote(self, **_: Any) -> Any:
        def kind(member: Any) -> Any:
            def start(*parts: Any) -> Actor:
                self.started += 1
                return Actor(self.started - 1, member(*parts), self.fate)

            return SimpleNamespace(remote=start)

        return kind

    def put(self, value: Any) -> Any:
        self.stored += 1
        return value

    def wait(self, calls: list[Call], num_returns: int, timeout: float) -> tuple[list[Call], list[Call]]:
        del timeout
        ready = [call for call in calls if call.answers]
        return ready[:num_returns], ready[num_returns:]

    def get(self, call: Call) -> Any:
        return call.function()

    def kill(self, actor: Actor) -> None:
        del actor


class PlayedParcel(Parcel):
    """Is there already."""

    def open(self) -> Any:
        return self.place


class PlayedCluster(Cluster):
    """Two cores."""

    def __init__(self, fate: Callable[[int, int], str]):
        self.ray: Any = PlayedRay(fate)

    def parcel(self, *contents: Any) -> Parcel:
        return PlayedParcel((), contents)

    def cores(self) -> int:
        return 2


def always(what: str) -> Callable[[int, int], str]:
    return lambda *_: what


@pytest.fixture(scope="module")
def problem() -> ox.Problem:
    return ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), horizon=8)


@pytest.fixture(scope="module")
def inquiry(problem: ox.Problem) -> Inquiry:
    policies: list[Flat] = [flatten(ox.policies.tabular(0.5)(problem.env, jax.random.key(i))) for i in range(2)]
    key = np.asarray(jax.random.key_data(jax.random.key(5)))
    return Inquiry(0, 3, 10, False, 1, key, tuple(policies), QUESTIONS, (None, np.ones(problem.size, np.float32), None))


def make_pool(problem: ox.Problem, fate: Callable[[int, int], str], workers: int = 2, patience: float = 60.0) -> Actors:
    policy = ox.policies.tabular()(problem.env, jax.random.key(0))
    return Actors(
        PlayedCluster(fate), (ox.samplers.Host(), problem, policy, "auto", False), workers, patience, shards=4
    )


@pytest.fixture(scope="module")
def expected(problem: ox.Problem, inquiry: Inquiry) -> list[Flat]:
    policy = ox.policies.tabular()(problem.env, jax.random.key(0))
    return ox.samplers.Host(shards=4).open(problem, policy, "auto").ask([inquiry])[0]


def assert_same(found: list[Flat], expected: list[Flat]) -> None:
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_number_of_workers_changes_nothing(problem: ox.Problem, inquiry: Inquiry, expected: list[Flat], workers: int):
    pool = make_pool(problem, always("answer"), workers)
    assert_same(pool.ask([inquiry])[0], expected)


@pytest.mark.parametrize("call", [0, 1, 2])
def test_shard_of_a_lost_worker_is_given_to_another(
    problem: ox.Problem, inquiry: Inquiry, expected: list[Flat], call: int
):
    pool = make_pool(problem, lambda actor, number: "die" if (actor, number) == (1, call) else "answer")
    assert_same(pool.ask([inquiry])[0], expected)
    assert pool._ray.started == 3


def test_answer_that_comes_twice_counts_once(problem: ox.Problem, inquiry: Inquiry, expected: list[Flat]):
    late: list[bool] = []

    def fate(actor: int, call: int) -> str:
        return "hang" if (actor, call) == (0, 1) else "answer"

    pool = make_pool(problem, fate, patience=1e-6)
    assert_same(pool.ask([inquiry])[0], expected)  # the other worker has answered for the silent one
    for seat in pool._seats:
        if seat.doing is not None:
            seat.doing.answers = True
            late.append(True)
    assert late == [True]
    assert_same(pool.ask([inquiry])[0], expected)
    other = inquiry._replace(iteration=4, key=np.asarray(jax.random.key_data(jax.random.key(6))))
    assert not np.array_equal(pool.ask([other])[0][0][0], expected[0][0])


@pytest.mark.parametrize("call", [1, 2])
def test_several_workers_that_are_stuck_are_not_waited_for(
    problem: ox.Problem, inquiry: Inquiry, expected: list[Flat], call: int
):
    # in the second case with shards that nobody else has drawn
    pool = make_pool(problem, lambda actor, number: "hang" if actor < 2 and number == call else "answer", 3, 1e-6)
    for _ in range(2):
        assert_same(pool.ask([inquiry])[0], expected)


def test_error_of_a_worker_that_nobody_waits_for_is_ignored(
    problem: ox.Problem, inquiry: Inquiry, expected: list[Flat]
):
    pool = make_pool(problem, lambda actor, call: "hang" if (actor, call) == (0, 1) else "answer", patience=1e-6)
    assert_same(pool.ask([inquiry])[0], expected)
    [stuck] = [seat for seat in pool._seats if seat.doing is not None]
    stuck.doing.answers, stuck.doing.function = True, _fail
    assert_same(pool.ask([inquiry])[0], expected)
    with pytest.raises(EpisodeError, match=r"^episode 3 .* is wrong$"):
        make_pool(problem, lambda _, call: "fail" if call == 2 else "answer").ask([inquiry])


def test_shard_that_costs_several_workers_is_named(problem: ox.Problem, inquiry: Inquiry):
    pool = make_pool(problem, lambda _, call: "answer" if call == 0 else "die")
    seeds = episode_seeds(inquiry.key, 0, 3)
    message = rf"{LOSSES} workers died over the episodes 0 to 2, whose seeds are {', '.join(map(str, seeds))}"
    with pytest.raises(EpisodeError, match=message):
        pool.ask([inquiry])


def test_workers_that_cannot_be_started_are_an_error(problem: ox.Problem, inquiry: Inquiry):
    with pytest.raises(EpisodeError, match=f"{LOSSES} workers could not be started"):
        make_pool(problem, always("die")).ask([inquiry])


def test_cluster_without_room_is_an_error(problem: ox.Problem, inquiry: Inquiry):
    with pytest.raises(EpisodeError, match=r"no worker was there for 0\.01 seconds: the cluster has 2 cores"):
        make_pool(problem, always("hang"), patience=0.01).ask([inquiry])


def test_policies_are_sent_once_an_iteration(problem: ox.Problem, inquiry: Inquiry):
    pool = make_pool(problem, always("answer"))
    before = pool._ray.stored
    for asked in (QUESTIONS[:1], QUESTIONS[2:]):
        pool.ask([inquiry._replace(questions=asked, quasi_rewards=(None,))])
    assert pool._ray.stored == before + 1
    pool.ask([inquiry._replace(iteration=4)])
    assert pool._ray.stored == before + 2


def test_worker_that_drew_a_shard_is_asked_again(
    problem: ox.Problem, inquiry: Inquiry, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[Shard] = []
    pool = make_pool(problem, always("answer"), workers=3)
    draw = shards._compiled_draw
    monkeypatch.setattr(shards, "_compiled_draw", lambda *given: (drawn.append(given[-1]), draw(*given))[1])
    for _ in range(3):
        pool.ask([inquiry])
    assert len(drawn) == 4

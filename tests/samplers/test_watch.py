import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occupax.watch import HungError, Watch


@pytest.fixture
def released():
    """Ends what hangs when the test does."""
    event = threading.Event()
    yield event
    event.set()


def announced(watch, function):
    """The function as one call that may hang."""

    def call():
        with watch.call():
            return function()

    return call


def test_the_result_is_passed_through_from_another_thread():
    assert Watch(1.0).run(lambda: 3) == 3
    watch = Watch(1.0)
    assert watch.run(announced(watch, threading.current_thread)) is not threading.current_thread()


@pytest.mark.parametrize(
    "kind", [ZeroDivisionError, TimeoutError, HungError, KeyboardInterrupt, SystemExit]
)
@pytest.mark.parametrize("is_announced", [False, True])
def test_exceptions_are_passed_through(kind, is_announced):
    def fail():
        raise kind("mine")

    watch = Watch(1.0)
    with pytest.raises(kind, match=r"^mine$"):
        watch.run(announced(watch, fail) if is_announced else fail)


@pytest.mark.parametrize("how", ["loop", "sleep"])
def test_a_call_that_hangs_is_given_up(how, released):
    def hang():
        while not released.is_set():
            if how == "sleep":
                time.sleep(0.5)

    watch, began = Watch(0.1), time.monotonic()
    with pytest.raises(HungError):
        watch.run(announced(watch, hang))
    assert 0.1 <= time.monotonic() - began < 5


def test_only_announced_calls_are_given_up_and_each_has_its_own_time():
    watch = Watch(0.2)

    def work():
        time.sleep(0.3)
        for _ in range(4):
            with watch.call():
                time.sleep(0.06)
        return "done"

    assert watch.run(work) == "done"


def test_a_thread_that_is_left_behind_ends_with_its_call_and_disturbs_no_other(released):
    watch, done, ended = Watch(0.1), [], threading.Event()

    def work():
        try:
            with watch.call():
                released.wait()
            done.append("more")
        finally:
            ended.set()

    with pytest.raises(HungError):
        watch.run(work)
    watch.run(lambda: time.sleep(0.1))  # it announces nothing

    def release_and_hang():
        released.set()
        assert ended.wait(5)
        time.sleep(5)

    with pytest.raises(HungError):
        watch.run(announced(watch, release_and_hang))
    assert done == []


def test_control_c_is_heard_at_once_and_ends_the_thread_with_its_call(released):
    watch, done, ended = Watch(60.0), [], threading.Event()

    def work():
        try:
            with watch.call():
                os.kill(os.getpid(), signal.SIGINT)
                released.wait()
            done.append("more")
        finally:
            ended.set()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        watch.run(work)
    assert time.monotonic() - began < 0.9  # the watch looks once a second
    released.set()
    assert ended.wait(5)
    assert done == []


@pytest.mark.parametrize("double", [False, True])
def test_the_function_computes_as_its_caller_would(double):
    with jax.enable_x64(double), np.errstate(over="raise"):
        dtype, errors = Watch(1.0).run(lambda: (jnp.ones(1).dtype, np.geterr()))
    assert dtype == (np.float64 if double else np.float32)
    assert errors["over"] == "raise"

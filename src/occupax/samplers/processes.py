"""Gymnasium environments in processes of their own, with results in shared memory."""

import ctypes
import multiprocessing
import multiprocessing.connection
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import numpy as np

from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.lookup import ignoring_rounded_bounds
from occupax.envs.slots import Failures, Slots, slot_type

SHIELDED = (signal.SIGINT, signal.SIGHUP)
"""Signals of the terminal. They reach all processes of a command, and are for the process that
trains."""
SECONDS_TO_DIE = 5.0
"""How long is waited to see which process has died."""


class ProcessSlots:
    """Does what `Slots` does, in `count` processes that share the environments evenly.

    `EOFError` and `ConnectionError` mean that a process is no longer there, and `ValueError` that
    one could not make its environments.
    """

    def __init__(self, env: GymnasiumEnv, envs: int, count: int):
        from gymnasium.vector.utils import CloudpickleWrapper

        context = multiprocessing.get_context("forkserver")  # not forked, because JAX has threads
        context.set_forkserver_preload(
            ["__main__", "gymnasium", __name__]
        )  # imported once, not by each process
        kind = slot_type(env)
        memory: Any = context.RawArray(ctypes.c_byte, envs * kind.itemsize)
        self.entries = np.frombuffer(memory, kind)
        self._shares = np.array_split(np.arange(envs), count)
        self._playing = np.zeros(envs, bool)
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        for share in self._shares:
            ours, theirs = context.Pipe()
            made: Any = partial(_make, env, int(share[0]), len(share))
            process = context.Process(
                target=_serve, args=(CloudpickleWrapper(made), memory, theirs), daemon=True
            )
            with _blocked_signals():
                process.start()
            theirs.close()  # so that the end of the process is the end of the pipe
            self._pipes.append(ours)
            self._processes.append(process)
        self._unread = {*range(count)}
        for failure in self._answers():
            if failure is not None:
                raise ValueError(failure)

    def reset(self, seeds: dict[int, int | None]) -> Failures:
        """Begin the episodes of these seeds at these places; where it is None, wait."""
        for place, seed in seeds.items():
            self._playing[place] = seed is not None
        asked: dict[int, dict[int, int | None]] = {}
        for i, share in enumerate(self._shares):
            given = {
                place - int(share[0]): seeds[place] for place in share.tolist() if place in seeds
            }
            if given:
                asked[i] = given
        return self._ask("reset", asked)

    def step(self) -> Failures:
        """Take a step with the actions of the entries in all episodes."""
        return self._ask(
            "step", {i: None for i, share in enumerate(self._shares) if self._playing[share].any()}
        )

    def observations(self, places: np.ndarray) -> Any:
        """What was observed last at these places."""
        return self.entries["following"][places]

    def close(self) -> None:
        """Close the environments and end the processes."""
        self._ask("close", dict.fromkeys(range(len(self._pipes))))
        for process in self._processes:
            process.join()

    def silent(self) -> list[int]:
        """The places of the environments whose process has not answered."""
        return self._called([i for i in sorted(self._unread) if not self._pipes[i].poll(0)])

    def dead(self) -> list[int]:
        """The places of the environments whose process has died."""
        ends = {process.sentinel: i for i, process in enumerate(self._processes)}
        return self._called(
            [
                ends[end]
                for end in multiprocessing.connection.wait(list(ends), timeout=SECONDS_TO_DIE)
            ]
        )

    def kill(self) -> None:
        """End the processes without closing the environments."""
        for process in self._processes:
            process.kill()
            process.join()

    def _called(self, processes: list[int]) -> list[int]:
        """Return the slots that these processes were calling or, if none, their active slots."""
        found: list[int] = []
        for i in processes:
            share = self._shares[i]
            called = share[self.entries["called"][share]]
            found += (called if len(called) else share[self._playing[share]]).tolist()
        return found

    def _ask(self, what: str, asked: dict[int, Any]) -> Failures:
        self._unread = {*asked}
        for i, given in asked.items():
            self._pipes[i].send((what, given))
        answers: list[Failures] = self._answers()
        firsts = [int(self._shares[i][0]) for i in asked]
        return {
            first + place: it
            for first, told in zip(firsts, answers, strict=True)
            for place, it in told.items()
        }

    def _answers(self) -> list[Any]:
        """The answers of all processes that were asked, in their order."""
        answers: list[Any] = []
        for i in sorted(self._unread):
            answers.append(self._pipes[i].recv())
            self._unread.remove(i)
        return answers


@contextmanager
def _blocked_signals() -> Generator[None]:
    """Block signals of the terminal in new processes, from before their first import on."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED)
    try:
        resource_tracker.ensure_running()  # unblocks SIGINT when it starts its own process
        signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _make(env: GymnasiumEnv, first: int, count: int, memory: Any) -> Slots:
    return Slots(env, np.frombuffer(memory, slot_type(env))[first : first + count])


def _serve(made: Any, memory: Any, pipe: Any) -> None:
    """Do what is asked through a pipe, in a process of its own."""
    for number in SHIELDED:
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):  # the process that trains is no longer there
        _answer(made, memory, pipe)


def _answer(made: Any, memory: Any, pipe: Any) -> None:
    """Make the environments, then reset, step and close them on request."""
    try:
        with ignoring_rounded_bounds():
            slots: Slots = made.fn(memory)
    except (ValueError, SystemExit) as error:
        pipe.send(str(error))
        return
    pipe.send(None)
    while True:
        what, given = pipe.recv()
        if what == "close":
            slots.close()
            pipe.send({})
            return
        pipe.send(slots.step() if what == "step" else slots.reset(given))

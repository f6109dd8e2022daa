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
            make_slots: Any = partial(_make, env, int(share[0]), len(share))
            arguments = (CloudpickleWrapper(make_slots), memory, theirs)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            with _blocked_signals():
                process.start()
            theirs.close()  # the pipe must end with the process
            self._pipes.append(ours)
            self._processes.append(process)
        self._unread = {*range(count)}
        for failure in self._answers():
            if failure is not None:
                raise ValueError(failure)

    def reset(self, seeds: dict[int, int | None]) -> Failures:
        """Begin episodes with the seeds of some slots. A slot with the seed None waits."""
        for slot, seed in seeds.items():
            self._playing[slot] = seed is not None
        requests: dict[int, dict[int, int | None]] = {}
        for i, share in enumerate(self._shares):
            first = int(share[0])
            own_seeds = {slot - first: seeds[slot] for slot in share.tolist() if slot in seeds}
            if own_seeds:
                requests[i] = own_seeds
        return self._call("reset", requests)

    def step(self) -> Failures:
        """Take a step with the actions of the entries in all episodes."""
        requests: dict[int, None] = {}
        for i, share in enumerate(self._shares):
            if self._playing[share].any():
                requests[i] = None
        return self._call("step", requests)

    def observations(self, slots: np.ndarray) -> Any:
        """Return the last observations of some slots."""
        return self.entries["following"][slots]

    def close(self) -> None:
        """Close the environments and end the processes."""
        self._call("close", dict.fromkeys(range(len(self._pipes))))
        for process in self._processes:
            process.join()

    def silent(self) -> list[int]:
        """Return the slots of the environments whose process has not responded."""
        return self._called([i for i in sorted(self._unread) if not self._pipes[i].poll(0)])

    def dead(self) -> list[int]:
        """Return the slots of the environments whose process has died."""
        indices = {process.sentinel: i for i, process in enumerate(self._processes)}
        ended = multiprocessing.connection.wait(list(indices), timeout=SECONDS_TO_DIE)
        return self._called([indices[sentinel] for sentinel in ended])

    def kill(self) -> None:
        """End the processes without closing the environments."""
        for process in self._processes:
            process.kill()
            process.join()

    def _called(self, processes: list[int]) -> list[int]:
        """Return the slots that these processes were calling or, if none, their active slots."""
        slots: list[int] = []
        for i in processes:
            share = self._shares[i]
            called = share[self.entries["called"][share]]
            active = share[self._playing[share]]
            slots += (called if len(called) else active).tolist()
        return slots

    def _call(self, method: str, requests: dict[int, Any]) -> Failures:
        """Call a method in some processes. Return the failures by slot."""
        self._unread = {*requests}
        for i, argument in requests.items():
            self._pipes[i].send((method, argument))
        failures: Failures = {}
        for i, failures_of_process in zip(sorted(requests), self._answers(), strict=True):
            first = int(self._shares[i][0])
            for slot, failure in failures_of_process.items():
                failures[first + slot] = failure
        return failures

    def _answers(self) -> list[Any]:
        """Return the answers of all processes with a pending call, by process number."""
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


def _serve(make_slots: Any, memory: Any, pipe: Any) -> None:
    """Run environments in a process of their own, until the pipe ends."""
    for number in SHIELDED:
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):  # the parent process has ended
        _answer(make_slots, memory, pipe)


def _answer(make_slots: Any, memory: Any, pipe: Any) -> None:
    """Make the environments, then reset, step and close them on request."""
    try:
        with ignoring_rounded_bounds():
            slots: Slots = make_slots.fn(memory)
    except (ValueError, SystemExit) as error:
        pipe.send(str(error))
        return
    pipe.send(None)
    while True:
        method, argument = pipe.recv()
        if method == "close":
            slots.close()
            pipe.send({})
            return
        pipe.send(slots.step() if method == "step" else slots.reset(argument))

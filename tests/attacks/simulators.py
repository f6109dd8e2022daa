"""Environments of Gymnasium that misbehave in one way each, and what comes of them."""

import os
import signal
import sys
import time
import warnings
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import occupax as ox
from occupax.samplers.episodes import EpisodeRunner

SECONDS = 1.0
"""What a call may take before it counts as hung."""


class OwnError(BaseException):
    """Not an Exception."""


class Unreadable:
    """An object of which nothing can be read."""

    def _fail(self, *_: Any) -> Any:
        raise SystemExit(0)

    __array__ = __float__ = __bool__ = __repr__ = __eq__ = __len__ = __iter__ = _fail
    __hash__ = None  # type: ignore[assignment]


def leave(code: Any = 0) -> Any:
    sys.exit(code)


def throw(error: BaseException) -> Any:
    raise error


def sleep() -> Any:
    time.sleep(3600)


def loop() -> Any:
    return loop()


STEP = {
    "exits with 0": leave,
    "exits with 1": partial(leave, 1),
    "exits with a text": partial(leave, "goodbye"),
    "exits without a code": partial(leave, None),
    "interrupts itself": lambda: throw(KeyboardInterrupt()),
    "ends its generator": lambda: throw(GeneratorExit()),
    "stops iterating": lambda: throw(StopIteration()),
    "raises its own kind": lambda: throw(OwnError("own")),
    "raises a RuntimeError": lambda: throw(RuntimeError("the motor is hot")),
    "has no memory": lambda: throw(MemoryError()),
    "recurses for ever": loop,
    "asserts": lambda: throw(AssertionError()),
    "lacks a key": lambda: throw(KeyError("torque")),
    "raises an error of many lines": lambda: throw(ValueError("a\nb\nc")),
    "hangs": sleep,
    "loses a file": lambda: throw(FileNotFoundError(2, "No such file", "model.xml")),
    "loses its pipe": lambda: throw(BrokenPipeError()),
    "meets the end of a file": lambda: throw(EOFError()),
}
"""What is done in a step, or in a reset, instead of returning anything."""

RETURNED: dict[str, tuple[int, Any]] = {
    "observes NaN": (0, np.array([np.nan, 0.0], np.float32)),
    "observes infinity": (0, np.array([np.inf, 0.0], np.float32)),
    "observes another shape": (0, np.zeros(3, np.float32)),
    "observes a text": (0, "north"),
    "observes nothing": (0, None),
    "observes what cannot be read": (0, Unreadable()),
    "earns NaN": (1, np.nan),
    "earns infinity": (1, np.inf),
    "earns a text": (1, "much"),
    "earns nothing": (1, None),
    "earns an array": (1, np.ones(2)),
    "earns too much": (1, 10**400),
    "earns what cannot be read": (1, Unreadable()),
    "ends by an array": (2, np.array([False, True])),
    "ends by an array of one": (2, np.array([False])),
    "ends by a text": (2, "no"),
    "ends by nothing": (2, None),
    "ends by NaN": (2, np.nan),
    "ends by 7": (2, 7),
    "ends by what cannot be read": (2, Unreadable()),
    "is cut by a text": (3, "False"),
    "is cut by an array": (3, np.zeros((2, 2), bool)),
    "informs by a text": (4, "nothing new"),
}
"""What stands at a place of what a step returns."""

STRUCTURES: dict[str, Any] = {
    "returns nothing": None,
    "returns four values": (np.zeros(2, np.float32), 0.0, False, {}),
    "returns six values": (np.zeros(2, np.float32), 0.0, False, False, {}, 1),
    "returns a list": [np.zeros(2, np.float32), 0.0, False, False, {}],
    "returns itself": Unreadable(),
}
LIVES = [
    *("exits when made", "exits in close", "raises in close", "hangs in close", "has no spaces", "exits in its spaces"),
    *("prints a lot", "warns", "spoils the random numbers", "spoils its observations"),
]
PROCESSES = {"ends its process", "kills its process"}
"""What only a process of its own survives."""
HARMLESS = {"informs by a text", *LIVES} - {"exits when made", "has no spaces", "exits in its spaces"}
"""What training takes as it is."""
KINDS = [
    *STEP,
    *(f"{kind} in reset" for kind in STEP),
    *RETURNED,
    *STRUCTURES,
    *LIVES,
    *sorted(PROCESSES),
]


class Rogue(gym.Env[Any, Any]):
    """A walk of eight steps that misbehaves from its third step on."""

    def __init__(self, kind: str):
        self._kind, self._time = kind, 0
        if kind == "exits when made":
            sys.exit(0)
        self._spaces = spaces.Box(-50.0, 50.0, (2,), np.float32), spaces.Discrete(2)
        self._seen = np.zeros(2, np.float32)

    def _space(self, number: int) -> Any:
        if self._kind == "exits in its spaces":
            sys.exit(0)
        return None if self._kind == "has no spaces" else self._spaces[number]

    @property
    def observation_space(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._space(0)

    @property
    def action_space(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._space(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        if self._kind.removesuffix(" in reset") in STEP and self._kind.endswith(" in reset"):
            STEP[self._kind.removesuffix(" in reset")]()
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._time += 1
        kind = self._kind if self._time == 3 else ""
        if self._kind == "prints a lot":
            print("a simulator that talks")  # noqa: T201
            os.write(1, b"and its library\n")
        if kind == "warns":
            warnings.warn("a simulator that warns", stacklevel=1)
        if kind == "spoils the random numbers":
            np.random.seed(0)  # noqa: NPY002
        if kind in STEP:
            STEP[kind]()
        if kind == "ends its process":
            os._exit(0)
        if kind == "kills its process":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in STRUCTURES:
            return STRUCTURES[kind]
        self._seen[:] = self._time
        kept = self._kind == "spoils its observations"
        returned: list[Any] = [
            self._seen if kept else np.full(2, self._time, np.float32),
            float(action),
            self._time == 8,
            False,
            {},
        ]
        if kind in RETURNED:
            place, value = RETURNED[kind]
            returned[place] = value
        return tuple(returned)

    def close(self):
        if self._kind == "exits in close":
            sys.exit(0)
        if self._kind == "raises in close":
            raise RuntimeError("it does not close")
        if self._kind == "hangs in close":
            sleep()


UNIFORM = ox.policies.Softmax(lambda _: jnp.zeros(2))


def sampled(kind: str, processes: bool = False) -> str:
    """Play a few episodes as training does; return the sentence that it is refused with, or nothing."""
    try:
        env = ox.GymnasiumEnv(partial(Rogue, kind))
        with closing(EpisodeRunner(env, 2, processes, timeout=SECONDS)) as runner:
            drawn = runner.draw(UNIFORM, jax.random.key(0), 0, 4, 4, 8)
        return "" if np.asarray(drawn.lengths).tolist() == [8] * 4 else "it was cut short"
    except (ValueError, ox.samplers.EpisodeError) as error:
        return str(error)


def evaluated(kind: str) -> str:
    """The same for `evaluate`."""
    try:
        found = ox.evaluate(UNIFORM, ox.GymnasiumEnv(partial(Rogue, kind)), 4, max_steps=8, timeout=SECONDS)
        return "" if found.lengths.tolist() == [8] * 4 else "it was cut short"
    except (ValueError, ox.samplers.EpisodeError) as error:
        return str(error)


def checked(kind: str) -> str:
    """The same for `check_env`, of which nothing is to be raised."""
    return " ".join(it.what for it in ox.check_env(partial(Rogue, kind), 1, max_steps=10, timeout=SECONDS))


def wrong(kind: str, said: str) -> bool:
    """Whether an answer is not the one that a misbehaviour deserves: a sentence, unless it is harmless."""
    return bool(said) == (kind in HARMLESS) or "it was cut short" in said


def attack(say: Any) -> dict[str, int]:
    """All kinds in training, in evaluation and in the check, and then in processes of their own."""
    counts = {"kinds": len(KINDS), "calls": 0, "in processes": 0, "wrong": 0}

    def judge(kind: str, name: str, said: str) -> None:
        counts["calls"] += 1
        if wrong(kind, said):
            counts["wrong"] += 1
            say(f"simulator that {kind}, {name}: {said or 'nothing was said'}")

    for kind in KINDS:
        if kind not in PROCESSES:
            judge(kind, "this process", sampled(kind))
            judge(kind, "evaluate", evaluated(kind))
            checked(kind)
            counts["calls"] += 1
    for kind in KINDS:
        judge(kind, "processes", sampled(kind, True))
        counts["in processes"] += 1
        if counts["in processes"] % 10 == 0:
            say(f"simulators so far: {counts}")
    return counts

"""Environments of Gymnasium that misbehave in one way each, and what comes of them."""

import dataclasses
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
    "observes complex numbers": (0, np.full(2, 1j, np.complex64)),
    "observes a text": (0, "north"),
    "observes nothing": (0, None),
    "observes what cannot be read": (0, Unreadable()),
    "earns NaN": (1, np.nan),
    "earns infinity": (1, np.inf),
    "earns a complex number": (1, np.complex128(1j)),
    "earns a text": (1, "much"),
    "earns nothing": (1, None),
    "earns an array": (1, np.ones(2)),
    "earns too much": (1, 10**400),
    "earns what cannot be read": (1, Unreadable()),
    "ends by an array": (2, np.array([False, True])),
    "ends by an array of one": (2, np.array([False])),
    "ends by a complex number": (2, np.complex128(1j)),
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
    *(
        "exits when made",
        "exits in close",
        "raises in close",
        "hangs in close",
        "has no spaces",
        "exits in its spaces",
    ),
    *("prints a lot", "warns", "spoils the random numbers", "spoils its observations"),
]
PROCESSES = {"ends its process", "kills its process"}
"""What only a process of its own survives."""
HARMLESS = {"informs by a text", *LIVES} - {
    "exits when made",
    "has no spaces",
    "exits in its spaces",
}
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
    """Sample a few episodes and return the error message or an empty string."""
    try:
        env = ox.GymnasiumEnv(partial(Rogue, kind))
        with closing(EpisodeRunner(env, 2, processes, timeout=SECONDS)) as runner:
            drawn = runner.draw(UNIFORM, jax.random.key(0), 0, 4, 4, 8)
        return "" if np.asarray(drawn.lengths).tolist() == [8] * 4 else "it was cut short"
    except (ValueError, ox.samplers.EpisodeError) as error:
        return str(error)


def evaluated(kind: str) -> str:
    """Evaluate a policy and return the error message or an empty string."""
    try:
        found = ox.evaluate(
            UNIFORM, ox.GymnasiumEnv(partial(Rogue, kind)), 4, max_steps=8, timeout=SECONDS
        )
        return "" if found.lengths.tolist() == [8] * 4 else "it was cut short"
    except (ValueError, ox.samplers.EpisodeError) as error:
        return str(error)


def checked(kind: str) -> str:
    """Return the issues of `check_env`, which must not raise."""
    return " ".join(
        it.what for it in ox.check_env(partial(Rogue, kind), 1, max_steps=10, timeout=SECONDS)
    )


FAULTS: dict[str, tuple[str, Any]] = {
    **{
        f"returns {what} from step": ("step_env", value)
        for what, value in (("nothing", None), ("a text", "on"))
    },
    "returns four values": ("step_env", lambda all_five: all_five[:4]),
    "returns seven values": ("step_env", lambda all_five: (*all_five, 0, 0)),
    "resets to one value": ("reset_env", lambda both: both[0]),
    "resets to nothing": ("reset_env", None),
    "observes another shape first": ("reset_env", lambda both: (jnp.zeros(3), both[1])),
    "observes a dict first": ("reset_env", lambda both: ({"seen": both[0]}, both[1])),
    "observes complex numbers first": ("reset_env", lambda both: (both[0] * 1j, both[1])),
    "observes a text first": ("reset_env", lambda both: ("north", both[1])),
    "observes another shape": ("step_env", lambda it: (jnp.zeros(3), *it[1:])),
    "observes complex numbers": ("step_env", lambda it: (it[0] * 1j, *it[1:])),
    "observes a text": ("step_env", lambda it: ("north", *it[1:])),
    "keeps another state": ("step_env", lambda it: (it[0], (it[1], it[1]), *it[2:])),
    "keeps fractions": ("step_env", lambda it: (it[0], it[1] + 0.5, *it[2:])),
    "keeps a vector": ("step_env", lambda it: (it[0], jnp.zeros(2, jnp.int32), *it[2:])),
    "earns a vector": ("step_env", lambda it: (*it[:2], jnp.ones(2), *it[3:])),
    "earns a complex number": ("step_env", lambda it: (*it[:2], jnp.ones(()) * 1j, *it[3:])),
    "earns a text": ("step_env", lambda it: (*it[:2], "much", *it[3:])),
    "earns nothing": ("step_env", lambda it: (*it[:2], None, *it[3:])),
    "ends by a vector": ("step_env", lambda it: (*it[:3], jnp.zeros(2, bool), it[4])),
    "ends by a text": ("step_env", lambda it: (*it[:3], "no", it[4])),
    "asks whether it moves": ("step_env", lambda it: it if it[1] > 0 else (it[0] + 1, *it[1:])),
    "makes a float of its state": ("step_env", lambda it: (*it[:2], float(it[1]), *it[3:])),
    "uses NumPy": ("step_env", lambda it: (*it[:2], np.sin(np.asarray(it[1])), *it[3:])),
    "raises in step": ("step_env", lambda _: throw(RuntimeError("the motor is hot"))),
    "raises in reset": ("reset_env", lambda _: throw(KeyError("torque"))),
    "raises in its actions": ("action_space", lambda _: throw(AssertionError())),
    "raises in its observations": ("observation_space", lambda _: throw(ValueError("a\nb"))),
    "has no actions": ("action_space", spaces.Box(0.0, 1.0, (0,))),
    "acts by a text": ("action_space", "left"),
    "declares another shape": ("observation_space", spaces.Box(0.0, 1.0, (3,))),
    "has other params": ("params", 5),
    "has params of text": ("params", "fast"),
    "has a limit of text": (
        "params",
        dataclasses.make_dataclass("Limit", ["max_steps_in_episode"])("x"),
    ),
    "has no limit": ("params", dataclasses.make_dataclass("Limit", ["max_steps_in_episode"])(0)),
}
"""The function of a gymnax-like environment that misbehaves, and what it returns, or does with its
values, instead."""


class RogueGymnax:
    """A walk of eight steps by the functions of gymnax, one of which misbehaves."""

    def __init__(self, kind: str):
        self._place, self._other = FAULTS.get(kind, ("", None))

    @property
    def default_params(self) -> Any:
        return self._answer(
            "params", dataclasses.make_dataclass("Limit", ["max_steps_in_episode"])(8)
        )

    def _answer(self, place: str, right: Any) -> Any:
        if place != self._place:
            return right
        return self._other(right) if callable(self._other) else self._other

    def action_space(self, params: Any) -> Any:
        return self._answer("action_space", spaces.Discrete(2))

    def observation_space(self, params: Any) -> Any:
        return self._answer("observation_space", spaces.Box(-50.0, 50.0, (2,)))

    def reset_env(self, key: Any, params: Any) -> Any:
        return self._answer("reset_env", (jnp.zeros(2), jnp.zeros((), jnp.int32)))

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        time, seen = state + 1, jnp.full(2, state, float)
        return self._answer(
            "step_env", (seen, time, action * 1.0, time >= params.max_steps_in_episode, {})
        )


def wrapped(kind: str) -> str:
    """Return the mistakes of `from_gymnax` and `check_env` on a gymnax-like environment."""
    try:
        ox.from_gymnax(RogueGymnax(kind))
        said = "nothing was refused"
    except ValueError as error:
        said = (
            ""
            if str(error).endswith(".") and "\n" not in str(error)
            else f"not a sentence: {error}"
        )
    except BaseException as error:  # noqa: BLE001 - it must not happen
        said = f"{type(error).__name__}: {error}"
    try:
        found = ox.check_env(RogueGymnax(kind), 1, max_steps=10, timeout=60 * SECONDS)
    except ValueError as error:  # as `from_gymnax` refuses params
        return said if str(error).endswith(".") else f"{said} not a sentence: {error}"
    return said if found else f"{said} check_env found nothing"


def wrong(kind: str, said: str) -> bool:
    """Return whether a result is wrong: an error is expected unless the fault is harmless."""
    return bool(said) == (kind in HARMLESS) or "it was cut short" in said


def attack(say: Any) -> dict[str, int]:
    """All kinds in training, in evaluation and in the check, and then in processes of their own."""
    counts = {"kinds": len(KINDS) + len(FAULTS), "calls": 0, "in processes": 0, "wrong": 0}

    def judge(kind: str, name: str, said: str) -> None:
        counts["calls"] += 1
        if wrong(kind, said):
            counts["wrong"] += 1
            say(f"simulator that {kind}, {name}: {said or 'nothing was said'}")

    for kind in FAULTS:
        counts["calls"] += 2
        said = wrapped(kind)
        if said:
            counts["wrong"] += 1
            say(f"gymnax-like environment that {kind}: {said}")
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

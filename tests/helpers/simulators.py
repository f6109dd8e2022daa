"""Environments of Gymnasium that say what is done to them, and what plays them by hand.

They are classes of a module, so that other processes find them.
"""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

CALLS: list[tuple[Any, ...]] = []
"""What `Diary` was called with in this process."""


class Chain(gym.Env[Any, Any]):
    """Chain of states: action 1 advances, action 0 stays, and the last state terminates."""

    LAST, REWARDS = 4, np.arange(10.0).reshape(5, 2) ** 2 - 7.0

    def __init__(self, state_start=0, action_start=0):
        self.observation_space = spaces.Discrete(self.LAST + 1, start=state_start)
        self.action_space = spaces.Discrete(2, start=action_start)
        self._state = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state = 0
        return self._state + int(self.observation_space.start), {}

    def step(self, action):
        assert self.action_space.contains(action)
        action = int(action) - int(self.action_space.start)
        reward, cost = self.REWARDS[self._state, action], 1.0 + 2.0 * action
        self._state += action
        seen = self._state + int(self.observation_space.start)
        return (
            seen,
            reward,
            self._state == self.LAST,
            False,
            {"cost": cost, "state": self._state, "name": "chain"},
        )


class Diary(gym.Env[Any, Any]):
    """Environment that observes seed, steps and last action. The seed sets length and ending."""

    LONGEST = 9
    ENDINGS = ((True, False), (False, True), (True, True))

    def __init__(self):
        self.observation_space = spaces.Box(-1, 2**31 - 1, (3,), np.int32)
        self.action_space = spaces.Discrete(3)
        self._seed, self._time, self._action, self._length, self._ending = (
            -1,
            -1,
            -1,
            0,
            (False, False),
        )

    def _look(self) -> Any:
        return np.array([self._seed, self._time, self._action], np.int32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        CALLS.append(("reset", seed))
        self._seed, self._time, self._action = -1 if seed is None else seed, 0, -1
        self._length, ending = (
            int(self.np_random.integers(1, self.LONGEST + 1)),
            int(self.np_random.integers(3)),
        )
        self._ending = self.ENDINGS[ending]
        return self._look(), {}

    def step(self, action) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert 0 <= self._time < self._length, "a step after the end, or before the first reset"
        reward = float(self._seed % 1000 + 10_000 * self._time + 3_000 * int(action))
        self._time, self._action = self._time + 1, int(action)
        CALLS.append(("step", self._seed, self._time, int(action)))
        terminated, truncated = self._ending if self._time == self._length else (False, False)
        return (
            self._look(),
            reward,
            terminated,
            truncated,
            {"seed": self._seed % 1000, "time": np.float32(self._time)},
        )


SPACES = {
    "box": spaces.Box(-2.0, 3.0, (2, 3), np.float32),
    "box of float64": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "box of bytes": spaces.Box(0, 255, (2, 2, 3), np.uint8),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-discrete from 2": spaces.MultiDiscrete([3, 2], start=[2, -1]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "dict": spaces.Dict(
        {"z": spaces.Box(-1.0, 1.0, (2,), np.float32), "a": spaces.Discrete(3, start=5)}
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0.0, 1.0, (1,), np.float32))),
    "nested": spaces.Dict(
        {
            "deep": spaces.Tuple(
                (spaces.MultiBinary(2), spaces.Dict({"k": spaces.MultiDiscrete([2, 2])}))
            ),
            "box": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
        }
    ),
    "text": spaces.Text(5),
    "sequence": spaces.Sequence(spaces.Discrete(2)),
    "graph": spaces.Graph(spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3)),
    "hidden": spaces.Dict({"fine": spaces.Discrete(2), "words": spaces.Tuple((spaces.Text(5),))}),
}


class Sampled(gym.Env[Any, Any]):
    """Observes whatever lies in a space, for six steps."""

    def __init__(self, space="box", actions="discrete"):
        self.observation_space = SPACES[space]
        self.action_space = {"discrete": spaces.Discrete(3, start=4), "text": spaces.Text(5)}[
            actions
        ]
        self._script, self._time = [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._script, self._time = [self.observation_space.sample() for _ in range(7)], 0
        return self._script[0], {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._time += 1
        return self._script[self._time], float(action), self._time == 6, False, {}


REWARDS = {
    "reward": np.nan,
    "text reward": "much",
    "no reward": None,
    "array reward": np.ones(1),
    "two": np.ones(2),
}
"""What the faults of that name return as a reward."""


class Faulty(Diary):
    """Environment that fails at one step of one seed (0: the reset), always or while a file exists.

    Args:
        fault: what goes wrong.
        when: the seed of the episode; -1 is every one.
        step: the step.
        marker: the file, if any.
        once: whether the file is removed before it goes wrong.
    """

    def __init__(self, fault, when=-1, step=1, marker="", once=False):
        super().__init__()
        self._fault, self._when, self._step, self._marker, self._once = (
            fault,
            when,
            step,
            marker,
            once,
        )
        if fault == "state":
            self.observation_space = spaces.Discrete(3)

    def _due(self):
        due = self._when in (-1, self._seed) and self._time == self._step
        if due and self._marker:
            due = Path(self._marker).exists()
            if due and self._once:
                Path(self._marker).unlink()
        return due

    def _look(self) -> Any:
        seen = super()._look()
        due = self._due()
        if self._fault == "state":
            return 3 if due else self._time % 3
        match self._fault if due else "":
            case "raise":
                raise RuntimeError("the motor is hot")
            case "hang":
                time.sleep(20)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "shape":
                return seen[:2]
            case "type":
                return "north"
            case _:
                return seen
        return seen

    def close(self):
        if self._fault == "close":
            raise RuntimeError("the line is dead")

    def step(self, action) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        due = self._due()
        if due:
            reward = REWARDS.get(self._fault, reward)
            if self._fault == "no info":
                del info["seed"]
            if self._fault == "info":
                info["seed"] = np.inf
            if self._fault == "four values":
                return seen, reward, terminated, info
        return seen, reward, terminated, truncated, info


class FaultyBox(Faulty):
    """Faulty environment with a Box of floats."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def _look(self):
        seen = super()._look().astype(np.float32)
        return np.where([False, self._due(), False], np.nan, seen)


class Played(NamedTuple):
    """An episode played by hand."""

    observations: list[Any]
    """With the last one."""
    rewards: list[float]
    terminated: bool
    truncated: bool
    infos: list[dict[str, Any]]


def play(env: Any, seed: int, actions: Any) -> Played:
    """Reset with the seed and take the actions, counted from 0, until the episode ends."""
    seen, rewards, infos, terminated, truncated = [env.reset(seed=seed)[0]], [], [], False, False
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(
            int(action) + int(env.action_space.start)
        )
        seen.append(observation)
        rewards.append(reward)
        infos.append(info)
        if terminated or truncated:
            break
    return Played(seen, rewards, terminated, truncated, infos)


@partial(jax.jit, static_argnums=1)
def _bits(key: Any, n: int) -> Any:
    return jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, i), 0)))(
        jnp.arange(n)
    )


def seeds_of(key: Any, n: int) -> list[int]:
    """The seeds of the first episodes that a key stands for."""
    return [int(bits) // 2 for bits in np.asarray(_bits(key, n))]


def key_of(run: int, iteration: int, seed: int = 0) -> Any:
    """The key of the batch of an iteration of a run of `ox.train`."""
    return jax.random.fold_in(
        jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), run), 1), iteration
    )


class Metered(gym.Env[Any, Any]):
    """Two-step environment whose reward is the action and whose cost is half of it."""

    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.time, {}

    def step(self, action):
        self.time += 1
        return self.time, float(action), self.time == 2, False, {"cost": float(action) / 2}

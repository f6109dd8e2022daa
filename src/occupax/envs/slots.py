"""Gymnasium environments that play episodes side by side, stepped one after the other.

Results are written into one structured array with an entry for each environment, which may be
memory that several processes share. Observations are states or flat vectors, and actions integers
from 0 on or flat vectors. Failures are reported by slot, the index of the environment.
"""

import contextlib
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from occupax.envs.episode import (
    Episode,
    EpisodeFailedError,
    check_structure,
    invalid_result_message,
    read_flag,
    read_number,
    step_error,
)
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.gymnasium_actions import action_writer
from occupax.errors import REAL, real_array

MAX_NUMBER = float(np.finfo(np.float32).max)

Failures = dict[int, str]
"""Messages by slot."""


def slot_type(env: GymnasiumEnv) -> np.dtype[Any]:
    """Return the dtype of the entry of an environment: its next action and its last results."""
    action = env.action_space.spec()
    fields = [
        ("action", action.dtype, action.shape),
        ("following", env.dtype, env.shape),  # observation after the action, or after a reset
        ("reward", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("info", np.float64, len(env.info)),
        ("called", np.bool_),  # whether a call of the environment is under way
    ]
    return np.dtype(fields, align=True)


class Slots:
    """Environments with one entry of `slot_type` each.

    An environment plays an episode after each reset with a seed, and waits after one without.
    Unless `flat`, the unflattened observations are stored, too.
    """

    def __init__(self, env: GymnasiumEnv, entries: np.ndarray, flat: bool = True):
        self.entries = entries
        self._info = env.info
        self._flat = flat
        self._envs = [env.make() for _ in entries]
        space = self._envs[0].observation_space
        self._space = space
        self._first_state: int | None = None
        if isinstance(space, gym.spaces.Discrete):
            self._first_state = int(space.start)
        self._is_box = isinstance(space, gym.spaces.Box)
        self._plain_shape: Any = None  # of observations that are written without further checks
        if self._is_box and flat:
            self._plain_shape = space.shape
        self._write_actions = action_writer(self._envs[0].action_space)
        shape = space.shape if self._is_box else env.shape
        observations = entries["following"]
        self._rows = [observations[i : i + 1].reshape(shape) for i in range(len(entries))]
        self._observations: list[Any] = [None] * len(entries)
        self._playing: list[int] = []
        self._time = 0
        self._start_times = [0] * len(entries)

    def reset(self, seeds: dict[int, int | None]) -> Failures:
        """Begin episodes with the seeds of some slots. Let a slot wait if its seed is None."""
        failures = Failures()
        waiting = {slot for slot, seed in seeds.items() if seed is None}
        self._playing = sorted({*self._playing, *seeds} - waiting)
        for slot, seed in seeds.items():
            if seed is None:
                continue
            self._start_times[slot] = self._time
            self.entries["called"][slot] = True
            try:
                observation, _ = Episode(self._envs[slot], seed).begin()
                self._write(slot, observation)
            except BaseException as error:  # noqa: BLE001 - environments may raise and return anything
                failures[slot] = self._failure(slot, error)
            self.entries["called"][slot] = False
        return self._not_finite() | failures

    def step(self) -> Failures:
        """Take a step with the actions of the entries in all episodes."""
        failures = Failures()
        # local names save attribute look-ups, which count at every step of every environment
        entries = self.entries
        envs = self._envs
        rows = self._rows
        plain_shape = self._plain_shape
        called = entries["called"]
        rewards = entries["reward"]
        terminations = entries["terminated"]
        truncations = entries["truncated"]
        actions = self._write_actions(entries["action"])
        self._time += 1
        for slot in self._playing:
            called[slot] = True
            try:
                try:
                    returned = envs[slot].step(actions[slot])
                except BaseException as error:
                    raise step_error(error, self._steps(slot), actions[slot]) from error
                if type(returned) is not tuple or len(returned) != 5:
                    check_structure(returned, 5, self._steps(slot))
                observation, reward, terminated, truncated, info = returned
                is_plain = type(observation) is np.ndarray and observation.shape == plain_shape
                if is_plain and observation.dtype.kind in REAL:
                    rows[slot][...] = observation
                else:
                    self._write(slot, observation)
                if type(reward) is not float or not -MAX_NUMBER <= reward <= MAX_NUMBER:
                    reward = self._number(slot, "the reward", reward)
                rewards[slot] = reward
                terminations[slot] = read_flag(terminated)
                truncations[slot] = read_flag(truncated)
                if self._info:
                    entries["info"][slot] = self._info_values(slot, info)
            except BaseException as error:  # noqa: BLE001 - environments may raise and return anything
                failures[slot] = self._failure(slot, error)
            called[slot] = False
        return self._not_finite() | failures

    def observations(self, slots: np.ndarray) -> Any:
        """Return the last observations of slots: an array or, unless flat, a tree of arrays."""
        if self._flat:
            return self.entries["following"][slots]
        import jax

        observations = [self._observations[slot] for slot in slots]
        return jax.tree.map(lambda *parts: np.stack(parts), *observations)

    def silent(self) -> list[int]:
        """Return the slots whose environment is being called."""
        return np.flatnonzero(self.entries["called"]).tolist()

    def kill(self) -> None:
        """Do nothing: the environments belong to the thread that is stuck in one of them."""

    def close(self) -> None:
        """Close the environments, and ignore errors."""
        for env in self._envs:
            with contextlib.suppress(BaseException):
                env.close()

    def _steps(self, slot: int) -> int:
        """Return the number of steps in the episode of a slot."""
        return self._time - self._start_times[slot]

    def _failure(self, slot: int, error: BaseException) -> str:
        if not isinstance(error, EpisodeFailedError):
            message = invalid_result_message(self._steps(slot))
            return f"{message}: {type(error).__name__}: {error}"
        if error.__cause__ is not None:
            return f"{error}: {error.__cause__}"
        return str(error)

    def _refuse(self, slot: int, result: str, reason: str = "") -> NoReturn:
        raise EpisodeFailedError(f"returned {result} at step {self._steps(slot)}{reason}")

    def _write(self, slot: int, observation: Any) -> None:
        """Write an observation into its entry. `_not_finite` checks its numbers later."""
        if not self._flat:
            self._observations[slot] = observation
        space = self._space
        row = self._rows[slot]
        if self._is_box:  # Gymnasium would drop imaginary parts when it flattens them
            observation = real_array("an observation", observation)
        elif not space.contains(observation):
            self._refuse(slot, f"{observation!r:.60}", f", which is not in {space}")
        if self._first_state is not None:
            row[...] = int(observation) - self._first_state
            return
        vector = np.asarray(gym.spaces.flatten(space, observation), row.dtype)
        if vector.shape != (row.size,):
            self._refuse(slot, "an observation", f" that is not of {space}")
        row[...] = vector.reshape(row.shape)

    def _not_finite(self) -> Failures:
        """Return an error text for each slot whose last observation is not finite."""
        observations = self.entries["following"]
        if not np.issubdtype(observations.dtype, np.floating):
            return {}
        is_finite = np.abs(observations) <= MAX_NUMBER
        if is_finite.all():
            return {}
        failures = Failures()
        for slot in self._playing:
            if not is_finite[slot].all():
                number = observations[slot][~is_finite[slot]][0]
                steps = self._steps(slot)
                failures[slot] = f"returned an observation with {number} at step {steps}"
        return failures

    def _info_values(self, slot: int, info: Any) -> list[float]:
        values: list[float] = []
        for name in self._info:
            part = f"{name!r} in its info"
            if name not in info:
                self._refuse(slot, f"no {part}")
            values.append(self._number(slot, part, info[name]))
        return values

    def _number(self, slot: int, part: str, value: Any) -> float:
        number = value if type(value) is float else read_number(value)
        if not -MAX_NUMBER <= number <= MAX_NUMBER:
            self._refuse(slot, f"{number} as {part}")
        return number

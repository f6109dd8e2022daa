"""Environments of Gymnasium that play episodes side by side, stepped one after the other.

What they return is written into one array with an entry for each of them, which may be in memory
that several processes share. Observations are states or flat vectors, and actions numbers from 0 on
or flat vectors. What an environment does wrong is told by its place.
"""

import contextlib
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from occupax.envs.episode import (
    Episode,
    EpisodeFailedError,
    checked,
    raised,
    read_flag,
    read_number,
    useless,
)
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.gymnasium_actions import writing_actions
from occupax.errors import REAL, real_array

LARGEST = float(np.finfo(np.float32).max)

Failures = dict[int, str]
"""What went wrong, by the place of the environment."""


def slot_type(env: GymnasiumEnv) -> np.dtype[Any]:
    """The entry of one environment: the action that it is given, and what it returned last."""
    action = env.action_space.spec()
    fields = [
        ("action", action.dtype, action.shape),
        ("following", env.dtype, env.shape),  # what is observed after the action, or after a reset
        ("reward", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("info", np.float64, len(env.info)),
        ("called", np.bool_),  # whether a call of the environment is under way
    ]
    return np.dtype(fields, align=True)


class Slots:
    """As many environments as there are entries, which are of `slot_type`.

    An environment plays an episode after each reset with a seed; after one without a seed it waits.
    Unless `flat`, the observations themselves are kept, too.
    """

    def __init__(self, env: GymnasiumEnv, entries: np.ndarray, flat: bool = True):
        self.entries, self._info, self._flat = entries, env.info, flat
        self._envs = [env.make() for _ in entries]
        self._space = space = self._envs[0].observation_space
        self._first_state = int(space.start) if isinstance(space, gym.spaces.Discrete) else None
        self._boxed = space.shape if isinstance(space, gym.spaces.Box) else None
        self._as_it_is = (
            self._boxed if flat else None
        )  # the shape of observations that are written without a look
        self._write_actions = writing_actions(self._envs[0].action_space)
        shape = env.shape if self._boxed is None else self._boxed
        self._rows = [entries["following"][i : i + 1].reshape(shape) for i in range(len(entries))]
        self._seen: list[Any] = [None] * len(entries)
        self._playing: list[int] = []
        self._time, self._began = 0, [0] * len(entries)

    def reset(self, seeds: dict[int, int | None]) -> Failures:
        """Begin the episodes of these seeds at these places; where it is None, wait."""
        failures, called = Failures(), self.entries["called"]
        self._playing = sorted(
            {*self._playing, *seeds} - {place for place, seed in seeds.items() if seed is None}
        )
        for place, seed in seeds.items():
            if seed is None:
                continue
            self._began[place], called[place] = self._time, True
            try:
                self._read(place, Episode(self._envs[place], seed).begin()[0])
            except BaseException as error:  # noqa: BLE001 - an environment may raise and return anything
                failures[place] = self._failure(place, error)
            called[place] = False
        return self._not_finite() | failures

    def step(self) -> Failures:
        """Take a step with the actions of the entries in all episodes."""
        failures, entries, envs, rows, simple = (
            Failures(),
            self.entries,
            self._envs,
            self._rows,
            self._as_it_is,
        )
        called, rewards = entries["called"], entries["reward"]
        terminated, truncated = entries["terminated"], entries["truncated"]
        actions = self._write_actions(entries["action"])
        self._time += 1
        for (
            place
        ) in self._playing:  # all that is done here is done at every step of every environment
            called[place] = True
            try:
                try:
                    returned = envs[place].step(actions[place])
                except BaseException as error:
                    raise raised(error, self._steps(place), actions[place]) from error
                if type(returned) is not tuple or len(returned) != 5:
                    checked(returned, 5, self._steps(place))
                observation, reward, ended, cut, info = returned
                plain = type(observation) is np.ndarray and observation.shape == simple
                if plain and observation.dtype.kind in REAL:
                    rows[place][...] = observation
                else:
                    self._read(place, observation)
                if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
                    reward = self._number(place, "the reward", reward)
                rewards[place] = reward
                terminated[place], truncated[place] = read_flag(ended), read_flag(cut)
                if self._info:
                    entries["info"][place] = [self._named(place, name, info) for name in self._info]
            except BaseException as error:  # noqa: BLE001 - an environment may raise and return anything
                failures[place] = self._failure(place, error)
            called[place] = False
        return self._not_finite() | failures

    def observations(self, places: np.ndarray) -> Any:
        """What was observed last at these places: an array or, unless it is flat, a tree of arrays."""
        if self._flat:
            return self.entries["following"][places]
        import jax

        return jax.tree.map(
            lambda *parts: np.stack(parts), *(self._seen[place] for place in places)
        )

    def silent(self) -> list[int]:
        """The place of the environment that is called, if one is."""
        return np.flatnonzero(self.entries["called"]).tolist()

    def kill(self) -> None:
        """Leave the environments to the thread that is stuck in one of them."""

    def close(self) -> None:
        """Close the environments; if that fails, nothing is lost."""
        for env in self._envs:
            with contextlib.suppress(BaseException):
                env.close()

    def _steps(self, place: int) -> int:
        """How many steps the episode has had."""
        return self._time - self._began[place]

    def _failure(self, place: int, error: BaseException) -> str:
        if isinstance(error, EpisodeFailedError):
            return str(error) if error.__cause__ is None else f"{error}: {error.__cause__}"
        return f"{useless(self._steps(place))}: {type(error).__name__}: {error}"

    def _refuse(self, place: int, returned: str, more: str = "") -> NoReturn:
        raise EpisodeFailedError(f"returned {returned} at step {self._steps(place)}{more}")

    def _read(self, place: int, observation: Any) -> None:
        """Write an observation into its entry; whether its numbers are finite is seen later."""
        if not self._flat:
            self._seen[place] = observation
        space, row = self._space, self._rows[place]
        if self._boxed is not None:  # Gymnasium would drop imaginary parts when it flattens them
            observation = real_array("an observation", observation)
        if self._boxed is None and not space.contains(observation):
            self._refuse(place, f"{observation!r:.60}", f", which is not in {space}")
        if self._first_state is not None:
            row[...] = int(observation) - self._first_state
            return
        vector = np.asarray(gym.spaces.flatten(space, observation), row.dtype)
        if vector.shape != (row.size,):
            self._refuse(place, "an observation", f" that is not of {space}")
        row[...] = vector.reshape(row.shape)

    def _not_finite(self) -> Failures:
        """The episodes whose last observation is not of finite numbers."""
        seen = self.entries["following"]
        if not np.issubdtype(seen.dtype, np.floating):
            return {}
        real = np.abs(seen) <= LARGEST
        if real.all():
            return {}
        said = "returned an observation with {} at step {}"
        wrong = [place for place in self._playing if not real[place].all()]
        return {
            place: said.format(seen[place][~real[place]][0], self._steps(place)) for place in wrong
        }

    def _named(self, place: int, name: str, info: Any) -> float:
        what = f"{name!r} in its info"
        if name not in info:
            self._refuse(place, f"no {what}")
        return self._number(place, what, info[name])

    def _number(self, place: int, what: str, found: Any) -> float:
        number = found if type(found) is float else read_number(found)
        if not -LARGEST <= number <= LARGEST:
            self._refuse(place, f"{number} as {what}")
        return number

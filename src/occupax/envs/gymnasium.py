"""Any environment of Gymnasium."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from occupax.envs.actions import ActionSpace
from occupax.envs.base import Bounds, DecisionProcess
from occupax.envs.episode import time_limit
from occupax.envs.lookup import closing, ignoring_rounded_bounds, make_gymnasium
from occupax.errors import check_integer, check_integers, shown

PLAIN, HINT = (
    "a number, a text or a list of these",
    "give a function that makes the environment instead",
)
MOST_BOUNDS = 1_000
"""Observations of more numbers than this, such as images, are taken as they are."""


class Part(NamedTuple):
    """A stretch of numbers of a flat observation."""

    name: str
    """That of the entry of a Dict; empty for observations that are none."""
    shape: tuple[int, ...]
    """As the environment returns it; for what is made one-hot, the length of that."""
    start: int


class GymnasiumEnv(DecisionProcess):
    """An environment of Gymnasium, which is sampled outside of JAX.

    Observations that are Discrete are the states of a table; all others are flattened to a vector
    as Gymnasium does it. Actions that are Discrete are numbers from 0 on; all others are flat
    vectors, too. Rewards may be vectors, as those of mo-gymnasium, if the environment has a
    `reward_space`: `features.Rewards` counts them, and what is recorded as the return is that of
    their sum. A problem of it is trained, sampled and evaluated like any other. How many of it run
    at once, where, and how long a step may take says the sampler: `occupax.samplers.Host` or
    `occupax.samplers.Ray`.

    Args:
        source: a Gymnasium id, or a function that makes an environment, with whatever wrappers.
        info: names of numbers that the environment returns in the `info` of every step, to be
            counted by `occupax.features.Info`.
        **options: passed to `gymnasium.make`, or to the function.
    """

    source: Any = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    info: tuple[str, ...] = eqx.field(static=True)
    reward_size: int | None = eqx.field(static=True)
    action_space: ActionSpace = eqx.field(static=True)
    num_states: int | None = eqx.field(static=True)
    time_limit: int | None = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    dtype: str = eqx.field(static=True)
    bounds: Bounds = eqx.field(static=True)
    parts: tuple[Part, ...] = eqx.field(static=True)
    """What a flat observation consists of: the entries of a Dict by their names, or all of it as
    one."""

    def __init__(self, source: str | Callable[..., Any], info: Sequence[str] = (), **options: Any):
        """Make the environment once to see what it is like."""
        import gymnasium as gym

        from occupax.envs.vector_reward import reward_names

        if isinstance(source, gym.Env) or not (isinstance(source, str) or callable(source)):
            kinds = (
                "a Gymnasium id or a function that makes an environment, because several are made"
            )
            raise ValueError(f"source must be {kinds}, got {source!r:.80}.")
        check_names("info", info)
        self.source, self.reward_size = source, None
        self.options = hashable_options(options)
        self._check_options()
        with ignoring_rounded_bounds(), closing(self._make()) as made:
            for name, value in self._look(made).items():
                setattr(self, name, value)
        self.info = *info, *reward_names(self.reward_size)

    def __repr__(self) -> str:
        given = [repr(self.name), *(f"{name}={value!r}" for name, value in self.options)]
        return f"GymnasiumEnv({', '.join(given)})"

    def __check_init__(self) -> None:
        if not isinstance(self.source, str) and not callable(self.source):
            raise ValueError(
                f"source must be a Gymnasium id or a function, got {self.source!r:.80}."
            )
        self._check_options()
        for name in ("num_states", "time_limit"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        check_integers("shape", self.shape, minimum=0)
        if np.dtype(self.dtype).kind not in "biuf":
            raise ValueError(f"dtype must be that of numbers, got {self.dtype!r}.")

    def _check_options(self) -> None:
        for name, value in self.options if isinstance(self.source, str) else ():
            if not _is_plain(value):
                raise ValueError(f"the option {name} must be {PLAIN}, got {value!r:.60}; {HINT}.")

    def _look(self, made: Any) -> dict[str, Any]:
        """What an environment is like, by the fields of this class."""
        import gymnasium as gym

        from occupax.envs.check.observations import check_space
        from occupax.envs.gymnasium_actions import read_actions
        from occupax.envs.vector_reward import reward_size

        try:
            actions, observations = made.action_space, made.observation_space
        except (Exception, SystemExit) as error:
            raise ValueError(
                f"{self.name} does not tell its spaces. {type(error).__name__}: {error}"
            ) from error
        taken = read_actions(actions)
        if taken is None:
            kinds = "Discrete, MultiDiscrete, MultiBinary or a Box of real numbers, with at least one entry"
            raise ValueError(f"the action space of {self.name} must be {kinds}, got {actions}.")
        for finding in check_space(observations):
            raise ValueError(
                f"{self.name}: {finding.what}: it must be {finding.expected}, got {finding.actual}."
            )
        tabular = isinstance(observations, gym.spaces.Discrete)
        seen = observations if tabular else gym.spaces.flatten_space(observations)
        return {
            "action_space": taken,
            "num_states": int(observations.n) if tabular else None,
            "time_limit": time_limit(made),
            "shape": seen.shape or (),
            "dtype": str(seen.dtype),
            "bounds": _bounds(seen),
            "parts": _parts(observations),
            "reward_size": reward_size(made),
        }

    @property
    def name(self) -> str:
        """The id, or the name of the function."""
        return (
            self.source
            if isinstance(self.source, str)
            else getattr(self.source, "__name__", repr(self.source))
        )

    def make(self) -> Any:
        """A new environment, which is like the one that was looked at first, perhaps before this came from a file.

        One whose rewards are vectors returns their sum, and each of them in the `info`.
        """
        from occupax.envs.vector_reward import SplitReward

        made = self._make()
        for name, value in self._look(made).items():
            if value != getattr(self, name):
                was = f"{name} was {getattr(self, name)}, and is {value}"
                raise ValueError(
                    f"{self.name} makes another environment than it did before: {was}."
                )
        return made if self.reward_size is None else SplitReward(made, self.reward_size)

    def _make(self) -> Any:
        import gymnasium as gym

        if isinstance(self.source, str):  # Gymnasium's own check wants rewards to be numbers
            unchecked = {} if self.reward_size is None else {"disable_env_checker": True}
            return make_gymnasium(self.source, dict(self.options) | unchecked)
        try:
            made = self.source(**dict(self.options))
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self.name} failed to make an environment. {reason}") from error
        if not isinstance(made, gym.Env):
            raise ValueError(f"{self.name} must make a gymnasium.Env, got {type(made).__name__}.")
        return made

    @property
    def observation_bounds(self) -> Bounds:
        """As the space declares them; nothing for images and other observations of very many numbers."""
        return self.bounds

    def observation_spec(self) -> Any:
        """Shape and dtype of one observation."""
        return jax.ShapeDtypeStruct(self.shape, jax.dtypes.canonicalize_dtype(self.dtype))


def check_names(argument: str, names: Any) -> None:
    """Raise an error for anything but a list of names."""
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    if not listed or not all(type(name) is str for name in names):
        raise ValueError(f"{argument} must be a list of names, got {shown(names)}.")


def _parts(space: Any) -> tuple[Part, ...]:
    """The entries of a Dict in the order in which Gymnasium flattens them, each with its first place."""
    import gymnasium as gym

    spaces = space.spaces if isinstance(space, gym.spaces.Dict) else {"": space}
    sizes = [gym.spaces.flatdim(part) for part in spaces.values()]
    shapes = [
        part.shape if isinstance(part, gym.spaces.Box) else (size,)
        for part, size in zip(spaces.values(), sizes, strict=True)
    ]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return tuple(map(Part, spaces, shapes, starts))


def _bounds(space: Any) -> Bounds:
    """The lowest and the highest value of each number of a flat observation, unless it has very many."""
    import gymnasium as gym

    if not isinstance(space, gym.spaces.Box) or np.prod(space.shape) > MOST_BOUNDS:
        return ()
    return tuple(
        (float(low), float(high))
        for low, high in zip(space.low.ravel(), space.high.ravel(), strict=True)
    )


def hashable_options(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options in a form that can be compared quickly, in the order of their names."""
    return tuple((name, _hashable(name, value)) for name, value in sorted(options.items()))


def _hashable(name: str, value: Any) -> Any:
    """An option in a form that can be compared quickly: lists become tuples."""
    value = (
        tuple(_hashable(name, part) for part in value) if isinstance(value, list | tuple) else value
    )
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"the option {name} must be {PLAIN}, got {value!r:.60}; {HINT}.") from None
    return value


def _is_plain(value: Any) -> bool:
    return (
        all(map(_is_plain, value))
        if type(value) is tuple
        else value is None or type(value) in (bool, int, float, str)
    )

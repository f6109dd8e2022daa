"""Environments of Gymnasium. Gymnasium is imported inside functions, because its import is slow."""

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

MAX_BOUNDS = 1_000
"""Largest size of an observation whose bounds are read; larger ones are images and the like."""


class Part(NamedTuple):
    """A range of entries of a flat observation."""

    name: str
    """Key of a Dict; empty for other observations."""
    shape: tuple[int, ...]
    """Shape before flattening; for one-hot parts, their length."""
    start: int


class GymnasiumEnv(DecisionProcess):
    """A Gymnasium environment, which is sampled outside of JAX.

    Discrete observations are the states of a table; all others are flattened to a vector as
    Gymnasium does it. Discrete actions are integers from 0 on; all others are flat vectors, too.
    Rewards may be vectors, as those of mo-gymnasium, if the environment has a `reward_space`:
    `features.Rewards` counts them, and the recorded return is that of their sum. The sampler,
    `occupax.samplers.Host` or `occupax.samplers.Ray`, decides how many environments run at once,
    where, and how long a step may take.

    Args:
        source: a Gymnasium id, or a function that makes an environment, with any wrappers.
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
    """Parts of a flat observation: the entries of a Dict, or the whole as one."""

    def __init__(self, source: str | Callable[..., Any], info: Sequence[str] = (), **options: Any):
        """Make the environment once to read its spaces.

        Raises:
            ValueError: if the environment cannot be made, or has a space that is not supported.
        """
        import gymnasium as gym

        # slow: imports Gymnasium
        from occupax.envs.vector_reward import reward_names

        if isinstance(source, gym.Env) or not (isinstance(source, str) or callable(source)):
            raise ValueError(
                "source must be a Gymnasium id or a function that makes an environment, because "
                f"several are made, got {source!r:.80}."
            )
        check_names("info", info)
        self.source = source
        self.reward_size = None
        self.options = hashable_options(options)
        self._check_options()
        with ignoring_rounded_bounds(), closing(self._make()) as env:
            for name, value in self._read_fields(env).items():
                setattr(self, name, value)
        self.info = *info, *reward_names(self.reward_size)

    def __repr__(self) -> str:
        arguments = [repr(self.name), *(f"{name}={value!r}" for name, value in self.options)]
        return f"GymnasiumEnv({', '.join(arguments)})"

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
        if not isinstance(self.source, str):
            return
        for name, value in self.options:
            if not _is_plain(value):
                raise _option_error(name, value)

    def _read_fields(self, env: Any) -> dict[str, Any]:
        """Return the fields of this class that an environment determines."""
        import gymnasium as gym

        # slow: imports Gymnasium
        from occupax.envs.gymnasium_actions import read_actions
        from occupax.envs.observation_checks import check_space
        from occupax.envs.vector_reward import vector_reward_size

        try:
            action_space = env.action_space
            space = env.observation_space
        except (Exception, SystemExit) as error:
            raise ValueError(
                f"{self.name} does not tell its spaces. {type(error).__name__}: {error}"
            ) from error
        actions = read_actions(action_space)
        if actions is None:
            raise ValueError(
                f"the action space of {self.name} must be Discrete, MultiDiscrete, MultiBinary or "
                f"a Box of real numbers, with at least one entry, got {action_space}."
            )
        for issue in check_space(space):
            raise ValueError(
                f"{self.name}: {issue.what}: it must be {issue.expected}, got {issue.actual}."
            )
        is_tabular = isinstance(space, gym.spaces.Discrete)
        flat = space if is_tabular else gym.spaces.flatten_space(space)
        return {
            "action_space": actions,
            "num_states": int(space.n) if is_tabular else None,
            "time_limit": time_limit(env),
            "shape": flat.shape or (),
            "dtype": str(flat.dtype),
            "bounds": _read_bounds(flat),
            "parts": _read_parts(space),
            "reward_size": vector_reward_size(env),
        }

    @property
    def name(self) -> str:
        """Id, or name of the function."""
        if isinstance(self.source, str):
            return self.source
        return getattr(self.source, "__name__", repr(self.source))

    def make(self) -> Any:
        """Return a new Gymnasium environment, after a check that its spaces are those of this one.

        An environment with vector rewards returns their sum, and each entry in the `info`.
        """
        # slow: imports Gymnasium
        from occupax.envs.vector_reward import SplitReward

        env = self._make()
        for name, value in self._read_fields(env).items():
            if value != getattr(self, name):
                raise ValueError(
                    f"{self.name} makes another environment than it did before: {name} was "
                    f"{getattr(self, name)}, and is {value}."
                )
        return env if self.reward_size is None else SplitReward(env, self.reward_size)

    def _make(self) -> Any:
        import gymnasium as gym

        options = dict(self.options)
        if isinstance(self.source, str):
            if self.reward_size is not None:  # Gymnasium's own check expects scalar rewards
                options["disable_env_checker"] = True
            return make_gymnasium(self.source, options)
        try:
            env = self.source(**options)
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self.name} failed to make an environment. {reason}") from error
        if not isinstance(env, gym.Env):
            raise ValueError(f"{self.name} must make a gymnasium.Env, got {type(env).__name__}.")
        return env

    @property
    def observation_bounds(self) -> Bounds:
        """Bounds that the space declares. Empty for images and other large observations."""
        return self.bounds

    def observation_spec(self) -> Any:
        """Return shape and dtype of one observation."""
        return jax.ShapeDtypeStruct(self.shape, jax.dtypes.canonicalize_dtype(self.dtype))


def check_names(argument: str, names: Any) -> None:
    """Raise ValueError for anything but a list of strings."""
    is_list = isinstance(names, Iterable) and not isinstance(names, str)
    if not is_list or not all(type(name) is str for name in names):
        raise ValueError(f"{argument} must be a list of names, got {shown(names)}.")


def _read_parts(space: Any) -> tuple[Part, ...]:
    """Return the entries of a Dict in the order in which Gymnasium flattens them."""
    import gymnasium as gym

    spaces = space.spaces if isinstance(space, gym.spaces.Dict) else {"": space}
    parts: list[Part] = []
    start = 0
    for name, part in spaces.items():
        size = gym.spaces.flatdim(part)
        shape = part.shape if isinstance(part, gym.spaces.Box) else (size,)
        parts.append(Part(name, shape, start))
        start += size
    return tuple(parts)


def _read_bounds(space: Any) -> Bounds:
    """Return the bounds of a flat observation. Nothing if there are very many."""
    import gymnasium as gym

    if not isinstance(space, gym.spaces.Box) or np.prod(space.shape) > MAX_BOUNDS:
        return ()
    return tuple(zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True))


def hashable_options(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return options as a sorted tuple that can be hashed."""
    return tuple((name, _hashable(name, value)) for name, value in sorted(options.items()))


def _hashable(name: str, value: Any) -> Any:
    """Return an option with tuples instead of lists. Raise ValueError if it cannot be hashed."""
    if isinstance(value, list | tuple):
        value = tuple(_hashable(name, part) for part in value)
    try:
        hash(value)
    except TypeError:
        raise _option_error(name, value) from None
    return value


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _option_error(name: str, value: Any) -> ValueError:
    return ValueError(
        f"the option {name} must be a number, a string or a list of these, got {value!r:.60}; "
        "give a function that makes the environment instead."
    )

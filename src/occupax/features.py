"""Feature maps phi(s, a), whose discounted sum is the occupancy.

The value of a feature map is a `Count`: a few entries of the vector phi(s, a). A one-hot feature
therefore costs one index, without a dense array [time, states * actions].
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Num

from occupax.envs.actions import DiscreteActions
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec, reward_size
from occupax.errors import (
    MAX_SIZE,
    check_finite,
    check_integers,
    read_array,
    tracing_error,
    unknown,
)


class Visit(NamedTuple):
    """One step of an episode."""

    observation: Any
    """Observation before the action."""
    action: Num[Array, "*n"]
    """Action that the environment receives, after clipping."""
    reward: Float[Array, ""]
    """Reward of the step."""
    info: Float[Array, " k"] | None = None
    """Recorded values of the simulator's `info`. None without recorded values and after the end."""


class Count(eqx.Module):
    """Sparse vector phi(s, a), or a batch of vectors. Entries that are not listed are zero.

    A vector with all of its entries must list them in order, because no index is looked up then.
    """

    index: Int[Array, "*batch k"]
    """Positions of the entries."""
    value: Float[Array, "*batch k"]
    """Values of the entries."""

    def total(self, weight: Float[Array, "*batch"], size: int) -> Float[Array, " d"]:
        """Return the weighted sum of the vectors of a batch, of length `size`."""
        values = self.value * weight[..., None]
        if values.shape[-1] == size:
            return values.reshape(-1, size).sum(0)
        return jnp.zeros(size, values.dtype).at[self.index].add(values)

    def inner(self, quasi_reward: Float[Array, " d"]) -> Float[Array, "*batch"]:
        """Return the inner product of each vector with `quasi_reward`."""
        is_dense = self.value.shape[-1] == len(quasi_reward)
        rewards = quasi_reward if is_dense else quasi_reward[self.index]
        return (rewards * self.value).sum(-1)


class Feature(eqx.Module):
    """Map from a step to a vector. The discounted sum of the vectors is the occupancy."""

    @abstractmethod
    def size(self, env: DecisionProcess) -> int:
        """Return the length d of the vector. Raise ValueError if the environment lacks it."""

    @abstractmethod
    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the vector of a step."""


class StateAction(Feature):
    """One-hot over state-action pairs, entry s * A + a: the paper's occupancy measure lambda."""

    def size(self, env: DecisionProcess) -> int:
        """Return the number of pairs, S * A."""
        if not isinstance(env.action_space, DiscreteActions):
            hint = "use Grid(..., actions=[...]) or a function of (observation, action) instead"
            raise ValueError(
                f"StateAction features need discrete actions, got {env.action_space}; {hint}."
            )
        return _states(env, self) * env.num_actions

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the one-hot vector of the pair of the step."""
        return _one_hot(visit.observation * env.num_actions + visit.action, visit)


class State(Feature):
    """One-hot over states."""

    def size(self, env: DecisionProcess) -> int:
        """Return the number of states, S."""
        return _states(env, self)

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the one-hot vector of the state of the step."""
        return _one_hot(visit.observation, visit)


class Reward(Feature):
    """Reward of a step. Its occupancy is the discounted return."""

    def size(self, env: DecisionProcess) -> int:
        """Return 1."""
        if (rewards := reward_size(env)) is not None:
            hint = "use features=Rewards() with a utility of their returns"
            raise ValueError(
                f"Reward features need a reward that is a number, got a vector of {rewards}; "
                f"{hint}."
            )
        return 1

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the reward of the step."""
        return Count(jnp.zeros(1, jnp.int32), visit.reward[None])


class Rewards(Feature):
    """Vector of rewards of a step. Its occupancy has the discounted return of each reward."""

    def size(self, env: DecisionProcess) -> int:
        """Return the number of rewards."""
        rewards = reward_size(env)
        if rewards is None:
            kinds = "an environment of Gymnasium with a reward_space, as those of mo-gymnasium"
            raise ValueError(
                f"Rewards features need {kinds}, got {type(env).__name__} whose reward is a number."
            )
        return rewards

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the rewards of the step, and zeros after the end."""
        size = self.size(env)  # rewards are the last recorded values
        values = jnp.zeros(size) if visit.info is None else visit.info[-size:]
        return _dense(values.astype(visit.reward.dtype))


class Info(Feature):
    """Values in the `info` of every step, recorded by `GymnasiumEnv(..., info=["cost"])`.

    Args:
        names: keys of `info`.
    """

    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, *names: str):
        self.names = names

    def __check_init__(self) -> None:
        if not self.names or not all(isinstance(name, str) for name in self.names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"Info needs the names of values in the info, got {self.names!r}.")

    def size(self, env: DecisionProcess) -> int:
        """Return the number of recorded values."""
        return len(self._positions(env))

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the values of the step, and zeros after the end."""
        values = jnp.zeros(len(self.names))
        if visit.info is not None:
            values = visit.info[jnp.array(self._positions(env))]
        return _dense(values.astype(visit.reward.dtype))

    def _positions(self, env: DecisionProcess) -> list[int]:
        """Return the positions of the names among the recorded values of an environment."""
        recorded: tuple[str, ...] = getattr(env, "info", ())
        for name in self.names:
            if name not in recorded:
                keys = sorted({*recorded, *self.names})
                raise ValueError(
                    f"the info value {name!r} is not recorded: "
                    f"make the environment with GymnasiumEnv(..., info={keys})."
                )
        return [recorded.index(name) for name in self.names]


class Grid(Feature):
    """One-hot over the cells of a grid of coordinates of the observation and the action.

    What lies outside the grid counts in its outermost cells.

    Args:
        low: lower edge of the grid along each coordinate, those of the observation first. For
            observations of Gymnasium that are a Dict, the names of their entries instead, each with
            its own (low, high, bins): `Grid({"pos": ([-1, -1], [1, 1], [8, 8]), "speed": (0, 2,
            4)})`.
        high: upper edge of the grid along each coordinate.
        bins: number of cells along each coordinate.
        coordinates: which entries of the flattened observation are meant; the first ones by
            default.
        actions: which entries of the action, as the environment is given it, are meant; none by
            default.
    """

    low: Float[np.ndarray, " c"]
    high: Float[np.ndarray, " c"]
    bins: tuple[int, ...] = eqx.field(static=True)
    coordinates: tuple[int | tuple[str, int], ...] = eqx.field(static=True)
    """Places in the flat observation, or in an entry of a Dict."""
    actions: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        low: Sequence[float] | Float[np.ndarray, " c"] | Mapping[str, tuple[Any, Any, Any]],
        high: Sequence[float] | Float[np.ndarray, " c"] = (),
        bins: Sequence[int] = (),
        coordinates: Sequence[int] | None = None,
        actions: Sequence[int] = (),
    ):
        named: list[tuple[str, int]] = []
        if isinstance(low, Mapping):
            if len(high) or len(bins) or coordinates is not None or actions:
                raise ValueError(
                    "a Grid of named entries must have nothing but them, each with "
                    "(low, high, bins)."
                )
            named, low, high, bins = _read_names(low)
        self.low, self.high = read_array("low", low), read_array("high", high)
        self.bins = check_integers("bins", bins)
        self.actions = check_integers("actions", actions, minimum=0)
        chosen = range(len(self.bins) - len(self.actions)) if coordinates is None else coordinates
        self.coordinates = tuple(named) or check_integers("coordinates", chosen, minimum=0)

    def __check_init__(self) -> None:
        for name, values, minimum in (("bins", self.bins, 1), ("actions", self.actions, 0)):
            check_integers(name, values, minimum)
        check_integers(
            "coordinates",
            [one for one in self.coordinates if not isinstance(one, tuple)],
            minimum=0,
        )
        for name, bounds in (("low", self.low), ("high", self.high)):
            check_finite(name, bounds)
        lengths = (
            self.low.size,
            self.high.size,
            len(self.bins),
            len(self.coordinates) + len(self.actions),
        )
        if len(set(lengths)) != 1 or not self.bins:
            got = "{}, {}, {} and {}".format(*lengths)
            raise ValueError(
                f"low, high, bins and coordinates (with actions) must have one length, got {got}."
            )
        if not (self.low < self.high).all():
            raise ValueError(f"low must be below high, got low={self.low} and high={self.high}.")
        if prod(self.bins) > MAX_SIZE:
            raise ValueError(
                f"bins must make at most {MAX_SIZE:,} cells, got {prod(self.bins):.3g}."
            )

    def size(self, env: DecisionProcess) -> int:
        """The number of cells."""
        for name, chosen, whole, spec in (
            ("coordinates", self._places(env), "observation", observation_spec(env)),
            ("actions", self.actions, "action", env.action_space.spec()),
        ):
            entries = int(np.prod(spec.shape))
            if not all(c < entries for c in chosen):
                raise ValueError(
                    f"{name} must lie in 0..{entries - 1} for this {whole}, got {chosen}."
                )
        return int(np.prod(self.bins))

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """A one at the cell of the observation and the action."""
        parts = (visit.observation, self._places(env)), (visit.action, self.actions)
        chosen = [jnp.ravel(whole)[np.array(entries)] for whole, entries in parts if entries]
        place, shape = jnp.concatenate(chosen), jnp.array(self.bins)
        cell = jnp.clip(
            jnp.floor((place - self.low) / (self.high - self.low) * shape), 0, shape - 1
        ).astype(jnp.int32)
        return _one_hot(jnp.ravel_multi_index(tuple(cell), self.bins, mode="clip"), visit)

    def _places(self, env: DecisionProcess) -> tuple[int, ...]:
        """The coordinates as places in the flat observation."""
        parts = {part.name: part for part in getattr(env, "parts", ()) if part.name}
        places: list[int] = []
        for coordinate in self.coordinates:
            if isinstance(coordinate, int):
                places.append(coordinate)
                continue
            name, entry = coordinate
            if name not in parts:
                if not parts:
                    raise ValueError(
                        f"Grid names {name!r}, but observations of {type(env).__name__} are "
                        "no Dict."
                    )
                raise unknown("entry of the observation", name, parts)
            size = int(np.prod(parts[name].shape))
            names = [entry[0] for entry in self.coordinates if isinstance(entry, tuple)]
            if names.count(name) != size:
                raise ValueError(
                    f"Grid must have (low, high, bins) for the {size} numbers of {name!r}, "
                    f"got {names.count(name)}."
                )
            places.append(parts[name].start + entry)
        return tuple(places)


def _read_names(named: Mapping[str, Any]) -> tuple[list[tuple[str, int]], Any, Any, Any]:
    """Return the coordinates of the named entries, and low, high and bins of each coordinate."""
    rows: list[tuple[tuple[str, int], float, float, int]] = []
    for name, axis in named.items():
        listed = axis if isinstance(axis, tuple | list) else ()
        columns = [np.atleast_1d(np.asarray(part)).tolist() for part in listed]
        if len(columns) != 3 or len({len(column) for column in columns}) != 1:
            allowed = "(low, high, bins): three numbers, or three lists of one length"
            raise ValueError(f"Grid must have {allowed} for {name!r}, got {axis!r:.60}.")
        rows += [((name, i), *row) for i, row in enumerate(zip(*columns, strict=True))]
    coordinates, low, high, bins = zip(*rows, strict=True) if rows else ((), (), (), ())
    return list(coordinates), low, high, bins


class Table(Feature):
    """A vector for each state and action of a table.

    Args:
        values: vectors, [S, A, d].
    """

    values: Float[np.ndarray, "S A d"]

    def __init__(self, values: ArrayLike):
        self.values = read_array("values", values)

    def __check_init__(self) -> None:
        check_finite("values", self.values)
        if self.values.ndim != 3:
            raise ValueError(f"values must be an array [S, A, d], got shape {self.values.shape}.")

    def size(self, env: DecisionProcess) -> int:
        """Return the length of the vectors, d."""
        expected = (_states(env, self), env.num_actions)
        if self.values.shape[:2] != expected:
            raise ValueError(
                f"values must have shape [S, A, d] with S, A = {expected}, got {self.values.shape}."
            )
        return self.values.shape[2]

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the vector of the state and action of the step."""
        return _dense(jnp.asarray(self.values)[visit.observation, visit.action])


class Function(Feature):
    """Any function of (observation, action) that returns a number or a vector."""

    function: Callable[[Any, Any], Any]
    """Function that JAX can trace."""

    def size(self, env: DecisionProcess) -> int:
        """Return the length of the vector that the function returns."""
        try:
            spec = jax.eval_shape(self.function, observation_spec(env), env.action_space.spec())
        except Exception as error:
            raise tracing_error("the feature function", "(observation, action)", error) from error
        shape = getattr(spec, "shape", None)
        if shape is None or len(shape) > 1 or 0 in shape:
            raise ValueError(f"a feature function must return a number or a vector, got {spec}.")
        if jnp.issubdtype(spec.dtype, jnp.complexfloating):
            raise ValueError(f"a feature function must return real numbers, got {spec.dtype}.")
        return int(np.prod(shape))

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the value of the function on observation and action."""
        value = self.function(visit.observation, visit.action)
        return _dense(jnp.atleast_1d(jnp.asarray(value, visit.reward.dtype)))


VISITS = (StateAction, State, Grid)
"""Features that count visits, so that their occupancy is never negative."""


class Stack(Feature):
    """Concatenation of features.

    Args:
        parts: features, or functions of (observation, action).
    """

    parts: tuple[Feature, ...]

    def __init__(self, *parts: Feature | Callable[[Any, Any], Any]):
        self.parts = tuple(as_feature(part) for part in parts)

    def __check_init__(self) -> None:
        if not self.parts:
            raise ValueError("Stack needs at least one feature, got none.")

    def size(self, env: DecisionProcess) -> int:
        """Return the sum of the sizes of the parts."""
        return sum(part.size(env) for part in self.parts)

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the concatenated vectors of the parts."""
        counts = [part.count(env, visit) for part in self.parts]
        starts = np.cumsum([0] + [part.size(env) for part in self.parts[:-1]])
        index = jnp.concatenate(
            [count.index + int(start) for count, start in zip(counts, starts, strict=True)]
        )
        return Count(index, jnp.concatenate([count.value for count in counts]))


class Outer(Feature):
    """Products of two entries of a feature. Its occupancy is the matrix of second moments."""

    part: Feature
    """Feature whose entries are multiplied."""

    def size(self, env: DecisionProcess) -> int:
        """Return the square of the size of the feature."""
        return self.part.size(env) ** 2

    def count(self, env: DecisionProcess, visit: Visit) -> Count:
        """Return the products of the entries of the vector of the step."""
        vector = self.part.count(env, visit)
        index = vector.index[:, None] * self.part.size(env) + vector.index
        products = vector.value[:, None] * vector.value
        return Count(jnp.ravel(index), jnp.ravel(products))


def as_feature(value: Any) -> Feature:
    """Return a feature unchanged, or wrap a function of (observation, action).

    Args:
        value: feature or function.

    Returns:
        The feature.

    Raises:
        ValueError: for any other value.
    """
    if isinstance(value, Feature):
        return value
    if callable(value) and not isinstance(value, type):
        return Function(value)
    raise ValueError(
        "features must be one of occupax.features or a function of (observation, action), "
        f"got {value!r}."
    )


def _states(env: DecisionProcess, feature: Feature) -> int:
    states = number_of_states(env)
    if states is None:
        raise ValueError(
            f"{type(feature).__name__} features need a tabular environment, "
            f"got {type(env).__name__}; use Grid or a function of (observation, action) instead."
        )
    return states


def _one_hot(index: Int[Array, ""], visit: Visit) -> Count:
    return Count(jnp.asarray(index, jnp.int32)[None], jnp.ones(1, visit.reward.dtype))


def _dense(vector: Float[Array, " d"]) -> Count:
    return Count(jnp.arange(vector.size), vector)

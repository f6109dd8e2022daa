"""Policies from observations of Gymnasium to actions for `step`."""

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from occupax.envs.gymnasium_actions import action_writer
from occupax.envs.spaces import Spaces, read_spaces
from occupax.errors import check_integer, real_array
from occupax.policies.base import Policy, check_policy
from occupax.policies.categorical import action_probs
from occupax.policies.modes import unknown_mode_error
from occupax.policies.on_host import on_host, with_outputs_of_jax

MAX_ACTORS = 16
"""Maximum number of policies that are ready to predict."""

Generator = np.random.Generator
PredictActions = Callable[[np.ndarray, Generator | None], np.ndarray]
"""Function of encoded observations that draws actions; the most probable ones without a
generator."""


class Actor:
    """A policy between the spaces of an environment, with a random generator of its own."""

    def __init__(self, policy: Policy, spaces: Spaces):
        self._spaces = spaces
        self._predict = _predict_function(policy, spaces)
        self._generator = np.random.default_rng()
        self._write = action_writer(spaces.action)

    def act(self, observation: Any, deterministic: bool, seed: int | None) -> Any:
        """Return the action for an observation, or the actions for a batch of observations."""
        generator: Generator | None = self._generator
        if seed is not None:
            generator = _seeded(seed)
        if deterministic:
            generator = None
        count = _batch_size(self._spaces.observation, observation)
        space = self._spaces.action
        if count == 0:
            return np.zeros((0, *space.shape), space.dtype)
        rows = _encode(self._spaces, observation, count)
        actions = self._write(self._predict(rows, generator))
        if count is not None:
            return np.array(actions, space.dtype).reshape(count, *space.shape)
        if isinstance(space, gym.spaces.Discrete):
            return int(actions[0])
        return actions[0]


def _seeded(seed: int) -> Generator:
    return np.random.default_rng(check_integer("seed", seed, minimum=0))


_ACTORS: deque[tuple[Policy, Actor]] = deque(maxlen=MAX_ACTORS)


def actor_of(policy: Policy) -> Actor:
    """Return the actor of a policy, which is made at the first call."""
    for known, actor in _ACTORS:
        if known is policy:
            return actor
    if not policy.spaces:
        raise ValueError(
            "predict needs the spaces of an environment, which this policy does not know: "
            "policy.for_env(env) does."
        )
    actor = Actor(policy, read_spaces(policy.spaces))
    _ACTORS.append((policy, actor))
    return actor


class StableBaselinesPolicy:
    """A policy with `predict` of Stable-Baselines3, for its `evaluate_policy`.

    Args:
        policy: a trained policy.
        seed: seed of the random actions; by default they differ between runs.
    """

    def __init__(self, policy: Policy, seed: int | None = None):
        check_policy(policy)
        self._policy = policy
        self._generator: Generator | None = None
        if seed is not None:
            self._generator = _seeded(seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """Choose actions as `Policy.predict`.

        Args:
            observation: one observation, or a batch.
            state: any object, which is returned.
            episode_start: ignored.
            deterministic: whether to take the most probable actions.

        Returns:
            The action, or the actions of a batch, and the state.
        """
        del episode_start
        seed = None
        if self._generator is not None:
            seed = int(self._generator.integers(2**31))
        return np.asarray(self._policy.predict(observation, deterministic, seed)), state


def _batch_size(space: Any, observation: Any) -> int | None:
    """Return the number of observations in a batch. None for a single observation."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return _batch_size_of_parts(space, observation)
    shape = real_array("observation", observation).shape
    wanted = space.shape
    if shape == wanted:
        return None
    if shape[1:] == wanted and len(shape) == len(wanted) + 1:
        return shape[0]
    raise ValueError(
        f"observation must have the shape {wanted}, or {('n', *wanted)} for a batch, got {shape}."
    )


def _batch_size_of_parts(space: Any, observation: Any) -> int | None:
    keys: Any = range(len(space.spaces))
    if isinstance(space, gym.spaces.Dict):
        keys = list(space.spaces)
    sizes: set[int | None] = set()
    try:
        for key in keys:
            sizes.add(_batch_size(space[key], observation[key]))
    except (KeyError, IndexError, TypeError):
        sizes.clear()
    if len(sizes) != 1:
        raise ValueError(f"observation must have the parts of {space}, got {observation!r:.60}.")
    return sizes.pop()


def _encode(spaces: Spaces, observation: Any, count: int | None) -> np.ndarray:
    """Return observations in the encoding of training, one row each."""
    space = spaces.observation
    if isinstance(space, gym.spaces.Discrete):
        return _encode_states(space, observation)
    if isinstance(space, gym.spaces.Box):
        rows = np.asarray(observation, space.dtype)
        if count is None:
            rows = rows[None]
        if spaces.flat:
            return rows.reshape(len(rows), -1)
        return rows
    if count is None:
        return np.array([gym.spaces.flatten(space, observation)])
    return np.array([gym.spaces.flatten(space, _at(space, observation, i)) for i in range(count)])


def _encode_states(space: Any, observation: Any) -> np.ndarray:
    values = np.atleast_1d(np.asarray(observation))
    states = values - int(space.start)
    is_integer = np.issubdtype(values.dtype, np.integer)
    if not is_integer or (states < 0).any() or (states >= space.n).any():
        raise ValueError(f"observation must be a state of {space}, got {observation!r:.60}.")
    return states


def _at(space: Any, batch: Any, i: int) -> Any:
    """Return observation i of a batch of a space with parts."""
    if isinstance(space, gym.spaces.Dict):
        return {name: _at(part, batch[name], i) for name, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        return tuple(_at(part, entries, i) for part, entries in pairs)
    return batch[i]


def _predict_function(policy: Policy, spaces: Spaces) -> PredictActions:
    """Return the prediction of a policy: by NumPy where supported, otherwise by JAX."""
    host = on_host(policy) or with_outputs_of_jax(policy, int(getattr(spaces.action, "n", 0)))
    if host is None:
        return _predict_by_jax(policy, spaces)

    def predict(rows: np.ndarray, generator: Generator | None) -> np.ndarray:
        noise = _noise(host.noise, (len(rows), *host.shape), generator).astype(host.dtype)
        _, actions, log_probs = host.draw(rows, noise)
        if not np.isfinite(log_probs).all():
            raise ValueError(
                "policy must have finite probabilities, but those for this observation are not."
            )
        return actions

    return predict


def _predict_by_jax(policy: Policy, spaces: Spaces) -> PredictActions:
    """Return the prediction of a policy of which only the methods are known."""
    draw = jax.jit(jax.vmap(policy.action))

    def predict(rows: np.ndarray, generator: Generator | None) -> np.ndarray:
        if generator is not None:
            key = jax.random.key(int(generator.integers(2**31)))
            return np.asarray(draw(rows, jax.random.split(key, len(rows))))
        if not isinstance(spaces.action, gym.spaces.Discrete):
            raise unknown_mode_error(policy)
        num_actions = int(spaces.action.n)
        probs = jax.vmap(lambda row: action_probs(policy, row, num_actions))(rows)
        return np.asarray(jnp.argmax(probs, -1))

    return predict


def _noise(name: str, shape: tuple[int, ...], generator: Generator | None) -> np.ndarray:
    """Return noise of a distribution. Zeros without a generator."""
    if generator is None:
        return np.zeros(shape)
    if name == "gumbel":
        return generator.gumbel(size=shape)
    return generator.standard_normal(shape)

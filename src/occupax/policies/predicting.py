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
from occupax.policies.on_host import on_host, with_outputs_of_jax

MOST_ACTORS = 16
"""How many policies are kept ready to predict."""

Choose = Callable[[np.ndarray, np.random.Generator | None], np.ndarray]
"""Actions for encoded observations, the most probable ones if there is no source of random
numbers."""


class Actor:
    """A policy between the spaces of an environment, with random numbers of its own."""

    def __init__(self, policy: Policy, spaces: Spaces):
        self._spaces, self._choose, self._random = (
            spaces,
            _choosing(policy, spaces),
            np.random.default_rng(),
        )
        self._write = action_writer(spaces.action)

    def act(self, observation: Any, deterministic: bool, seed: int | None) -> Any:
        """The action for an observation, or the actions for a batch of them."""
        random = (
            self._random
            if seed is None
            else np.random.default_rng(check_integer("seed", seed, minimum=0))
        )
        count, taken = _batch_size(self._spaces.observation, observation), self._spaces.action
        if count == 0:
            return np.zeros((0, *taken.shape), taken.dtype)
        seen = _encode(self._spaces, observation, count)
        actions = self._write(self._choose(seen, None if deterministic else random))
        if count is not None:
            return np.array(actions, taken.dtype).reshape(count, *taken.shape)
        return int(actions[0]) if isinstance(taken, gym.spaces.Discrete) else actions[0]


_ACTORS: deque[tuple[Policy, Actor]] = deque(maxlen=MOST_ACTORS)


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
        seed: of its random actions; by default they differ from time to time.
    """

    def __init__(self, policy: Policy, seed: int | None = None):
        check_policy(policy)
        self._policy = policy
        self._seeds = (
            None if seed is None else np.random.default_rng(check_integer("seed", seed, minimum=0))
        )

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """Choose actions as `Policy.predict`; `state` is returned and `episode_start` ignored.

        Returns:
            The action, or those of a batch, and the state.
        """
        del episode_start
        seed = None if self._seeds is None else int(self._seeds.integers(2**31))
        return np.asarray(self._policy.predict(observation, deterministic, seed)), state


def _batch_size(space: Any, observation: Any) -> int | None:
    """How many observations there are; None for one that is not in a batch."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        keys: Any = (
            list(space.spaces) if isinstance(space, gym.spaces.Dict) else range(len(space.spaces))
        )
        try:
            sizes = {_batch_size(space[key], observation[key]) for key in keys}
        except (KeyError, IndexError, TypeError):
            sizes = set()
        if len(sizes) != 1:
            raise ValueError(
                f"observation must have the parts of {space}, got {observation!r:.60}."
            )
        return sizes.pop()
    shape, wanted = real_array("observation", observation).shape, space.shape
    if shape == wanted:
        return None
    if shape[1:] == wanted and len(shape) == len(wanted) + 1:
        return shape[0]
    raise ValueError(
        f"observation must have the shape {wanted}, or {('n', *wanted)} for a batch, got {shape}."
    )


def _encode(spaces: Spaces, observation: Any, count: int | None) -> np.ndarray:
    """Observations as policies see them in training, one after the other."""
    space = spaces.observation
    if isinstance(space, gym.spaces.Discrete):
        seen = np.atleast_1d(np.asarray(observation))
        states = seen - int(space.start)
        if (
            not np.issubdtype(seen.dtype, np.integer)
            or (states < 0).any()
            or (states >= space.n).any()
        ):
            raise ValueError(f"observation must be a state of {space}, got {observation!r:.60}.")
        return states
    if isinstance(space, gym.spaces.Box):
        rows = np.asarray(observation, space.dtype).reshape(
            1 if count is None else count, *space.shape
        )
        return rows.reshape(len(rows), -1) if spaces.flat else rows
    single = [observation] if count is None else [_at(space, observation, i) for i in range(count)]
    return np.array([gym.spaces.flatten(space, one) for one in single])


def _at(space: Any, batch: Any, i: int) -> Any:
    if isinstance(space, gym.spaces.Dict):
        return {name: _at(part, batch[name], i) for name, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(
            _at(part, entries, i) for part, entries in zip(space.spaces, batch, strict=True)
        )
    return batch[i]


def _choosing(policy: Policy, spaces: Spaces) -> Choose:
    """Return the choice of actions of a policy: by NumPy where supported, otherwise by JAX."""
    host = on_host(policy) or with_outputs_of_jax(policy, int(getattr(spaces.action, "n", 0)))
    if host is None:
        return _choosing_by_draws(policy, spaces)

    def choose(rows: np.ndarray, random: np.random.Generator | None) -> np.ndarray:
        noise = _noise(host.law, (len(rows), *host.shape), random).astype(host.dtype)
        _, actions, log_probs = host.draw(rows, noise)
        return _finite(actions, log_probs)

    return choose


def _choosing_by_draws(policy: Policy, spaces: Spaces) -> Choose:
    """How a policy chooses that says nothing but what it draws, and with which probability."""
    draw = jax.jit(jax.vmap(policy.action))

    def choose(rows: np.ndarray, random: np.random.Generator | None) -> np.ndarray:
        if random is not None:
            key = jax.random.key(int(random.integers(2**31)))
            return np.asarray(draw(rows, jax.random.split(key, len(rows))))
        if not isinstance(spaces.action, gym.spaces.Discrete):
            kind = type(policy).__name__
            reason = f"the most probable action of {kind} is not known"
            raise ValueError(f"deterministic must be False, because {reason}.")
        probs = jax.vmap(lambda row: action_probs(policy, row, int(spaces.action.n)))(rows)
        return np.asarray(jnp.argmax(probs, -1))

    return choose


def _noise(law: str, shape: tuple[int, ...], random: np.random.Generator | None) -> np.ndarray:
    if random is None:
        return np.zeros(shape)
    return random.gumbel(size=shape) if law == "gumbel" else random.standard_normal(shape)


def _finite(actions: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    if not np.isfinite(numbers).all():
        raise ValueError(
            "policy must have finite probabilities, but those for this observation are not."
        )
    return actions

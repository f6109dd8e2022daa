"""Agents of other libraries and plain functions, which choose actions in Gymnasium's terms.

An agent has `predict(observation)`, as those of Stable-Baselines3 have, or is a function of the
observation. Its probabilities are unknown, so that it is played and certified, but not trained.
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from occupax.envs.actions import ActionSpace
from occupax.policies.base import (
    Action,
    Policy,
    check_policy,
    is_initialiser,
    network_library,
)

Choose = Callable[[Any, Any, bool], tuple[Any, Any]]
"""Returns action and state for an observation, the state before it, and whether an episode
begins."""


class Agent:
    """An agent in an environment, with observations and actions in the encoding of this package.

    Args:
        source: an object with `predict`, or a function of the observation.
        env: the environment, of this package or of Gymnasium.
        deterministic: what `predict` is told, if it has an argument of this name.
    """

    def __init__(self, source: Any, env: Any, deterministic: bool = False):
        from occupax.envs.gymnasium_actions import read_actions
        from occupax.envs.spaces import describe_spaces, read_spaces

        self._space, self._actions, _ = read_spaces(describe_spaces(env))
        space = read_actions(self._actions)
        if space is None:
            raise ValueError(f"the actions of env must be numbers, got {self._actions}.")
        self._taken: ActionSpace = space
        self._choose = (
            _by_predict(source.predict, deterministic)
            if _has_predict(source)
            else _by_function(source)
        )
        self._states: dict[int, Any] = {}

    @property
    def action_space(self) -> Any:
        """The kind of its actions, as that of a policy."""
        return self._taken.kinds[0]

    def act(self, observation: Any, begins: bool, place: int = 0) -> np.ndarray:
        """Return the action for an observation, in the encoding of this package.

        Args:
            observation: what the environment returned.
            begins: whether it is the first observation of an episode.
            place: the number of the environment, of several that are stepped side by side.
        """
        from occupax.envs.gymnasium_actions import read_action

        state = None if begins else self._states.get(place)
        try:
            action, self._states[place] = self._choose(observation, state, begins)
        except Exception as error:
            shown = " ".join(repr(observation).split())
            reason = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
            raise ValueError(
                f"policy fails on the observation {shown:.60} of {self._space}. {reason}."
            ) from error
        return read_action(self._actions, action)

    def act_on_row(self, row: np.ndarray, begins: bool, place: int = 0) -> np.ndarray:
        """Return the action for an observation in the encoding of this package."""
        return self.act(self._restored(row), begins, place)

    def remembers(self) -> bool:
        """Return whether `predict` returned a state, so that actions depend on earlier steps."""
        return any(state is not None for state in self._states.values())

    def behaviour(self) -> "Recorded":
        """Return what stands for the agent where estimates are computed from its trajectories."""
        return Recorded(self._taken)

    def _restored(self, row: np.ndarray) -> Any:
        import gymnasium as gym

        space = self._space
        if isinstance(space, gym.spaces.Discrete):
            return int(row) + int(space.start)
        if isinstance(space, gym.spaces.Box):
            return np.asarray(row, space.dtype).reshape(space.shape)
        return gym.spaces.unflatten(space, row)


class Recorded(Policy):
    """Behaviour policy of trajectories with unknown log-probabilities, recorded as 0."""

    actions: ActionSpace

    @property
    def action_space(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kind of the recorded actions."""
        return self.actions.kinds[0]

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Action, Float[Array, ""]]:
        """Return an action of the right shape: recorded actions cannot be drawn again."""
        del key
        spec = self.actions.spec()
        return jnp.zeros(spec.shape, spec.dtype), self.log_prob(observation, None)

    def log_prob(self, observation: Any, action: Any) -> Float[Array, ""]:
        """Return 0, which is what was recorded."""
        del observation, action
        return jnp.zeros(())


def is_agent(source: Any) -> bool:
    """Return whether an object has `predict`, or is a function that may choose actions."""
    if isinstance(source, type | Policy):
        return False
    return _has_predict(source) or (
        callable(source) and network_library(source) is None and not is_initialiser(source)
    )


def check_actor(policy: Any) -> None:
    """Raise ValueError unless something is a policy or an agent."""
    if isinstance(policy, Policy) or is_agent(policy):
        return
    if callable(policy) and not isinstance(policy, type):
        check_policy(policy)
    allowed = (
        "an occupax policy, an object with predict, or a function of the observation that returns "
        "an action"
    )
    got = policy.__name__ if isinstance(policy, type) else type(policy).__name__
    hint = "; call the class first" if isinstance(policy, type) else ""
    raise ValueError(f"policy must be {allowed}, got {got}{hint}.")


def _has_predict(source: Any) -> bool:
    return callable(getattr(source, "predict", None))


def _by_function(function: Callable[[Any], Any]) -> Choose:
    return lambda observation, _state, _begins: (function(observation), None)


def _by_predict(predict: Callable[..., Any], deterministic: bool) -> Choose:
    """Call `predict` with those arguments of Stable-Baselines3 that it takes."""
    names: set[str] = set()
    with suppress(TypeError, ValueError):  # a compiled function may have no signature
        names = set(inspect.signature(predict).parameters)

    def choose(observation: Any, state: Any, begins: bool) -> tuple[Any, Any]:
        arguments = {
            "state": state,
            "episode_start": np.array([begins]),
            "deterministic": deterministic,
        }
        returned = predict(
            observation, **{name: arguments[name] for name in arguments if name in names}
        )
        if not isinstance(returned, tuple):
            return returned, None
        if len(returned) != 2:
            count = len(returned)
            raise ValueError(
                f"predict must return an action and perhaps a state, got {count} values"
            )
        return returned

    return choose

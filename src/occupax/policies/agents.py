"""Agents of other libraries and plain functions, which choose actions of Gymnasium spaces.

An agent has `predict(observation)`, as those of Stable-Baselines3, or is a function of the
observation. Its probabilities are unknown: it can be sampled and certified, but not trained.
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from occupax.envs.actions import ActionSpace
from occupax.errors import first_line, shown
from occupax.policies.base import (
    Action,
    Policy,
    check_policy,
    is_initialiser,
    network_library,
)

ChooseAction = Callable[[Any, Any, bool], tuple[Any, Any]]
"""Function of an observation, the previous state, and whether an episode begins. Returns action
and state."""


class Agent:
    """An agent in an environment, with observations and actions in the encoding of this package.

    Args:
        source: an object with `predict`, or a function of the observation.
        env: the environment, of this package or of Gymnasium.
        deterministic: the argument of `predict` of this name, if there is one.
    """

    def __init__(self, source: Any, env: Any, deterministic: bool = False):
        from occupax.envs.gymnasium_actions import read_actions  # imports Gymnasium, which is slow
        from occupax.envs.spaces import describe_spaces, read_spaces

        spaces = read_spaces(describe_spaces(env))
        self._space = spaces.observation
        self._gymnasium_actions = spaces.action
        actions = read_actions(spaces.action)
        if actions is None:
            raise ValueError(f"the actions of env must be numbers, got {spaces.action}.")
        self._actions: ActionSpace = actions
        self._choose = _choose_function(source, deterministic)
        self._states: dict[int, Any] = {}

    @property
    def action_space(self) -> Any:
        """Action space, as that of a policy."""
        return self._actions.kinds[0]

    def act(self, observation: Any, begins: bool, slot: int = 0) -> np.ndarray:
        """Return the action for an observation, in the encoding of this package.

        Args:
            observation: an observation as the environment returns it.
            begins: whether the observation is the first one of an episode.
            slot: index of the environment, of several that are stepped side by side.
        """
        # slow: imports Gymnasium
        from occupax.envs.gymnasium_actions import read_action

        state = None
        if not begins:
            state = self._states.get(slot)
        try:
            action, self._states[slot] = self._choose(observation, state, begins)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
            raise ValueError(
                f"policy fails on the observation {shown(observation)} of {self._space}. {reason}."
            ) from error
        return read_action(self._gymnasium_actions, action)

    def act_on_row(self, row: np.ndarray, begins: bool, slot: int = 0) -> np.ndarray:
        """Return the action for an observation in the encoding of this package."""
        return self.act(self._decode(row), begins, slot)

    def remembers(self) -> bool:
        """Return whether `predict` returned a state, so that actions depend on earlier steps."""
        return any(state is not None for state in self._states.values())

    def behaviour(self) -> "Recorded":
        """Return the behaviour policy of the trajectories of the agent, for estimates."""
        return Recorded(self._actions)

    def _decode(self, row: np.ndarray) -> Any:
        """Return an observation of the environment from its encoding."""
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
        """Action space of the recorded actions."""
        return self.actions.kinds[0]

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Action, Float[Array, ""]]:
        """Return an action of the right shape: recorded actions cannot be drawn again."""
        del key
        spec = self.actions.spec()
        return jnp.zeros(spec.shape, spec.dtype), self.log_prob(observation, None)

    def log_prob(self, observation: Any, action: Any) -> Float[Array, ""]:
        """Return the recorded value, 0."""
        del observation, action
        return jnp.zeros(())


def is_agent(source: Any) -> bool:
    """Return whether an object has `predict`, or is a function that may choose actions."""
    if isinstance(source, type | Policy):
        return False
    if _has_predict(source):
        return True
    return callable(source) and network_library(source) is None and not is_initialiser(source)


def check_actor(policy: Any) -> None:
    """Raise ValueError unless an object is a policy or an agent."""
    if isinstance(policy, Policy) or is_agent(policy):
        return
    if callable(policy) and not isinstance(policy, type):
        check_policy(policy)
    got = type(policy).__name__
    if isinstance(policy, type):
        got = f"{policy.__name__}; call the class first"
    raise ValueError(
        "policy must be an occupax policy, an object with predict, or a function of the "
        f"observation that returns an action, got {got}."
    )


def _has_predict(source: Any) -> bool:
    return callable(getattr(source, "predict", None))


def _choose_function(source: Any, deterministic: bool) -> ChooseAction:
    """Return the choice of actions of an agent."""
    if _has_predict(source):
        return _by_predict(source.predict, deterministic)
    return lambda observation, _state, _begins: (source(observation), None)


def _by_predict(predict: Callable[..., Any], deterministic: bool) -> ChooseAction:
    """Return a function that calls `predict` with those arguments of its signature."""
    names: set[str] = set()
    with suppress(TypeError, ValueError):  # a compiled function may have no signature
        names = set(inspect.signature(predict).parameters)

    def choose(observation: Any, state: Any, begins: bool) -> tuple[Any, Any]:
        arguments: dict[str, Any] = {}
        if "state" in names:
            arguments["state"] = state
        if "episode_start" in names:
            arguments["episode_start"] = np.array([begins])
        if "deterministic" in names:
            arguments["deterministic"] = deterministic
        returned = predict(observation, **arguments)
        if not isinstance(returned, tuple):
            return returned, None
        if len(returned) != 2:
            count = len(returned)
            raise ValueError(
                f"predict must return an action, or an action and a state, got {count} values"
            )
        return returned

    return choose

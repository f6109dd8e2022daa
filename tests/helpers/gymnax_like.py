"""Environments with the functions of gymnax."""

import dataclasses
from typing import Any

import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Params:
    """Of the environment below."""

    max_steps_in_episode: int = 6
    goal: int = 4


@dataclasses.dataclass(frozen=True)
class Space:
    """Either kind of space, as far as it is needed."""

    n: int


class Walk:
    """Walk to a goal with the interface of gymnax before 1.0: `done` also covers the time limit.

    It observes the share of the time that is left, so that another limit would show.
    """

    def action_space(self, params: Params) -> Any:
        """One step, or none."""
        return Space(2)

    def observation_space(self, params: Params) -> Any:
        """Nothing that is known."""
        return object()

    @property
    def default_params(self) -> Params:
        """Parameters of the environment."""
        return Params()

    def observe(self, state: Any, params: Params) -> Any:
        place, time = state
        return jnp.array([place, 1 - time / params.max_steps_in_episode])

    def reset_env(self, key: Any, params: Params) -> Any:
        return self.observe((0, 0), params), (0, 0)

    def step_env(self, key: Any, state: Any, action: Any, params: Params) -> Any:
        place, time = state[0] + action, state[1] + 1
        done = (place >= params.goal) | (time >= params.max_steps_in_episode)
        return self.observe((place, time), params), (place, time), place * 1, done, {}


class SixValues(Walk):
    """Walk whose step returns termination and truncation separately."""

    def step_env(self, key: Any, state: Any, action: Any, params: Params) -> Any:
        seen, state, reward, _, info = super().step_env(key, state, action, params)
        return (
            seen,
            state,
            reward,
            state[0] >= params.goal,
            state[1] >= params.max_steps_in_episode,
            info,
        )

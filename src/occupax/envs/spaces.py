"""Observation and action spaces as strings, for policies and their files."""

import json
from math import inf, prod
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from occupax.envs.actions import BoxActions, DiscreteActions, MultiDiscreteActions
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.lookup import closing, ignoring_rounded_bounds

MAX_SIZE = 10**8
"""Maximal size of an observation: Gymnasium stores two bounds per number."""


class Spaces(NamedTuple):
    """Gymnasium spaces of an environment."""

    observation: Any
    action: Any
    flat: bool
    """Whether policies receive observations as flat vectors, as those of Gymnasium."""


def describe_spaces(env: DecisionProcess | gym.Env[Any, Any]) -> str:
    """Return the spaces of an environment as JSON. JAX environments get equivalent spaces."""
    if isinstance(env, DecisionProcess) and not isinstance(env, GymnasiumEnv):
        return _to_json(Spaces(_observation_space(env), _action_space(env.action_space), False))
    if not isinstance(env, GymnasiumEnv):
        return _to_json(Spaces(env.observation_space, env.action_space, True))
    with ignoring_rounded_bounds(), closing(env.make()) as instance:
        return _to_json(Spaces(instance.observation_space, instance.action_space, True))


def read_spaces(text: str) -> Spaces:
    """Return the spaces that JSON of `describe_spaces` holds."""
    try:
        content = json.loads(text)
        observation = _restore(content["observation"])
        return Spaces(observation, _restore(content["action"]), bool(content["flat"]))
    except (KeyError, TypeError, ValueError, AssertionError, AttributeError) as error:
        raise ValueError(
            f"spaces must be the JSON of an environment's spaces, got {text!r:.60}."
        ) from error


def _to_json(both: Spaces) -> str:
    content = {
        "observation": _describe(both.observation),
        "action": _describe(both.action, bounds=True),
        "flat": both.flat,
    }
    return json.dumps(content)


def _observation_space(env: DecisionProcess) -> Any:
    states = number_of_states(env)
    if states is not None:
        return spaces.Discrete(states)
    spec = observation_spec(env)
    if not hasattr(spec, "shape"):
        raise ValueError(
            f"observations of {type(env).__name__} must be single arrays to be described as a "
            "space."
        )
    return spaces.Box(-inf, inf, spec.shape, np.float32)


def _action_space(actions: Any) -> Any:
    match actions:
        case DiscreteActions():
            return spaces.Discrete(actions.n)
        case MultiDiscreteActions():
            return spaces.MultiDiscrete(np.array(actions.sizes))
        case BoxActions():
            low = np.array(actions.low, np.float32)
            high = np.array(actions.high, np.float32)
            return spaces.Box(low, high, dtype=np.float32)
        case _:
            raise ValueError(
                f"actions must be discrete, multi-discrete or continuous, got {actions}."
            )


def _describe(space: Any, bounds: bool = False) -> dict[str, Any]:
    """Return what flattening needs of a space, and the bounds of a Box if asked for."""
    match space:
        case spaces.Dict():
            parts = [[name, _describe(part)] for name, part in space.spaces.items()]
            return {"kind": "dict", "parts": parts}
        case spaces.Tuple():
            return {"kind": "tuple", "parts": [_describe(part) for part in space.spaces]}
        case spaces.Discrete():
            return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            sizes = space.nvec.tolist()
            start = space.start.tolist()
            dtype = str(space.dtype)
            return {"kind": "multi-discrete", "sizes": sizes, "start": start, "dtype": dtype}
        case spaces.MultiBinary():
            return {"kind": "multi-binary", "shape": list(space.shape)}
        case spaces.Box():
            box = {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype)}
            if bounds:
                box |= {"low": space.low.tolist(), "high": space.high.tolist()}
            return box
        case _:
            raise ValueError(f"a space must be a numeric space of Gymnasium, got {space}.")


def _restore(content: dict[str, Any]) -> Any:
    match content["kind"]:
        case "dict":
            return spaces.Dict([(name, _restore(part)) for name, part in content["parts"]])
        case "tuple":
            return spaces.Tuple([_restore(part) for part in content["parts"]])
        case "discrete":
            return spaces.Discrete(content["n"], start=content["start"])
        case "multi-discrete":
            sizes = np.array(content["sizes"])
            start = np.array(content["start"])
            return spaces.MultiDiscrete(sizes, content["dtype"], start=start)
        case "multi-binary":
            return spaces.MultiBinary(content["shape"])
        case "box":
            return _restore_box(content)
        case kind:
            raise ValueError(f"{kind!r} is no kind of space.")


def _restore_box(content: dict[str, Any]) -> spaces.Box:
    dtype: Any = np.dtype(content["dtype"])
    if "low" in content:
        low = np.array(content["low"], dtype)
        high = np.array(content["high"], dtype)
        return spaces.Box(low, high, dtype=dtype)
    if prod(content["shape"]) > MAX_SIZE:
        raise ValueError("the space in the file is too large for memory.")
    if dtype.kind == "f":
        return spaces.Box(-inf, inf, tuple(content["shape"]), dtype)
    limits = np.iinfo(dtype)
    return spaces.Box(limits.min, limits.max, tuple(content["shape"]), dtype)

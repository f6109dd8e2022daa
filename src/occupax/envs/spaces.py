"""The spaces of an environment as text, which a policy and its file carry along, and as spaces of Gymnasium again."""

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

MOST_NUMBERS = 10**8
"""The most numbers of an observation: Gymnasium keeps two bounds of each in memory."""


class Spaces(NamedTuple):
    """What an environment shows, and what it takes."""

    observation: Any
    action: Any
    flat: bool
    """Whether policies see an observation as one vector, as those of Gymnasium are."""


def describe_spaces(env: DecisionProcess | gym.Env[Any, Any]) -> str:
    """The spaces of an environment as JSON; an environment in JAX has those that one of Gymnasium would have."""
    if isinstance(env, DecisionProcess) and not isinstance(env, GymnasiumEnv):
        return _text(Spaces(_seen(env), _taken(env.action_space), flat=False))
    if not isinstance(env, GymnasiumEnv):
        return _text(Spaces(env.observation_space, env.action_space, flat=True))
    with ignoring_rounded_bounds(), closing(env.make()) as made:
        return _text(Spaces(made.observation_space, made.action_space, flat=True))


def read_spaces(text: str) -> Spaces:
    """The spaces that a text describes."""
    try:
        found = json.loads(text)
        return Spaces(
            _restore(found["observation"]), _restore(found["action"]), bool(found["flat"])
        )
    except (KeyError, TypeError, ValueError, AssertionError, AttributeError) as error:
        raise ValueError(
            f"spaces must be the JSON of an environment's spaces, got {text!r:.60}."
        ) from error


def _text(found: Spaces) -> str:
    described = {
        "observation": _describe(found.observation),
        "action": _describe(found.action, bounds=True),
    }
    return json.dumps({**described, "flat": found.flat})


def _seen(env: DecisionProcess) -> Any:
    states, spec = number_of_states(env), observation_spec(env)
    if states is not None:
        return spaces.Discrete(states)
    if not hasattr(spec, "shape"):
        raise ValueError(
            f"observations of {type(env).__name__} must be one array each to be described as a space."
        )
    return spaces.Box(-inf, inf, spec.shape, np.float32)


def _taken(actions: Any) -> Any:
    match actions:
        case DiscreteActions():
            return spaces.Discrete(actions.n)
        case MultiDiscreteActions():
            return spaces.MultiDiscrete(np.array(actions.sizes))
        case BoxActions():
            return spaces.Box(
                np.array(actions.low, np.float32),
                np.array(actions.high, np.float32),
                dtype=np.float32,
            )
        case _:
            raise ValueError(f"actions must be discrete, several or real numbers, got {actions}.")


def _describe(space: Any, bounds: bool = False) -> dict[str, Any]:
    """A space by what flattening needs and, for a Box of actions, its bounds."""
    match space:
        case spaces.Dict():
            return {
                "kind": "dict",
                "parts": [[name, _describe(part)] for name, part in space.spaces.items()],
            }
        case spaces.Tuple():
            return {"kind": "tuple", "parts": [_describe(part) for part in space.spaces]}
        case spaces.Discrete():
            return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            lists = {"sizes": space.nvec.tolist(), "start": space.start.tolist()}
            return {"kind": "multi-discrete", **lists, "dtype": str(space.dtype)}
        case spaces.MultiBinary():
            return {"kind": "multi-binary", "shape": list(space.shape)}
        case spaces.Box():
            edges = {"low": space.low.tolist(), "high": space.high.tolist()} if bounds else {}
            return {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype), **edges}
        case _:
            raise ValueError(f"a space must be of Gymnasium's kinds of numbers, got {space}.")


def _restore(found: dict[str, Any]) -> Any:
    match found["kind"]:
        case "dict":
            return spaces.Dict([(name, _restore(part)) for name, part in found["parts"]])
        case "tuple":
            return spaces.Tuple([_restore(part) for part in found["parts"]])
        case "discrete":
            return spaces.Discrete(found["n"], start=found["start"])
        case "multi-discrete":
            sizes, start = np.array(found["sizes"]), np.array(found["start"])
            return spaces.MultiDiscrete(sizes, found["dtype"], start=start)
        case "multi-binary":
            return spaces.MultiBinary(found["shape"])
        case "box":
            dtype: Any = np.dtype(found["dtype"])
            if "low" in found:
                return spaces.Box(
                    np.array(found["low"], dtype), np.array(found["high"], dtype), dtype=dtype
                )
            if prod(found["shape"]) > MOST_NUMBERS:
                raise ValueError("a file must not describe more numbers than fit into memory.")
            edges = (-inf, inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            return spaces.Box(*edges, tuple(found["shape"]), dtype)
        case kind:
            raise ValueError(f"{kind!r} is no kind of space.")

"""Functions and spaces of gymnax-like environments, and their faults."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions
from occupax.envs.issues import (
    EnvIssue,
    describe,
    describe_with_type,
    make_issue,
    raised_issue,
)
from occupax.errors import REAL, real_array

FUNCTIONS = ("reset_env", "step_env", "action_space", "observation_space")
RESET = "env.reset_env(key, params)"
STEP = "env.step_env(key, state, action, params)"
CALLS = {"reset_env": RESET, "step_env": STEP}
UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class _FaultError(Exception):
    """A function does not work."""

    def __init__(self, issue: EnvIssue):
        super().__init__(issue.what)
        self.issue = issue


def is_like_gymnax(env: Any) -> bool:
    """Return whether an object has the functions of a gymnax environment."""
    if isinstance(env, type):
        return False
    return all(callable(getattr(env, name, None)) for name in FUNCTIONS)


def read_action_space(space: Any) -> ActionSpace:
    """Return the actions of a gymnax space."""
    if hasattr(space, "n"):
        return DiscreteActions(int(space.n))
    if all(hasattr(space, name) for name in ("low", "high", "shape")):
        low, high = zip(*read_bounds(space, space.shape), strict=True)
        return BoxActions(low, high)
    raise ValueError(f"the action space must be Discrete or a Box, got {space!r:.80}.")


def read_bounds(space: Any, shape: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return the bounds of each number, flat. Nothing for a space that is no Box."""
    if not hasattr(space, "low") or not hasattr(space, "high"):
        return []
    low = _read_edge("low", space.low, shape)
    high = _read_edge("high", space.high, shape)
    return list(zip(low, high, strict=True))


def _read_edge(name: str, value: Any, shape: tuple[int, ...]) -> list[float]:
    edge = real_array(f"{name} of a space", value).astype(float)
    try:
        return np.broadcast_to(edge, shape).ravel().tolist()
    except ValueError:
        raise ValueError(
            f"{name} of a space must have the shape {shape}, got {edge.shape}."
        ) from None


def find_fault(env: Any, params: Any) -> EnvIssue | None:
    """Trace the functions of a gymnax-like environment.

    Args:
        env: the environment.
        params: parameters of its functions.

    Returns:
        The first fault that makes training impossible; None without one.
    """
    try:
        _check_functions(env, params)
    except _FaultError as fault:
        return fault.issue
    return None


def _check_functions(env: Any, params: Any) -> None:
    actions = _call("action_space", env.action_space, params)
    space = _call("observation_space", env.observation_space, params)
    spec = _call("action_space", lambda: read_action_space(actions).spec())
    action = jax.ShapeDtypeStruct(tuple(getattr(actions, "shape", ())), spec.dtype)
    key = jax.random.key(0)

    def reset(key: Any) -> Any:
        returned = env.reset_env(key, params)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise _FaultError(make_issue("gymnax_reset_structure", _count(returned), RESET))
        return tuple(returned)

    def step(key: Any, state: Any, action: Any) -> Any:
        returned = env.step_env(key, state, action, params)
        if not isinstance(returned, tuple | list) or len(returned) not in (5, 6):
            raise _FaultError(make_issue("gymnax_step_structure", _count(returned), STEP))
        return tuple(returned[:-1])  # without info

    first, state = _call("reset_env", jax.eval_shape, reset, key)
    _check_observation(first, getattr(space, "shape", None), RESET)
    results = _call("step_env", jax.eval_shape, step, key, state, action)
    observation, next_state, reward, *flags = results
    _check_observation(observation, first.shape, STEP)
    _check_state(state, next_state)
    _check_number("reward", reward, "jnp.float32")
    names = ("terminated", "truncated") if len(flags) == 2 else ("done",)
    for name, flag in zip(names, flags, strict=True):
        _check_number(name, flag, "bool")


def _call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of an environment, or trace it. Raise the fault if that fails."""
    where = CALLS.get(name, f"env.{name}(params)")
    try:
        return function(*arguments)
    except _FaultError:
        raise
    except UNTRACEABLE as error:
        actual = "if, float(), int() or NumPy"
        raise _FaultError(make_issue("gymnax_untraceable", actual, where, name=name)) from error
    except Exception as error:
        remedy = "call it yourself to see all of the error, and give the params that it needs."
        raise _FaultError(raised_issue(error, name, where, remedy)) from error


def _count(returned: Any) -> str:
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values"
    if hasattr(returned, "shape"):
        return f"an array of shape {returned.shape}"
    return describe_with_type(returned)


def _check_observation(observation: Any, shape: Any, where: str) -> None:
    function = where.removeprefix("env.").partition("(")[0]
    names = {"part": f"the observation of {function}", "shape": shape}
    if not isinstance(observation, jax.ShapeDtypeStruct):
        raise _FaultError(make_issue("jax_observation", describe_with_type(observation), where))
    if np.dtype(observation.dtype).kind == "c":
        dtype = str(observation.dtype)
        raise _FaultError(make_issue("gymnax_complex", dtype, where, **names))
    if isinstance(shape, tuple) and observation.shape != shape:
        actual = str(observation.shape)
        raise _FaultError(make_issue("array_shape", actual, where, **names))


def _check_state(state: Any, next_state: Any) -> None:
    """Raise a fault unless the next state can be converted to the types of the state."""
    issue = find_state_issue(state, next_state, STEP, "state{path}", _is_lossless)
    if issue is not None:
        raise _FaultError(issue)


def find_state_issue(
    state: Any,
    next_state: Any,
    call: str,
    where: str,
    is_compatible: Callable[[Any, Any], bool],
) -> EnvIssue | None:
    """Compare the structures, shapes and types of a state and the next one.

    Args:
        state: shapes and types after a reset.
        next_state: shapes and types after a step.
        call: the call that returned the next state.
        where: words for a part of the state, with `{path}`.
        is_compatible: whether the data type of a step may follow that of a reset.

    Returns:
        The first difference; None without one.
    """
    leaves, structure = tree_flatten_with_path(state)
    next_leaves, next_structure = tree_flatten_with_path(next_state)
    if structure != next_structure:
        actual = describe(next_structure)
        return make_issue("jax_state_structure", actual, call, before=describe(structure))
    for (path, old), (_, new) in zip(leaves, next_leaves, strict=True):
        if old.shape != new.shape or not is_compatible(new.dtype, old.dtype):
            expected = f"{old.dtype} of shape {old.shape}"
            actual = f"{new.dtype} of shape {new.shape}"
            part = where.format(path=keystr(path))
            return make_issue("jax_state_type", actual, part, expected=expected, dtype=old.dtype)
    return None


def _is_lossless(new: Any, old: Any) -> bool:
    """Return whether a conversion between data types keeps values, unlike floats to integers."""
    if jnp.issubdtype(new, jax.dtypes.prng_key) or jnp.issubdtype(old, jax.dtypes.prng_key):
        return new == old
    return jnp.promote_types(new, old) == old or np.dtype(new).kind == np.dtype(old).kind


def _check_number(name: str, value: Any, dtype: str) -> None:
    """Raise a fault unless a value is one real number, which may have axes of length 1."""
    if not isinstance(value, jax.ShapeDtypeStruct):
        actual = describe_with_type(value)
    elif np.prod(value.shape) != 1 or np.dtype(value.dtype).kind not in REAL:
        actual = f"{value.dtype} of shape {value.shape}"
    else:
        return
    raise _FaultError(make_issue("jax_number", actual, STEP, name=name, dtype=dtype))

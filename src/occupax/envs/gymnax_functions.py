"""Functions and spaces of gymnax-like environments, and their faults."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions
from occupax.envs.check.findings import Finding, found, kind, raised, text
from occupax.errors import REAL, real_array

FUNCTIONS = ("reset_env", "step_env", "action_space", "observation_space")
RESET, STEP = "env.reset_env(key, params)", "env.step_env(key, state, action, params)"
UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class _FaultError(Exception):
    """A function does not work."""

    def __init__(self, finding: Finding):
        super().__init__(finding.what)
        self.finding = finding


def is_like_gymnax(env: Any) -> bool:
    """Return whether an object has the functions of an environment of gymnax."""
    return not isinstance(env, type) and all(
        callable(getattr(env, name, None)) for name in FUNCTIONS
    )


def read_action_space(space: Any) -> ActionSpace:
    """Return the actions of a space of gymnax."""
    if hasattr(space, "n"):
        return DiscreteActions(int(space.n))
    if all(hasattr(space, name) for name in ("low", "high", "shape")):
        pairs = read_bounds(space, space.shape)
        return BoxActions([low for low, _ in pairs], [high for _, high in pairs])
    raise ValueError(f"the action space must be Discrete or a Box, got {space!r:.80}.")


def read_bounds(space: Any, shape: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return the lowest and the highest value of each number, flat; nothing for a space that is no Box."""
    if not all(hasattr(space, name) for name in ("low", "high")):
        return []
    edges: list[list[float]] = []
    for name in ("low", "high"):
        edge = real_array(f"{name} of a space", getattr(space, name)).astype(float)
        try:
            edges.append(np.broadcast_to(edge, shape).ravel().tolist())
        except ValueError:
            raise ValueError(
                f"{name} of a space must have the shape {shape}, got {edge.shape}."
            ) from None
    return list(zip(*edges, strict=True))


def find_fault(env: Any, params: Any) -> Finding | None:
    """Trace the functions of an environment that is like one of gymnax.

    Args:
        env: the environment.
        params: the parameters that its functions are called with.

    Returns:
        The first fault that makes training impossible; None if there is none.
    """
    try:
        _check_functions(env, params)
    except _FaultError as fault:
        return fault.finding
    return None


def _check_functions(env: Any, params: Any) -> None:
    actions = _called("action_space", env.action_space, params)
    observations = _called("observation_space", env.observation_space, params)
    key, taken = (
        jax.random.key(0),
        _called("action_space", lambda: read_action_space(actions).spec()),
    )
    shaped = jax.ShapeDtypeStruct(tuple(getattr(actions, "shape", ())), taken.dtype)

    def reset(key: Any) -> Any:
        returned = env.reset_env(key, params)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            _refuse("gymnax_reset_structure", _count(returned), RESET)
        return tuple(returned)

    def step(key: Any, state: Any, action: Any) -> Any:
        returned = env.step_env(key, state, action, params)
        if not isinstance(returned, tuple | list) or len(returned) not in (5, 6):
            _refuse("gymnax_step_structure", _count(returned), STEP)
        return tuple(returned[:-1])  # info is not looked at

    first, state = _called("reset_env", jax.eval_shape, reset, key)
    _check_observation(first, getattr(observations, "shape", None), RESET)
    following, after, reward, *flags = _called("step_env", jax.eval_shape, step, key, state, shaped)
    _check_observation(following, first.shape, STEP)
    _compare_states(state, after)
    _check_number("reward", reward, "jnp.float32")
    for name, flag in zip(
        ("terminated", "truncated") if len(flags) == 2 else ("done",), flags, strict=True
    ):
        _check_number(name, flag, "bool")


def _refuse(name: str, actual: str, where: str, /, **values: Any) -> NoReturn:
    raise _FaultError(found(name, actual, where, **values))


def _called(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function of an environment returns, or does when it is traced."""
    where = {"reset_env": RESET, "step_env": STEP}.get(name, f"env.{name}(params)")
    try:
        return function(*given)
    except _FaultError:
        raise
    except UNTRACEABLE:
        _refuse("gymnax_untraceable", "if, float(), int() or NumPy", where, name=name)
    except Exception as error:
        remedy = "call it yourself to see all of the error, and give the params that it needs."
        raise _FaultError(raised(error, name, where, remedy)) from error


def _count(returned: Any) -> str:
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values"
    return f"an array of shape {returned.shape}" if hasattr(returned, "shape") else kind(returned)


def _check_observation(observation: Any, shape: Any, where: str) -> None:
    part = f"the observation of {where.removeprefix('env.').partition('(')[0]}"
    if not isinstance(observation, jax.ShapeDtypeStruct):
        _refuse("jax_observation", f"{type(observation).__name__} {text(observation)}", where)
    if np.dtype(observation.dtype).kind == "c":
        _refuse("gymnax_complex", str(observation.dtype), where, part=part)
    if isinstance(shape, tuple) and observation.shape != shape:
        _refuse("array_shape", str(observation.shape), where, part=part, shape=shape)


def _compare_states(state: Any, following: Any) -> None:
    (before, structure), (after, other) = (
        tree_flatten_with_path(state),
        tree_flatten_with_path(following),
    )
    if structure != other:
        _refuse("jax_state_structure", text(other), STEP, before=text(structure))
    for (path, old), (_, new) in zip(before, after, strict=True):
        if old.shape != new.shape or _loses(new.dtype, old.dtype):
            expected, actual = (f"{leaf.dtype} of shape {leaf.shape}" for leaf in (old, new))
            _refuse(
                "jax_state_type", actual, f"state{keystr(path)}", expected=expected, dtype=old.dtype
            )


def _loses(new: Any, old: Any) -> bool:
    """Return whether values of one data type are cut when they become another, as fractions do in integers."""
    if jnp.issubdtype(new, jax.dtypes.prng_key) or jnp.issubdtype(old, jax.dtypes.prng_key):
        return new != old
    return jnp.promote_types(new, old) != old and np.dtype(new).kind != np.dtype(old).kind


def _check_number(name: str, value: Any, dtype: str) -> None:
    """Refuse all but one real number, which may have axes of length 1."""
    is_array = isinstance(value, jax.ShapeDtypeStruct)
    if not is_array or np.prod(value.shape) != 1 or np.dtype(value.dtype).kind not in REAL:
        actual = f"{value.dtype} of shape {value.shape}" if is_array else kind(value)
        _refuse("jax_number", actual, STEP, name=name, dtype=dtype)

"""Checks of arguments and error messages with the value, the allowed values and a fix."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nan
from numbers import Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, Num


class OccupaxWarning(UserWarning):
    """Category of the warnings of Occupax."""


def unknown(kind: str, name: object, allowed: Iterable[str]) -> ValueError:
    """Return the error for an unknown name, with the nearest allowed name."""
    names = sorted(allowed)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"{kind} {name!r} is not known.{hint} Known: {', '.join(names)}.")


def no_finite_gradient(utility: str) -> ValueError:
    """The error for a utility that has no finite gradient where it is evaluated."""
    return ValueError(
        f"{utility} has no finite gradient at this occupancy, which gives no bound; use a utility "
        "that is smooth where nothing is visited, such as Entropy(smoothing=1e-6)."
    )


def named(kind: str, name: str, table: Mapping[str, Callable[[], Any]]) -> Any:
    """Return the object with a name in a table of factories, with default settings."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]()


REAL = "biuf"
"""The kinds of NumPy's data types that are real numbers: booleans, integers and floats."""

MAX_SIZE = 2**31 - 1
"""The largest number of things in memory: what is counted there is counted in 32 bits."""


def check_integer(name: str, value: object, minimum: int = 1, maximum: int = MAX_SIZE) -> int:
    """Return `value` as an int from `minimum` to `maximum`, or raise ValueError."""
    try:
        number = int(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = minimum - 1
    if isinstance(value, bool) or number < minimum or number != value:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {number:,}.")
    return number


def check_integers(
    name: str, values: object, minimum: int = 1, maximum: int = MAX_SIZE
) -> tuple[int, ...]:
    """Return `values` as a tuple of ints from `minimum` to `maximum`, or raise ValueError."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ValueError(f"{name} must be a sequence of integers, got {values!r}.")
    return tuple(check_integer(name, value, minimum, maximum) for value in values)


def check_number(name: str, value: object, *, low: float, open_low: bool = False) -> float:
    """Return `value` as a finite float of at least `low`, above it if `open_low`."""
    try:  # float() would accept the text "1" and drop the imaginary part of NumPy's complex numbers
        unfit = isinstance(value, str | bytes | bool | complex | np.complexfloating)
        number = nan if unfit else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not (low < number < inf or (number == low and not open_low)):
        bound = f"above {low:g}" if open_low else f"of at least {low:g}"
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}.")
    return number


SMALLEST = 1e-30
"""The smallest positive number of a utility: single precision would round much smaller numbers, or
their inverses."""


def check_not_tiny(name: str, number: float) -> float:
    """Return a number that is 0 or at least `SMALLEST`, and raise an error for a smaller one."""
    if 0 < number < SMALLEST:
        raise ValueError(
            f"{name} must be at least {SMALLEST:g}, got {number!r}; single precision rounds it "
            "to 0."
        )
    return number


def check_positive(name: str, value: object) -> float:
    """Return `value` as a finite float of at least `SMALLEST`, or raise an error."""
    return check_not_tiny(name, check_number(name, value, low=0.0, open_low=True))


def is_traced(value: object) -> bool:
    """Return whether a value is a JAX tracer or a batched array, which cannot be checked."""
    return isinstance(value, Tracer) or (isinstance(value, jax.Array) and value.ndim > 0)


def check_share(name: str, share: object) -> None:
    """Raise ValueError for a number outside (0, 1]. Tracers and batched arrays are not checked."""
    if not is_traced(share) and check_number(name, share, low=0.0, open_low=True) > 1:
        raise ValueError(f"{name} must lie in (0, 1], got {share!r}.")


def tracing_error(subject: str, argument: str, error: Exception) -> ValueError:
    """Return the error for a user's function that JAX cannot trace.

    Args:
        subject: the function, such as "the utility".
        argument: its argument, such as "the occupancy".
        error: the exception that tracing raised.
    """
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return ValueError(
            f"{subject} converts {argument} to a NumPy array, which JAX cannot differentiate: use "
            "functions of jax.numpy, such as jnp.log instead of np.log."
        )
    if isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerIntegerConversionError
    ):
        return ValueError(
            f"{subject} cannot be traced by JAX: replace float(), int() and `if` on {argument} by "
            "jnp.where."
        )
    return ValueError(f"{subject} failed on {argument}: {first_line(error)}.")


def check_key(key: object) -> None:
    """Refuse what is not a random key, of the new kind or the old."""
    dtype = key.dtype if isinstance(key, jax.Array) else None
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise ValueError(f"key must be a random key such as jax.random.key(0), got {key!r:.60}.")


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, without its full stop."""
    return str(error).partition("\n")[0].rstrip(".")


def shown(value: object, length: int = 60) -> str:
    """Return the beginning of a value's `repr` on one line."""
    return " ".join(repr(value).split())[:length]


def real_array(name: str, value: Any) -> Num[np.ndarray, "..."]:
    """Return a user's `value` as an array of booleans, integers or floats.

    Args:
        name: the name of the value in the error.
        value: an array, a number, or nested lists of numbers.

    Raises:
        ValueError: for complex numbers, text, None, other objects and lists of different lengths.
    """
    try:
        array = np.asarray(value)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ):  # RuntimeError is that of a torch tensor with gradients
        array = np.array(None)
    if (
        jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.kind not in REAL
    ):  # bfloat16 and the like
        return array.astype(np.float32)
    if array.dtype.kind == "O" and array.size and all(isinstance(one, Real) for one in array.flat):
        return array.astype(np.float64)
    if array.dtype.kind not in REAL:
        got = f"{array.dtype} " if array.dtype.kind == "c" else ""
        raise ValueError(
            f"{name} must be an array of real numbers, "
            f"got {got}{type(value).__name__} {shown(value)}."
        )
    return array


def read_array(name: str, value: Any) -> Float[np.ndarray, "..."]:
    """Return a copy of `value` as float64 without NaN or infinities."""
    array = real_array(name, value).astype(np.float64)
    check_finite(name, array)
    return array


def check_finite(
    name: str, array: Float[np.ndarray, "..."], coords: Sequence[Int[np.ndarray, " n"]] = ()
) -> None:
    """Raise ValueError with the index of the first non-finite entry. `coords` if sparse."""
    wrong = ~np.isfinite(array)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = tuple(int(axis[first]) for axis in coords) or first
        raise ValueError(f"{name} must be finite, got {array[first]} at index {where}.")


def check_path(path: Any, name: str = "out") -> None:
    """Raise ValueError unless `path` is a path. `out` may be None."""
    if path is None and name == "out":
        return
    if not isinstance(path, str | Path) or path == "":
        kind = "file" if name == "path" else "folder"
        raise ValueError(f"{name} must be the path of a {kind}, got {path!r:.60}.")

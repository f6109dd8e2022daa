"""Messages for bad input: the argument, its value, what is allowed and, for names, the nearest match."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nan
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int


class OccupaxWarning(UserWarning):
    """What the package itself warns of."""


def unknown(kind: str, name: object, allowed: Iterable[str]) -> ValueError:
    """The error for a name that is not one of the allowed ones."""
    names = sorted(allowed)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"{kind} {name!r} is not known.{hint} Known: {', '.join(names)}.")


def named(kind: str, name: str, table: Mapping[str, Callable[[], Any]]) -> Any:
    """What a name in a table stands for, made with its default settings."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]()


MOST_SIZE = 2**31 - 1
"""The largest number of things in memory: what is counted there is counted in 32 bits."""


def check_integer(name: str, value: object, minimum: int = 1, maximum: int = MOST_SIZE) -> int:
    """Return `value` as an int of at least `minimum` and at most `maximum`, or say what is wrong with it."""
    try:
        number = int(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = minimum - 1
    if isinstance(value, bool) or number < minimum or number != value:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {number:,}.")
    return number


def check_integers(name: str, values: object, minimum: int = 1, maximum: int = MOST_SIZE) -> tuple[int, ...]:
    """Return `values` as a tuple of whole numbers of at least `minimum`, or say what is wrong with them."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ValueError(f"{name} must be a sequence of whole numbers, got {values!r}.")
    return tuple(check_integer(name, value, minimum, maximum) for value in values)


def check_number(name: str, value: object, *, low: float, open_low: bool = False) -> float:
    """Return `value` as a finite float above `low` (or equal to it unless `open_low`), or say what is wrong with it."""
    try:  # a text such as "1" would be kept as it is
        number = nan if isinstance(value, str | bytes | bool) else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not (low < number < inf or (number == low and not open_low)):
        bound = f"above {low:g}" if open_low else f"of at least {low:g}"
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}.")
    return number


def is_traced(value: object) -> bool:
    """Whether a number is an array whose value is not known, or not one number, because a program is compiled of it."""
    return isinstance(value, Tracer) or (isinstance(value, jax.Array) and value.ndim > 0)


def check_share(name: str, share: object) -> None:
    """Refuse what does not lie in (0, 1], unless a program was given it as an array."""
    if not is_traced(share) and check_number(name, share, low=0.0, open_low=True) > 1:
        raise ValueError(f"{name} must lie in (0, 1], got {share!r}.")


def check_key(key: object) -> None:
    """Refuse what is not a random key, of the new kind or the old."""
    dtype = key.dtype if isinstance(key, jax.Array) else None
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise ValueError(f"key must be a random key such as jax.random.key(0), got {key!r:.60}.")


def read_array(name: str, value: Any) -> Float[np.ndarray, "..."]:
    """Return `value` as float64 without NaN or infinities."""
    try:
        array = np.array(value)
        if array.dtype.kind == "c":
            raise TypeError  # noqa: TRY301 - what is said of it is said below
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, got {type(value).__name__} {value!r:.60}.") from None
    refuse_infinite(name, array)
    return array


def refuse_infinite(name: str, array: Float[np.ndarray, "..."], coords: Sequence[Int[np.ndarray, " n"]] = ()) -> None:
    """Name the first entry of `array` that is not finite; `coords` is where each of them stands, if it is sparse."""
    wrong = ~np.isfinite(array)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = tuple(int(axis[first]) for axis in coords) or first
        raise ValueError(f"{name} must be finite, got {array[first]} at index {where}.")

"""Messages for bad input: the argument, its value, what is allowed and, for names, the nearest match."""

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: object, allowed: Iterable[str]) -> ValueError:
    """The error for a name that is not one of the allowed ones."""
    names = sorted(allowed)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"{kind} {name!r} is not known.{hint} Known: {', '.join(names)}.")


def check_integer(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`, or say what is wrong with it."""
    try:
        number = int(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        number = minimum - 1
    if isinstance(value, bool) or number < minimum or number != value:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    return number


def check_number(name: str, value: object, *, low: float, open_low: bool = False) -> float:
    """Return `value` as a finite float above `low` (or equal to it unless `open_low`), or say what is wrong with it."""
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        number = float("nan")
    inside = number > low if open_low else number >= low
    if not inside or number == float("inf"):
        bound = f"above {low:g}" if open_low else f"of at least {low:g}"
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}.")
    return number

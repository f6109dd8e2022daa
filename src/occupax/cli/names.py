"""What the command line calls things."""

from collections.abc import Callable

from occupax import utilities
from occupax._errors import unknown

UTILITIES: dict[str, Callable[[], utilities.Utility]] = {
    "reward": utilities.Reward,
    "entropy": utilities.Entropy,
    "log-coverage": utilities.LogCoverage,
}


def utility(name: str) -> utilities.Utility:
    """The utility of that name, with its default settings."""
    if name not in UTILITIES:
        raise unknown("utility", name, UTILITIES)
    return UTILITIES[name]()

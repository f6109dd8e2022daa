"""Names of the utilities."""

from typing import Any

from occupax.errors import unknown
from occupax.utilities.base import Custom, Utility
from occupax.utilities.library import Entropy, LogCoverage, Reward
from occupax.utilities.several import LogDet, NashWelfare, SoftMin
from occupax.utilities.targets import KL, ForwardKL

UTILITIES: dict[str, type[Utility]] = {
    "reward": Reward,
    "entropy": Entropy,
    "log-coverage": LogCoverage,
}
"""Utilities that need no argument."""

OF_SOMETHING: dict[str, type[Any]] = {
    "kl": KL,
    "forward-kl": ForwardKL,
    "soft-min": SoftMin,
    "nash-welfare": NashWelfare,
    "log-det": LogDet,
}
"""Utilities that need a target, rewards or regressors, after a colon on the command line."""

ARGUMENTS = {"kl": "target", "forward-kl": "target", "log-det": "regressors"}
"""The argument of a utility that is not of several rewards."""


def as_utility(value: Any) -> Utility:
    """Return the utility of a name or of a function.

    Args:
        value: a utility, which is returned as it is, a name, or a function of the occupancy.

    Returns:
        The utility.

    Raises:
        ValueError: if the name is unknown or needs an argument, or the value is no function.
    """
    if isinstance(value, Utility):
        return value
    if not isinstance(value, str):
        return Custom(value)
    if value in OF_SOMETHING:
        argument = ARGUMENTS.get(value, "rewards")
        kind = OF_SOMETHING[value].__name__
        raise ValueError(
            f"utility {value!r} needs its {argument}, which no name has: give "
            f"occupax.utilities.{kind}({argument}), or {value}:{argument.upper()} on the command "
            "line."
        )
    if value not in UTILITIES:
        raise unknown("utility", value, [*UTILITIES, *OF_SOMETHING])
    return UTILITIES[value]()

"""What the command line calls things."""

from collections.abc import Callable
from typing import Any, TypeVar

from occupax import algorithms, policies, samplers, utilities
from occupax._errors import unknown
from occupax.samplers.choice import SAMPLERS

Made = TypeVar("Made")

UTILITIES: dict[str, Callable[[], utilities.Utility]] = {
    "reward": utilities.Reward,
    "entropy": utilities.Entropy,
    "log-coverage": utilities.LogCoverage,
}

ALGORITHMS: dict[str, Callable[[], algorithms.Algorithm[Any]]] = {
    "reinforce": algorithms.REINFORCE,
    "svrpg": algorithms.SVRPG,
    "srvr-pg": algorithms.SRVRPG,
    "hspga": algorithms.HSPGA,
    "tsivr-pg": algorithms.TSIVRPG,
    "maxent": algorithms.MaxEnt,
}

POLICIES: dict[str, Callable[[], policies.Initialiser]] = {
    "tabular": policies.tabular,
    "linear": policies.linear,
    "mlp": policies.mlp,
}


def utility(name: str) -> utilities.Utility:
    """The utility of that name, with its default settings."""
    return _make("utility", name, UTILITIES)


def algorithm(name: str) -> algorithms.Algorithm[Any]:
    """The algorithm of that name, with its default settings."""
    return _make("algorithm", name, ALGORITHMS)


def policy(name: str) -> policies.Initialiser:
    """The initialiser of policies of that name, with its default settings."""
    return _make("policy", name, POLICIES)


def sampler(text: str) -> samplers.Sampler:
    """The sampler of a name, of so many processes, or of a cluster on this machine or elsewhere."""
    if text in SAMPLERS:
        return SAMPLERS[text]()
    if text.startswith("ray://"):
        return samplers.Ray(address=text)
    if text.startswith("ray:") and text[4:].isdecimal():
        return samplers.Ray(workers=int(text[4:]))
    if text.isdecimal():
        return samplers.Host(envs=int(text), processes=True)
    raise ValueError(
        f"--workers takes a number of processes, ray:N, ray://HOST:PORT or one of {', '.join(SAMPLERS)}, got {text!r}."
    )


def _make(kind: str, name: str, makers: dict[str, Callable[[], Made]]) -> Made:
    if name not in makers:
        raise unknown(kind, name, makers)
    return makers[name]()

"""What the command line calls things, and `occupax list`, which shows it."""

from collections.abc import Callable
from typing import Any

from rich.console import Console

from occupax import algorithms, envs, policies, samplers, utilities
from occupax._errors import unknown
from occupax.cli.output import print_json
from occupax.cli.settings import known

MAKERS: dict[str, dict[str, Callable[[], Any]]] = {
    "utility": {"reward": utilities.Reward, "entropy": utilities.Entropy, "log-coverage": utilities.LogCoverage},
    "algorithm": {
        "reinforce": algorithms.REINFORCE,
        "svrpg": algorithms.SVRPG,
        "srvr-pg": algorithms.SRVRPG,
        "hspga": algorithms.HSPGA,
        "tsivr-pg": algorithms.TSIVRPG,
        "maxent": algorithms.MaxEnt,
    },
    "policy": {name: getattr(policies, name) for name in ("tabular", "linear", "mlp", "cnn", "gaussian", "squashed")},
}


def make(kind: str, name: str) -> Any:
    """The utility, the algorithm or the initialiser of policies of that name, with its default settings."""
    if name not in MAKERS[kind]:
        raise unknown(kind, name, MAKERS[kind])
    return MAKERS[kind][name]()


def sampler(text: str) -> samplers.Sampler:
    """The sampler of a name, of so many processes, or of a cluster on this machine or elsewhere."""
    if text in samplers.SAMPLERS:
        return samplers.SAMPLERS[text]()
    if text.startswith("ray://"):
        return samplers.Ray(address=text)
    if text.startswith("ray:") and text[4:].isdecimal():
        return samplers.Ray(workers=int(text[4:]))
    if text.isdecimal():
        return samplers.Host(envs=int(text), processes=True)
    names = ", ".join(samplers.SAMPLERS)
    raise ValueError(f"--workers takes a number of processes, ray:N, ray://HOST:PORT or one of {names}, got {text!r}.")


def list_names(json: bool = False) -> None:
    """Show the names of environments, utilities, algorithms and policies, and what can be set."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {
        "environments": {name: {} for name in envs.list()},
        "utilities": {name: known({"utility": make()}) for name, make in MAKERS["utility"].items()},
        "algorithms": {name: known({"": make()}) for name, make in MAKERS["algorithm"].items()},
        "policies": {name: {} for name in MAKERS["policy"]},
    }
    if json:
        print_json(kinds)
        return
    console = Console()
    for kind, entries in kinds.items():
        console.print(f"[bold]{kind}[/]")
        for name, settings in entries.items():
            shown = "".join(f" {setting}={str(value).lower()}" for setting, value in settings.items())
            console.print(f"  {name:<12}{shown}".rstrip(), highlight=False, soft_wrap=True)

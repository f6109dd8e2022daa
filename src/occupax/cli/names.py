"""What the command line calls things, and `occupax list`, which shows it."""

import re
from typing import Any

from rich.console import Console

from occupax import algorithms, envs, features, policies, samplers, utilities
from occupax.cli.output import print_json
from occupax.cli.settings import known
from occupax.constraints import Constraint
from occupax.envs.lookup import find


def constraint(text: str) -> Constraint:
    """A limit such as info.cost<=25, reward>=3 or entropy>=1.0; module:function names a function of one's own."""
    found = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*", text)
    try:
        name, sign, limit = found[1], found[2], float(found[3])  # pyright: ignore[reportOptionalSubscript]
    except (TypeError, ValueError):
        raise ValueError(
            f"--constrain takes NAME<=NUMBER or NAME>=NUMBER, such as info.cost<=25, got {text!r}."
        ) from None
    kind, _, rest = name.partition(".")
    if kind == "info" and rest:
        subject = features.Info(rest)
    elif name == "reward":
        subject = features.Reward()
    else:
        subject = find(name) if ":" in name else utilities.as_utility(name)
    return Constraint(subject, **{"at_most" if sign == "<=" else "at_least": limit}, name=name)


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
        "utilities": {name: known({"utility": make()}) for name, make in utilities.UTILITIES.items()},
        "algorithms": {name: known({"": make()}) for name, make in algorithms.ALGORITHMS.items()},
        "policies": {name: {} for name in policies.INITIALISERS},
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

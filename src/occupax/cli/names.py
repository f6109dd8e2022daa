"""What the command line calls things, and `occupax list`, which shows it."""

import inspect
import re
from typing import Any

import numpy as np

from occupax import algorithms, envs, features, policies, samplers, utilities
from occupax.cli.options import Flag
from occupax.cli.output import print_json, print_line
from occupax.cli.settings import known
from occupax.constraints import Constraint
from occupax.envs.lookup import find

WIDTH = 24
"""Of the names that are listed."""


def utility(name: str) -> utilities.Utility:
    """The utility of a name, of something, or of one's own."""
    return _utility_of(name) if ":" in name else utilities.as_utility(name)


def _utility_of(text: str) -> utilities.Utility:
    """Return a parametrised utility such as kl:target.npy, or the function module:function."""
    name, _, rest = text.partition(":")
    if name not in utilities.OF_SOMETHING:
        return utilities.as_utility(find(text))
    if name.endswith("kl"):
        try:
            return utilities.OF_SOMETHING[name](np.load(rest, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--utility {name}:FILE takes a file of NumPy with the target: {error}"
            ) from error
    return utilities.OF_SOMETHING[name](*(_feature(part) for part in rest.split(",")))


def _feature(name: str) -> Any:
    """Return the feature info.NAME, reward or module:function."""
    kind, _, rest = name.partition(".")
    if kind == "info" and rest:
        return features.Info(rest)
    return features.Reward() if name == "reward" else find(name)


def constraint(text: str) -> Constraint:
    """Return a constraint such as info.cost<=25, entropy>=1.0 or module:function<=1."""
    found = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*", text)
    try:
        name, sign, limit = found[1], found[2], float(found[3])  # pyright: ignore[reportOptionalSubscript]
    except (TypeError, ValueError):
        raise ValueError(
            f"--constrain takes NAME<=NUMBER or NAME>=NUMBER, such as info.cost<=25, got {text!r}."
        ) from None
    kind, _, rest = name.partition(":")
    subject = utility(name) if kind in utilities.OF_SOMETHING else find(name) if rest else name
    return Constraint(subject, **{"at_most" if sign == "<=" else "at_least": limit}, name=name)


def algorithms_with(setting: str) -> list[str]:
    """The names of the algorithms that have a setting."""
    return [name for name, make in algorithms.ALGORITHMS.items() if setting in known({"": make()})]


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
    raise ValueError(
        f"--workers takes a number of processes, ray:N, ray://HOST:PORT or one of {names}, "
        f"got {text!r}."
    )


def list_names(json: Flag = False) -> None:
    """Show the names of environments, utilities, algorithms and policies, and what can be set."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {
        "environments": {name: {} for name in envs.list()},
        "utilities": {
            name: known({"utility": make()}) for name, make in utilities.UTILITIES.items()
        }
        | {
            f"{name}:{'FILE' if name.endswith('kl') else 'FEATURE,...'}": {}
            for name in utilities.OF_SOMETHING
        },
        "algorithms": {name: known({"": make()}) for name, make in algorithms.ALGORITHMS.items()},
        "policies": {name: {} for name in policies.INITIALISERS},
    }
    if json:
        print_json(kinds)
        return
    tables = (
        utilities.UTILITIES,
        utilities.OF_SOMETHING,
        algorithms.ALGORITHMS,
        policies.INITIALISERS,
    )
    about = {
        name: (inspect.getdoc(it) or "").partition("\n")[0]
        for made in tables
        for name, it in made.items()
    }
    for kind, entries in kinds.items():
        print_line(kind)
        for name, settings in entries.items():
            print_line(f"  {name:<{WIDTH}} {about.get(name.partition(':')[0], '')}".rstrip())
            if settings:
                shown = (f"{setting}={str(value).lower()}" for setting, value in settings.items())
                print_line(f"  {'':{WIDTH}} {' '.join(shown)}")
    print_line("Settings that are none depend on the environment or on the rule of steps.")

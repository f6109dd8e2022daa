"""Names of environments, utilities, algorithms and policies, and the command `occupax list`."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from occupax import algorithms, envs, features, policies, samplers, utilities
from occupax.cli.options import Flag, shown
from occupax.cli.output import print_json, print_line
from occupax.cli.settings import known
from occupax.constraints import Constraint
from occupax.display import wrap_words
from occupax.envs.lookup import find
from occupax.errors import unknown
from occupax.training.setup import as_algorithm

NAME_WIDTH = 24
"""Width of the column of names in `occupax list`."""
CONSTRAINT = re.compile(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*")
"""Name, sign and threshold of a constraint."""
LINE_WIDTH = 80
"""Number of columns of a listed line."""
PURPOSES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("purposes.toml").read_text("utf-8")
)
"""Purpose of each name, by kind."""


def utility(name: str) -> utilities.Utility:
    """Return the utility with a name such as entropy, kl:target.npy or module:function."""
    if ":" in name:
        return _parametrised_utility(name)
    return utilities.as_utility(name)


def algorithm(name: str) -> algorithms.Algorithm[Any]:
    """Return the algorithm with a name such as tsivr-pg or module:Class."""
    if ":" not in name:
        return as_algorithm(name)
    source = find(name)
    if not isinstance(source, type):
        return as_algorithm(source)
    try:
        return as_algorithm(source())
    except TypeError as error:
        raise ValueError(f"{name} must have a default for every setting: {error}") from error


def _parametrised_utility(text: str) -> utilities.Utility:
    """Return a parametrised utility such as kl:target.npy, or the function module:function."""
    name, _, argument = text.partition(":")
    factory = utilities.OF_SOMETHING.get(name)
    if factory is None:
        return utilities.as_utility(find(text))
    if name.endswith("kl"):
        try:
            return factory(np.load(argument, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--utility {name}:FILE must name a NumPy file with the target: {error}"
            ) from error
    parts = map(_feature, argument.split(","))
    return factory(*parts)


def _feature(name: str) -> Any:
    """Return the feature info.NAME, reward or module:function."""
    kind, _, key = name.partition(".")
    if kind == "info" and key:
        return features.Info(key)
    if name == "reward":
        return features.Reward()
    return find(name)


def constraint(text: str) -> Constraint:
    """Return a constraint such as info.cost<=25, entropy>=1.0 or module:function<=1."""
    try:
        name, sign, number = CONSTRAINT.fullmatch(text).groups()  # pyright: ignore[reportOptionalMemberAccess]
        threshold = float(number)
    except (AttributeError, ValueError):
        raise ValueError(
            "--constrain must be NAME<=NUMBER or NAME>=NUMBER, such as info.cost<=25, "
            f"got {text!r}."
        ) from None
    subject = _subject(name)
    if sign == "<=":
        return Constraint(subject, at_most=threshold, name=name)
    return Constraint(subject, at_least=threshold, name=name)


def _subject(name: str) -> Any:
    """Return the subject of a constraint: a utility, a feature or the name itself."""
    kind, _, rest = name.partition(":")
    if kind in utilities.OF_SOMETHING:
        return utility(name)
    if rest:
        return find(name)
    return name


def sampler(text: str) -> samplers.Sampler:
    """Return the sampler of `--workers`: a name, a number of processes, or a Ray cluster."""
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
        "--workers must be a number of processes, ray:N, ray://HOST:PORT or one of "
        f"{names}, got {text!r}."
    )


def list_names(
    name: Annotated[str | None, tyro.conf.Positional, shown("", "NAME")] = None,
    json: Flag = False,
) -> None:
    """List environments, utilities, algorithms and policies, or the settings of a name.

    Example: occupax list tsivr-pg

    Args:
        name: environments, utilities, algorithms, policies, or one name; all names by default.
        json: print JSON instead of text.
    """
    kinds = _settings_by_kind()
    if name is not None:
        kinds = _only(name, kinds)
    if json:
        print_json(kinds)
    elif name is None:
        _print_names(kinds)
    else:
        _print_settings(kinds)


def _settings_by_kind() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the settings of every name with their default values."""
    by_kind: dict[str, dict[str, dict[str, Any]]] = {
        "environments": {name: {} for name in envs.list()},
        "utilities": {},
        "algorithms": {},
        "policies": {name: {} for name in policies.INITIALISERS},
    }
    for name, make in utilities.UTILITIES.items():
        by_kind["utilities"][name] = known({"utility": make()})
    for name in utilities.OF_SOMETHING:
        argument = "FEATURE,..."
        if name.endswith("kl"):
            argument = "FILE"
        by_kind["utilities"][f"{name}:{argument}"] = {}
    for name, make in algorithms.ALGORITHMS.items():
        by_kind["algorithms"][name] = known({"": make()})
    return by_kind


def _only(
    name: str, kinds: dict[str, dict[str, dict[str, Any]]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return one kind, or the kind of one name with this name alone."""
    if name in kinds:
        return {name: kinds[name]}
    allowed = list(kinds)
    for kind, entries in kinds.items():
        for full_name, settings in entries.items():
            short_name = full_name.partition(":")[0]
            if name in (full_name, short_name):
                return {kind: {full_name: settings}}
            allowed.append(short_name)
    raise unknown("NAME", name, allowed)


def _print_names(kinds: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print every name with its purpose. The names of environments share lines."""
    for kind, entries in kinds.items():
        print_line(kind, bold=True)
        if kind == "environments":
            lines = wrap_words(", ".join(entries), LINE_WIDTH - 2).splitlines()
            print_line("\n".join(f"  {line}" for line in lines))
            continue
        for name in entries:
            print_line(f"  {name:<{NAME_WIDTH}} {_purpose(kind, name)}")
    print_line("occupax list NAME shows the settings of an algorithm or a utility.")


def _print_settings(kinds: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print names with their settings, one setting a line."""
    for kind, entries in kinds.items():
        for name, settings in entries.items():
            print_line(name, bold=True)
            if kind != "environments":
                print_line(f"  {_purpose(kind, name)}")
            for setting, value in settings.items():
                print_line(f"  {setting:<{NAME_WIDTH}} {_default(value)}")


def _purpose(kind: str, name: str) -> str:
    return PURPOSES[kind][name.partition(":")[0]]


def _default(value: Any) -> str:
    """Return a default value as `--set` reads it."""
    if value is None:
        return "depends on the problem"
    return str(value).lower()

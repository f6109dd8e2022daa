"""`occupax list`."""

from typing import Any

from rich.console import Console

from occupax import envs
from occupax.cli import names
from occupax.cli.output import print_json
from occupax.cli.settings import known


def list_names(json: bool = False) -> None:
    """Show the names of environments, utilities, algorithms and policies, and what can be set.

    Example: occupax list

    Args:
        json: print JSON instead of text.
    """
    kinds: dict[str, dict[str, dict[str, Any]]] = {
        "environments": {name: {} for name in envs.list()},
        "utilities": {name: known({"utility": make()}) for name, make in names.UTILITIES.items()},
        "algorithms": {name: known({"": make()}) for name, make in names.ALGORITHMS.items()},
        "policies": {name: {} for name in names.POLICIES},
    }
    if json:
        print_json(kinds)
    else:
        _print_text(kinds)


def _print_text(kinds: dict[str, dict[str, dict[str, Any]]]) -> None:
    console = Console()
    for kind, entries in kinds.items():
        console.print(f"[bold]{kind}[/]")
        for name, settings in entries.items():
            shown = "".join(f" {setting}={str(value).lower()}" for setting, value in settings.items())
            console.print(f"  {name:<12}{shown}".rstrip(), highlight=False, soft_wrap=True)

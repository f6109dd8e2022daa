"""`occupax list`."""

from rich.console import Console

from occupax import envs
from occupax.cli.names import UTILITIES


def list_names() -> None:
    """Show the names of environments and utilities."""
    console = Console()
    for kind, names in (("environments", envs.list()), ("utilities", sorted(UTILITIES))):
        console.print(f"[bold]{kind}[/]")
        for name in names:
            console.print(f"  {name}", highlight=False)

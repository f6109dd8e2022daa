"""The command line: `occupax --help`."""

import sys

import tyro
from rich.console import Console
from rich.markup import escape

from occupax.cli.listing import list_names
from occupax.cli.solve import solve
from occupax.cli.theory import theory

COMMANDS = {"solve": solve, "theory": theory, "list": list_names}


def main() -> None:
    """Run a command; a user's mistake ends in one sentence and exit code 2, a failure in 1, Ctrl-C in 130."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="occupax",
            description="Optimise any smooth function of what a policy visits.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except ValueError as error:
        _complain(error, 2)
    except RuntimeError as error:
        _complain(error, 1)
    except KeyboardInterrupt:
        _complain("interrupted.", 130)


def _complain(error: Exception | str, code: int) -> None:
    Console(stderr=True).print(f"[bold red]occupax:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    sys.exit(code)

"""The command line: `occupax --help`.

- `commands`: one file for each command.
- `choices`: the options that several commands share.
- `names`: what the command line calls environments, utilities, algorithms and policies.
- `settings`: `--set name=value`.
- `output`: how lines, tables and JSON are printed.
- `resume`: the run in a folder, taken up again.
- `summary`: what a finished run is worth.
"""

import os
import sys
from pathlib import Path

import jax
import tyro
from rich.console import Console
from rich.markup import escape

from occupax.cli.commands.check_env import check_env
from occupax.cli.commands.evaluate import evaluate
from occupax.cli.commands.list import list_names
from occupax.cli.commands.report import report
from occupax.cli.commands.reproduce import reproduce
from occupax.cli.commands.solve import solve
from occupax.cli.commands.sweep import sweep
from occupax.cli.commands.theory import theory
from occupax.cli.commands.train import train

COMMANDS = {
    "train": train,
    "sweep": sweep,
    "evaluate": evaluate,
    "check-env": check_env,
    "report": report,
    "reproduce": reproduce,
    "solve": solve,
    "theory": theory,
    "list": list_names,
}


def main() -> None:
    """Run a command; a user's mistake ends in one sentence and exit code 2, a failure in 1, Ctrl-C in 130."""
    try:
        _keep_compiled_programs()
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="occupax",
            description="Optimise any smooth function of what a policy visits.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OverflowError) as error:
        _complain(str(error), 2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _complain(f"{place}{error.strerror or error}.", 1)
    except RuntimeError as error:
        _complain(str(error), 1)
    except MemoryError:
        _complain("there is not enough memory: fewer seeds, smaller batches or a shorter horizon need less.", 1)
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted.", 130)


def _keep_compiled_programs() -> None:
    """Let a second command of the same shape start without compiling, unless the user has arranged this already."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "occupax" / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _complain(said: str, code: int) -> None:
    Console(stderr=True).print(f"[bold red]occupax:[/] {escape(said)}", highlight=False, soft_wrap=True)
    sys.exit(code)

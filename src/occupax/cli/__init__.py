"""Command line: `occupax --help`.

- `commands`: `training` for train and sweep, `exact` for solve and theory, `gymnasium` for
  check-env and evaluate, `pages` for report and reproduce, `explain` for explain, `bench` for
  bench.
- `choices`: arguments of `train` and `sweep`, from options or from the folder of a run.
- `names`: names of environments, utilities, algorithms and policies, and the command list.
- `settings`: `--set name=value`.
- `hyperparameters`: options of the algorithms, such as `--step-size 0.1`.
- `options`: types of options and their help texts.
- `output`: printing of lines, tables and JSON.
- `cache`: persistent cache of compiled programs.

The docstring of a command is its help text.
"""

import os
import signal
import sys
import threading
import warnings
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import jax
import tyro
from rich.console import Console
from rich.markup import escape

from occupax import __version__
from occupax.cli.cache import keep_compiled_programs
from occupax.cli.commands.bench import bench
from occupax.cli.commands.exact import solve, theory
from occupax.cli.commands.explain import explain
from occupax.cli.commands.gymnasium import check_env, evaluate
from occupax.cli.commands.pages import report, reproduce
from occupax.cli.commands.training import sweep, train
from occupax.cli.names import list_names
from occupax.cli.output import only_json, print_any_character, print_line
from occupax.display import wrap_words
from occupax.errors import OccupaxWarning
from occupax.signals import ending_signals
from occupax.training.loop import Terminated

COMMANDS = {
    command.__name__.removesuffix("_names").replace("_", "-"): command
    for command in (
        train,
        sweep,
        evaluate,
        check_env,
        report,
        explain,
        reproduce,
        bench,
        solve,
        theory,
        list_names,
    )
}
INVALID_ARGUMENTS = 2
"""Exit code after invalid arguments."""
FAILURE = 1
"""Exit code after a failure."""
SIGNAL = 128
"""Exit code after signal N, minus N."""
OUT_OF_MEMORY = "out of memory: use fewer seeds, smaller batches or a shorter horizon."
DESCRIPTION = (
    "Train policies for any smooth function of the discounted occupancy measure. "
    "`occupax --version` prints the version."
)
PREFIX = "occupax:"
"""Beginning of every error message."""


def main() -> None:
    """Run the command in `sys.argv`.

    The exit code is 2 after invalid arguments, 1 after a failure and 128 + N after signal N.
    """
    print_any_character()
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    if threading.current_thread() is threading.main_thread():
        for number in ending_signals():
            signal.signal(number, _terminate)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with only_json() if "--json" in sys.argv[1:] else nullcontext():
        _run()


def _run() -> None:
    try:
        _check_platform()
        if sys.argv[1:] == ["--version"]:
            print_line(f"occupax {__version__}")
            return
        keep_compiled_programs()
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="occupax",
            description=DESCRIPTION,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OverflowError) as error:
        _exit_with(str(error), INVALID_ARGUMENTS)
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        _exit_with(f"{prefix}{error.strerror or error}.", FAILURE)
    except RuntimeError as error:
        _exit_with(str(error), FAILURE)
    except MemoryError:
        _exit_with(OUT_OF_MEMORY, FAILURE)
    except Terminated as end:
        _exit_with(str(end), SIGNAL + end.number)
    except KeyboardInterrupt as stop:
        _exit_with(str(stop) or "interrupted.", SIGNAL + signal.SIGINT)


def _check_platform() -> None:
    """Raise ValueError if JAX has no device for the environment variable JAX_PLATFORMS."""
    platforms = os.environ.get("JAX_PLATFORMS")
    if not platforms:
        return
    try:
        jax.devices()
    except Exception as error:  # the type depends on the plug-ins of JAX that are installed
        raise ValueError(
            f"JAX_PLATFORMS must name a device of this machine, got {platforms!r}: "
            "unset the variable, or install JAX for this kind of device."
        ) from error


def _terminate(number: int, _: Any) -> None:
    _exit_with("terminated.", SIGNAL + number)


def _show_warning(
    show_other: Any, message: Warning | str, category: type[Warning], *location: Any
) -> None:
    """Print a warning of Occupax as one line. Other warnings are shown as Python does."""
    if category is OccupaxWarning:
        _print_error(str(message))
    else:
        show_other(message, category, *location)


def _exit_with(message: str, code: int) -> None:
    _print_error(message)
    sys.exit(code)


def _print_error(message: str) -> None:
    console = Console(stderr=True, emoji=False)
    text = f"{PREFIX} {message}"
    if console.is_terminal:
        text = wrap_words(text, console.width)
    shown = f"[bold red]{PREFIX}[/]{escape(text.removeprefix(PREFIX))}"
    with suppress(OSError):  # the terminal may have been closed
        console.print(shown, highlight=False, soft_wrap=True)

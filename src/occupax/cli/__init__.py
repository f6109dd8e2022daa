"""The command line: `occupax --help`.

- `commands`: `training` for train and sweep, `exact` for solve and theory, `gymnasium` for
  check-env and evaluate, `pages` for report and reproduce, `explain` for explain, `bench` for
  bench.
- `choices`: what is trained, by options that several commands share or by the folder of a run.
- `names`: what the command line calls environments, utilities, algorithms and policies, and list.
- `settings`: `--set name=value`.
- `hyperparameters`: options of the algorithms, such as `--step-size 0.1`.
- `options`: how options read their values, and what the help says of them.
- `output`: how lines, tables and JSON are printed.
- `cache`: where compiled programs are kept.

The docstring of a command is its help.
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
        _refuse_missing_platform()
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
        _complain(str(error), 2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _complain(f"{place}{error.strerror or error}.", 1)
    except RuntimeError as error:
        _complain(str(error), 1)
    except MemoryError:
        _complain(
            "out of memory: use fewer seeds, smaller batches or a shorter horizon.",
            1,
        )
    except Terminated as end:
        _complain(str(end), 128 + end.number)
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted.", 130)


def _refuse_missing_platform() -> None:
    wanted = os.environ.get("JAX_PLATFORMS")
    try:
        if wanted:
            jax.devices()
    except Exception as error:  # JAX raises this and that, depending on what is installed
        hint = "unset it, or install JAX for this kind of device"
        raise ValueError(
            f"JAX_PLATFORMS is {wanted!r}, but there is no such device here: {hint}."
        ) from error


def _terminate(number: int, _: Any) -> None:
    _complain("terminated.", 128 + number)


def _show_warning(
    otherwise: Any, message: Warning | str, category: type[Warning], *place: Any
) -> None:
    """Print a warning of Occupax as one line. Other warnings are shown as Python does."""
    if category is OccupaxWarning:
        _print_error(str(message))
    else:
        otherwise(message, category, *place)


def _complain(said: str, code: int) -> None:
    _print_error(said)
    sys.exit(code)


def _print_error(message: str) -> None:
    console = Console(stderr=True, emoji=False)
    text = f"{PREFIX} {message}"
    if console.is_terminal:
        text = wrap_words(text, console.width)
    shown = f"[bold red]{PREFIX}[/]{escape(text.removeprefix(PREFIX))}"
    with suppress(OSError):  # the terminal may have been closed
        console.print(shown, highlight=False, soft_wrap=True)

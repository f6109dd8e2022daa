"""What commands print."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TextIO

import rich.console
from rich.markup import escape
from rich.table import Table

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
MAX_TABLE_WIDTH = 10_000
UNSAVED = "nothing is saved: give --out FOLDER to keep it"


class Console(rich.console.Console):
    """A console whose reader may go away, as that of a pipe into `head`: nothing is shown then, all else goes on."""

    def on_broken_pipe(self) -> None:
        """Show nothing any more."""
        _discard(sys.stdout)


def print_any_character() -> None:
    r"""Print escapes such as `\udce9` for characters that the standard output cannot encode, as Python's errors do."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def only_json() -> Generator[None]:
    """Let nothing but `print_json` write to the standard output, neither simulators, their processes nor libraries.

    What they print there goes to the standard error.
    """
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        try:
            kept, first = os.fdopen(os.dup(sys.stdout.fileno()), "w"), os.dup(STANDARD_OUTPUT)
        except (OSError, ValueError):  # a stream of Python's own, or none
            kept = sys.stdout
        else:
            stack.callback(kept.close)
            stack.callback(os.dup2, first, STANDARD_OUTPUT)
            os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
        _streams.append(kept)
        stack.callback(_streams.pop)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


_streams: list[TextIO] = []
"""The standard output that is kept for JSON, if it is."""


def print_json(value: Any) -> None:
    """Print JSON, in which infinities and NaN are texts that Python's `float` and JavaScript's `Number` both read."""
    plain = json.loads(json.dumps(value), parse_constant=str)
    stream = _streams[-1] if _streams else sys.stdout
    try:
        stream.write(json.dumps(plain, indent=2, allow_nan=False) + "\n")
        stream.flush()
    except OSError as error:
        _discard(stream)  # the rest of the buffer would fail again at the end
        if not isinstance(error, BrokenPipeError):
            raise


def _discard(stream: TextIO) -> None:
    """Discard what is written to a stream from now on."""
    with contextlib.suppress(OSError, ValueError):  # a stream of Python's own has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_line(text: str) -> None:
    """Print one line, however long, as it is."""
    Console(emoji=False).print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(
    title: str, rows: Sequence[Mapping[str, Any]], missing: str = "-", last_apart: bool = False
) -> None:
    """Print a table with a column for each key; `missing` stands for an entry that is None or not there."""
    table = Table()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        is_text = any(isinstance(row.get(column), str) for row in rows)
        table.add_column(column, justify="left" if is_text else "right")
    for i, row in enumerate(rows):
        if last_apart and i == len(rows) - 1:
            table.add_section()
        table.add_row(*(_show(row.get(column), missing) for column in columns))
    natural = (
        Console(width=MAX_TABLE_WIDTH).measure(table).maximum
    )  # no line is broken inside a word or a number
    print_line(title)
    Console(emoji=False, width=natural).print(table)


def number_text(value: float) -> str:
    """Six digits, two of a number next to nothing, and no zeros of nothing at all."""
    return (
        "0"
        if value == 0
        else f"{value:.2g}"
        if abs(value) < 1e-3
        else f"{value:#.6g}".removesuffix(".")
    )


def _show(entry: Any, missing: str) -> str:
    if isinstance(entry, float):
        return number_text(entry)
    return missing if entry is None else escape(str(entry))

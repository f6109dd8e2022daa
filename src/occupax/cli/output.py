"""Printing of lines, tables and JSON."""

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

from occupax.analysis.verdict import short
from occupax.display import wrap_words

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
MAX_TABLE_WIDTH = 10_000
INTERRUPTED = "stopped; repeat the command to resume it."
UNSAVED = "nothing is saved: add --out FOLDER to save the results"


class Console(rich.console.Console):
    """Console that discards its output once the reader of a pipe has gone."""

    def on_broken_pipe(self) -> None:
        """Discard further output."""
        _discard(sys.stdout)


def print_any_character() -> None:
    r"""Print escapes such as `\udce9` for characters that the standard output cannot encode."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def only_json() -> Generator[None]:
    """Reserve the standard output for `print_json`.

    Output of simulators, processes and libraries goes to the standard error.
    """
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        try:
            json_stream = os.fdopen(os.dup(sys.stdout.fileno()), "w")
            saved_descriptor = os.dup(STANDARD_OUTPUT)
        except (OSError, ValueError):  # no standard output, or a stream without a descriptor
            json_stream = sys.stdout
        else:
            stack.callback(json_stream.close)
            stack.callback(os.dup2, saved_descriptor, STANDARD_OUTPUT)
            os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
        _streams.append(json_stream)
        stack.callback(_streams.pop)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


_streams: list[TextIO] = []
"""Standard output that `only_json` reserves. Empty otherwise."""


def print_json(value: Any) -> None:
    """Print JSON with infinities and NaN as strings.

    Python's `float` and JavaScript's `Number` read these strings.
    """
    plain = json.loads(json.dumps(value), parse_constant=str)
    stream = _streams[-1] if _streams else sys.stdout
    try:
        stream.write(json.dumps(plain, indent=2, allow_nan=False) + "\n")
        stream.flush()
    except OSError as error:
        _discard(stream)  # the rest of the buffer would fail again at exit
        if not isinstance(error, BrokenPipeError):
            raise


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device."""
    with contextlib.suppress(OSError, ValueError):  # an in-memory stream has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())


def print_line(text: str, *, bold: bool = False) -> None:
    """Print lines of text.

    Args:
        text: lines of any length. Lines wider than a terminal are broken between words.
        bold: whether a terminal shows the text in bold type.
    """
    console = Console(emoji=False)
    if console.is_terminal:
        text = wrap_words(text, console.width)
    style = "bold" if bold else None
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def print_table(
    title: str, rows: Sequence[Mapping[str, Any]], missing: str = "-", last_apart: bool = False
) -> None:
    """Print a table with a column for each key, and `missing` for None and absent entries."""
    table = Table()
    columns: dict[str, list[str]] = {}
    for row in rows:
        for column in row:
            columns.setdefault(column, [])
    for column, texts in columns.items():
        entries = [row.get(column) for row in rows]
        is_text = any(isinstance(entry, str) for entry in entries)
        texts.extend(_show(entry, missing) for entry in entries)
        words = " ".join([column, *texts]).split()
        longest_word = max(map(len, words))
        justify = "left" if is_text else "right"
        table.add_column(column, justify=justify, min_width=longest_word)
    for i in range(len(rows)):
        if last_apart and i == len(rows) - 1:
            table.add_section()
        cells = [texts[i] for texts in columns.values()]
        table.add_row(*cells)
    print_line(title)
    Console(emoji=False, width=_table_width(table)).print(table)


def _table_width(table: Table) -> int:
    """Return the width of a table, in which no word and no number is broken.

    The lines of a cell are broken between words if the table is wider than the terminal.
    """
    needed = Console(emoji=False, width=MAX_TABLE_WIDTH).measure(table)
    terminal = Console(emoji=False)
    if not terminal.is_terminal:
        return needed.maximum
    return max(needed.minimum, min(needed.maximum, terminal.width))


def _show(entry: Any, missing: str) -> str:
    if entry is None:
        return missing
    if isinstance(entry, float):
        return short(entry)
    return escape(str(entry))

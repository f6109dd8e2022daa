"""What commands print."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

UNSAVED = "nothing is saved: give --out FOLDER to keep it"


def print_json(value: Any) -> None:
    """Print JSON, in which infinities and NaN are texts that Python's `float` and JavaScript's `Number` both read."""
    plain = json.loads(json.dumps(value), parse_constant=str)
    print(json.dumps(plain, indent=2, allow_nan=False))  # noqa: T201


def print_line(text: str) -> None:
    """Print one line, however long, as it is."""
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(title: str, rows: Sequence[Mapping[str, Any]], missing: str = "-", last_apart: bool = False) -> None:
    """Print a table with a column for each key; `missing` stands for an entry that is None or not there."""
    table = Table(title=escape(title), title_justify="left")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        is_text = any(isinstance(row.get(column), str) for row in rows)
        table.add_column(column, justify="left" if is_text else "right")
    for i, row in enumerate(rows):
        if last_apart and i == len(rows) - 1:
            table.add_section()
        table.add_row(*(_show(row.get(column), missing) for column in columns))
    Console().print(table)


def _show(entry: Any, missing: str) -> str:
    if isinstance(entry, float):
        return f"{entry:.2g}" if 0 < abs(entry) < 1e-3 else f"{entry:.6f}"
    return missing if entry is None else escape(str(entry))

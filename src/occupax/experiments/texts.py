"""What the report says, from `report.toml`."""

import tomllib
from functools import reduce
from importlib.resources import files
from operator import getitem
from typing import Any

TEXTS = tomllib.loads((files("occupax.experiments") / "report.toml").read_text(encoding="utf-8"))


def text(*place: str, **values: Any) -> Any:
    """The text at a place of the file, or all that are there by name, with values for the fields in braces."""
    return _filled(reduce(getitem, place, TEXTS), values)


def _filled(entry: Any, values: dict[str, Any]) -> Any:
    if isinstance(entry, dict):
        return {name: _filled(part, values) for name, part in entry.items()}
    if isinstance(entry, list):
        return [_filled(part, values) for part in entry]
    return " ".join(entry.format(**values).split()) if isinstance(entry, str) else entry

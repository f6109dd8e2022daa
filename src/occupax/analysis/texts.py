"""Texts of pages, from a TOML file with fields in braces."""

import tomllib
from functools import reduce
from importlib.resources import files
from operator import getitem
from typing import Any


class Texts:
    """Texts of a TOML file of a package.

    Args:
        package: Name of the package.
        file: Name of the file.
    """

    def __init__(self, package: str, file: str):
        source = files(package) / file
        self.entries: dict[str, Any] = tomllib.loads(source.read_text(encoding="utf-8"))

    def get(self, *path: str, **values: Any) -> Any:
        """Return the entry at a path, a text or texts by name, with values in its fields."""
        return _fill(reduce(getitem, path, self.entries), values)


def _fill(entry: Any, values: dict[str, Any]) -> Any:
    match entry:
        case dict():
            return {name: _fill(part, values) for name, part in entry.items()}
        case list():
            return [_fill(part, values) for part in entry]
        case str():
            words = entry.format(**values).split()
            return " ".join(words)
        case _:
            return entry

"""What commands print for machines."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def print_json(value: Any) -> None:
    """Print dicts, sequences, numbers and texts as JSON.

    JSON has no infinities and no NaN: they become the texts "Infinity", "-Infinity" and "NaN", which Python's `float`
    and JavaScript's `Number` both read.
    """
    print(json.dumps(_plain(value), indent=2, allow_nan=False))  # noqa: T201


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value)
    return value

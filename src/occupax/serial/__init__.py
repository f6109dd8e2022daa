"""Values as JSON and named arrays, and files of both: nothing is pickled, and nothing in a file is ever executed."""

from occupax.serial.files import checksum, read, write, write_text
from occupax.serial.values import (
    FUNCTIONS,
    Arrays,
    class_name,
    difference,
    named_arrays,
    pack,
    unpack,
    unpack_as,
    with_arrays_of,
)

__all__ = [
    "FUNCTIONS",
    "Arrays",
    "checksum",
    "class_name",
    "difference",
    "named_arrays",
    "pack",
    "read",
    "unpack",
    "unpack_as",
    "with_arrays_of",
    "write",
    "write_text",
]

"""Tables of results, as plain text and as sections of benchmarks/RESULTS.md."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """Target of a measurement and the measured value."""

    wanted: str
    measured: str
    met: bool

    def __str__(self) -> str:
        return f"{self.wanted}: {self.measured}, {'reached' if self.met else 'NOT reached'}"


@dataclass(frozen=True)
class Table:
    """Table of formatted figures. A row may be shorter than the columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    targets: Sequence[Target] = ()
    remarks: Sequence[str] = field(default=())

    def text(self) -> str:
        """Aligned columns."""
        lines = [self.columns, *self.rows]
        widths = [
            max(len(line[i]) if i < len(line) else 0 for line in lines)
            for i in range(len(self.columns))
        ]
        shown = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False))
            for line in lines
        ]
        said = [*self.remarks, *(f"target: {target}" for target in self.targets)]
        return "\n".join(line for line in [self.title, *shown, *said] if line)

    def markdown(self) -> str:
        """A table with its targets under it."""
        lines = [self.columns, ["--:"] * len(self.columns), *self.rows]
        shown = "\n".join(f"| {' | '.join(line)} |" for line in lines if line)
        said = [*self.remarks, *(f"Target: {target}." for target in self.targets)]
        return "\n\n".join(part for part in [f"**{self.title}**", shown, *said] if part)


def at_least(wanted: float, measured: float, of: str, digits: int = 2) -> Target:
    """A target that is reached from `wanted` on."""
    return Target(f"at least {wanted:g} {of}", f"{measured:.{digits}f}", measured >= wanted)


def at_most(wanted: float, measured: float, of: str, digits: int = 2) -> Target:
    """A target that is reached up to `wanted`."""
    return Target(f"at most {wanted:g} {of}", f"{measured:.{digits}f}", measured <= wanted)


def show(tables: Sequence[Table]) -> None:
    """Print."""
    print("\n\n".join(table.text() for table in tables), flush=True)


def measured(name: str) -> tuple[str, list[Table]]:
    """Return the docstring and the tables of the benchmark in `name`.py. Call in a new process."""
    import importlib

    module: Any = importlib.import_module(name)
    return module.__doc__, module.measure()

"""Descriptions of objects as lines of text and as HTML tables with a small curve."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

MAX_NUMBERS = 6
"""Larger arrays are given by their shape."""
WIDTH, HEIGHT, MARGIN = 320, 90, 4
"""The size of a small curve in pixels, and what is left free around it."""
MAX_POINTS = 80
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
CELL = "text-align:left;vertical-align:top;padding:0.1em 0.8em 0.1em 0"


class Description(NamedTuple):
    """Text, table and curves that display an object in a console or a notebook."""

    title: str
    rows: Sequence[tuple[str, str]] = ()
    """Pairs of a name and a text."""
    curves: Sequence[np.ndarray] = ()
    """Numbers to draw as lines over one axis."""
    levels: Sequence[float] = ()
    """Numbers to draw as dashed lines beside them."""

    def text(self) -> str:
        """Return the title and a line for each row."""
        return "\n".join([self.title, *(f"{name}: {text}" for name, text in self.rows)])

    def html(self) -> str:
        """Return HTML of the title, a table of the rows, and the curves. All text is escaped."""
        rows = "".join(
            f'<tr><th style="{CELL};font-weight:normal;opacity:0.7">{escape(name)}</th>'
            f'<td style="{CELL}">{escape(text)}</td></tr>'
            for name, text in self.rows
        )
        curve = small_curve(self.curves, self.levels)
        return f"<div><strong>{escape(self.title)}</strong><table>{rows}</table>{curve}</div>"


def small_curve(curves: Sequence[np.ndarray], levels: Sequence[float] = ()) -> str:
    """Lines as a small drawing of SVG. Nothing if there are not two numbers to join."""
    shown = [np.asarray(curve, float)[_spread(len(curve))] for curve in curves]
    shown = [curve for curve in shown if np.isfinite(curve).sum() > 1]
    if not shown:
        return ""
    known = [level for level in levels if np.isfinite(level)]
    numbers = np.concatenate([*shown, np.array(known, float)])
    low, high = (float(edge(numbers[np.isfinite(numbers)])) for edge in (np.min, np.max))
    scale = (HEIGHT - 2 * MARGIN) / (high - low) if high > low else 0.0

    def up(number: float) -> str:
        return f"{HEIGHT - MARGIN - (number - low) * scale:.1f}"

    parts: list[str] = []
    for level in known:
        place = f'x1="0" x2="{WIDTH}" y1="{up(level)}" y2="{up(level)}"'
        parts.append(f'<line {place} stroke="currentColor" stroke-dasharray="6 3" opacity="0.6"/>')
    for i, curve in enumerate(shown):
        across = np.linspace(0, WIDTH, len(curve))
        points = " ".join(
            f"{x:.1f},{up(y)}" for x, y in zip(across, curve, strict=True) if np.isfinite(y)
        )
        colour = COLOURS[i % len(COLOURS)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg {size} role="img" aria-label="The course of training.">{"".join(parts)}</svg>'


def _spread(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int))


def in_words(value: Any) -> str:
    """Return a short text of a value: modules with their fields, large arrays by their shape."""
    if isinstance(value, eqx.Module):
        return module_text(value) if type(value).__repr__ is eqx.Module.__repr__ else repr(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(in_words, value))})"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {in_words(part)}" for name, part in value.items()) or "none"
    if isinstance(value, Tracer) or (hasattr(value, "shape") and np.size(value) > MAX_NUMBERS):
        return f"array {' x '.join(map(str, value.shape)) or 'of one number'}"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        numbers = [
            str(number) if isinstance(number, bool) else f"{number:.6g}"
            for number in np.ravel(value).tolist()
        ]
        return numbers[0] if np.ndim(value) == 0 else f"[{', '.join(numbers)}]"
    if isinstance(value, float):
        return shown_number(value)
    return getattr(value, "__name__", None) or repr(value)


def module_text(module: Any) -> str:
    """The class of a module and all its fields."""
    fields = [field.name for field in dataclasses.fields(module) if field.name in vars(module)]
    texts = [f"{name}={in_words(getattr(module, name))}" for name in fields]
    return f"{type(module).__name__}({', '.join(texts)})"


def wrap_words(text: str, width: int) -> str:
    """Break lines between words, with the indentation of the line that is broken.

    Args:
        text: Lines of any length.
        width: Largest number of characters of a line. A longer word has a line of its own.

    Returns:
        The lines. Spaces and line breaks of shorter lines are unchanged.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def shown_number(value: float) -> str:
    """A number with six digits."""
    return f"{value:.6g}"

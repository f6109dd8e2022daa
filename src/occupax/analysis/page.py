"""The frame of a report: a page of HTML that needs no other file, with figures as part of its text."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Literal, get_args

from occupax._errors import unknown
from occupax.analysis.interactive import interactive
from occupax.analysis.svg import inline_svg

__all__ = ["badge", "contents", "definitions", "figure", "inline_svg", "interactive", "page", "table"]

Kind = Literal["good", "partly", "bad", "unknown"]
SYMBOLS: dict[Kind, str] = {"good": "✓", "partly": "≈", "bad": "✗", "unknown": "?"}


def page(title: str, heading: str, body: str) -> str:
    """A whole page around some HTML. No script but its own runs in it, and nothing is loaded from elsewhere."""
    style, script = _read("page.css"), _read("page.js")
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{checksum}'"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{escape(heading)}</h1>\n"
        '<button type="button" class="theme" aria-label="Switch between light and dark">◐ Light / dark</button>\n'
        f"</header>\n{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def contents(entries: Iterable[tuple[str, str]]) -> str:
    """A table of contents: the id of each part, and its title."""
    lines = "\n".join(f'<li><a href="#{escape(anchor)}">{escape(title)}</a></li>' for anchor, title in entries)
    return f'<nav class="contents" aria-label="Contents">\n<ol>\n{lines}\n</ol>\n</nav>'


def badge(text: str, kind: Kind) -> str:
    """A label in the colour of a verdict, with a symbol where there is no colour."""
    if kind not in get_args(Kind):
        raise unknown("kind", kind, get_args(Kind))
    return f'<span class="badge {kind}"><span aria-hidden="true">{SYMBOLS[kind]}</span> {escape(text)}</span>'


def definitions(entries: Iterable[tuple[str, str]]) -> str:
    """A list of names and what they stand for."""
    lines = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entries)
    return f"<dl>\n{lines}\n</dl>"


def table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], foot: Sequence[str] = (), words: int = 1
) -> str:
    """A table whose rows are HTML; the first cell names the row, and the first `words` columns are no numbers."""

    def cells(row: Sequence[str], first: str, other: str) -> str:
        tags = [first, *[other] * (len(row) - 1)]
        kinds = [' class="words"' if i < words else "" for i in range(len(row))]
        parts = zip(row, tags, kinds, strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag[:2]}>' for cell, tag, kind in parts)}</tr>"

    head = cells([escape(name) for name in header], 'th scope="col"', 'th scope="col"')
    body = "\n".join(cells(row, 'th scope="row"', "td") for row in rows)
    last = "\n<tfoot>\n" + cells(foot, 'th scope="row"', "td") + "\n</tfoot>" if foot else ""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}">\n<table>\n'
        f"<caption>{escape(caption)}</caption>\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>{last}\n"
        "</table>\n</div>"
    )


def figure(svg: str, name: str, meaning: str) -> str:
    """A figure with its name and one sentence about it."""
    return f"<figure>\n{svg}\n<figcaption><strong>{escape(name)}.</strong> {escape(meaning)}</figcaption>\n</figure>"


@cache
def _read(name: str) -> str:
    return files("occupax.analysis").joinpath(name).read_text("utf-8")

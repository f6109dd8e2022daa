"""The frame of a report: a page of HTML that needs no other file, with figures as part of its text."""

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from occupax.analysis.plots import ESTIMATE, EXACT

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1b1b1b; --quiet: #555555; --rule: #d0d0d0;
  --panel: #f6f6f4; --estimate: #0072b2; --exact: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --text: #e8e6e3; --quiet: #a9a9a9; --rule: #3d4147;
  --panel: #1f2226; --estimate: #5db7ee; --exact: #ff9a4d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.35rem; } h3 { font-size: 1.1rem; margin-top: 2rem; }
h1, h2, h3, dd { overflow-wrap: anywhere; }
section { border-top: 1px solid var(--rule); margin-top: 2.5rem; padding-top: 0.5rem; }
a { color: var(--estimate); }
.quiet, figcaption { color: var(--quiet); font-size: 0.9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1.25rem; margin: 1rem 0; padding: 0.9rem 1rem;
  background: var(--panel); border-radius: 0.4rem; font-size: 0.95rem; }
dt { color: var(--quiet); } dd { margin: 0; }
.wide { overflow-x: auto; } .wide:focus-visible { outline: 2px solid var(--estimate); }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; min-width: 100%; }
caption { text-align: left; color: var(--quiet); padding-bottom: 0.4rem; }
th, td { padding: 0.3rem 0.7rem; text-align: right; vertical-align: bottom; border-bottom: 1px solid var(--rule); }
.words { text-align: left; } td.words { min-width: 9rem; }
tbody th { font-weight: normal; white-space: nowrap; }
tfoot th, tfoot td { font-weight: bold; border-bottom: 0; border-top: 2px solid var(--rule); }
.figures { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.small.figures { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.maps { max-width: 34rem; }
figure { margin: 0; } figcaption { margin-top: 0.4rem; } figcaption strong { color: var(--text); }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { fill: currentColor; font-family: inherit !important; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 0.5rem; } }
"""

COLOURS = {ESTIMATE: "var(--estimate)", EXACT: "var(--exact)", "#000000": "currentColor"}
"""What the figures draw in, and what the page makes of it, in the light and in the dark."""


def page(title: str, heading: str, body: str) -> str:
    """A whole page around some HTML."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(heading)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


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


def inline_svg(drawing: Any, name: str, description: str) -> str:
    """A Matplotlib figure as a part of a page, in the page's own colours and letters.

    Args:
        drawing: the figure.
        name: a word of its own for each figure of a page: references within an SVG must not meet those of another.
        description: what is to be seen, for those who do not see it.
    """
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawing.savefig(stream, format="svg", transparent=True)
    _, _, text = stream.getvalue().partition("<svg")
    box = re.search(r'viewBox="[^"]*"', text)
    inside = text.partition(">")[2]
    inside = re.sub(r"<(metadata|style).*?</\1>\s*", "", inside, flags=re.DOTALL)
    inside = inside.replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', inside))
    inside = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", inside)
    inside = re.sub(r' d="[^"]*"', lambda found: re.sub(r"-?\d+\.\d+", _rounded, found[0]), inside)
    for drawn, shown in COLOURS.items():
        inside = inside.replace(drawn, shown)
    return f'<svg role="img" aria-label="{escape(description)}" {box[0] if box else ""}>{inside.rstrip()}'


def _rounded(found: re.Match[str]) -> str:
    """A tenth of a point is finer than a screen."""
    return f"{float(found[0]):.1f}".removesuffix(".0")

"""Drawings as part of a page."""

import re
from html import escape
from typing import Any

from occupax.analysis.plots import COLOURS, svg_text

SHOWN = {colour: f"var(--c{i})" for i, colour in enumerate(COLOURS)} | {"#000000": "currentColor"}
"""What the figures draw in, and what the page makes of it, in the light and in the dark."""


def inline_svg(drawing: Any, name: str, description: str) -> str:
    """A Matplotlib figure as a part of a page, in the page's own colours and letters.

    What has a gid such as "part-a-0" becomes a group with the attribute `data-part="a"`.

    Args:
        drawing: the figure.
        name: a word of its own for each figure of a page: references within an SVG must not meet those of another.
        description: what is to be seen, for those who do not see it.
    """
    _, _, text = svg_text(drawing, name, transparent=True).partition("<svg")
    box = re.search(r'viewBox="[^"]*"', text)
    inside = text.partition(">")[2]
    inside = re.sub(r"<(metadata|style).*?</\1>\s*", "", inside, flags=re.DOTALL)
    inside = inside.replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', inside))
    inside = re.sub(r' id="part-(\w+)-\d+"', r' data-part="\1"', inside)
    inside = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", inside)
    for drawn, shown in SHOWN.items():
        inside = inside.replace(drawn, shown)
    return f'<svg role="img" aria-label="{escape(description)}" {box[0] if box else ""}>{inside.rstrip()}'

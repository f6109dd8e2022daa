"""Command `explain`: the section of the documentation about a finding of the diagnosis."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import tyro

from occupax.cli.options import shown
from occupax.cli.output import print_line
from occupax.errors import unknown

PAGE = "diagnosis.md"
SECTION = re.compile(r"^## ([a-z-]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def explain(
    finding: Annotated[str | None, tyro.conf.Positional, shown("", "FINDING")] = None,
) -> None:
    """Explain a finding of the diagnosis and its remedies.

    Example: occupax explain no-progress

    Args:
        finding: kind of finding; all kinds by default.
    """
    sections = read_sections()
    if finding is None:
        for name, text in sections.items():
            first_sentence = text.partition(". ")[0].rstrip(".")
            print_line(f"{name}: {first_sentence}.")
        return
    if finding not in sections:
        raise unknown("FINDING", finding, sections)
    print_line(finding, bold=True)
    print_line(sections[finding])


def read_sections() -> dict[str, str]:
    """Return the text of each finding by its name, one line a paragraph or item."""
    page = files("occupax").joinpath(PAGE)
    if not page.is_file():  # a checkout has the page among the documentation
        page = Path(__file__).parents[4] / "docs" / PAGE
    sections = SECTION.findall(page.read_text("utf-8"))
    return {name: _plain(text) for name, text in sections}


def _plain(markdown: str) -> str:
    """Return the text of a section without links and without line breaks inside paragraphs."""
    text = LINK.sub(r"\1", markdown.strip())
    return re.sub(r"(?<!\n)\n(?!\n|\* )", " ", text)

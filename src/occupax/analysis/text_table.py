"""Tables of text for pages, Markdown and CSV files."""

from collections.abc import Sequence
from dataclasses import dataclass

from occupax.analysis.charts import csv_lines


@dataclass(frozen=True)
class TextTable:
    """Table of formatted numbers, with words in the first `words` columns."""

    name: str
    caption: str
    header: Sequence[str]
    words: int
    rows: Sequence[Sequence[str]]
    folded: bool = False
    """Whether a reader must open the table to see more than its caption."""

    def csv(self) -> str:
        """Return the table as CSV."""
        return csv_lines([self.header, *self.rows])

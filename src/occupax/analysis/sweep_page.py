"""Page of a sweep: the ranking of its configurations, and the utility by hyperparameter."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis import page
from occupax.analysis.charts import Chart, Series, figure_name
from occupax.analysis.describe import UNKNOWN, number
from occupax.io.files import write_text

SWEEP_PAGE = "sweep.html"
CAPTION = "Each point is the trained policy of a seed. The dashed line joins the medians."


class SweepRow(NamedTuple):
    """Configuration of a sweep with the utilities of its trained policies."""

    settings: Mapping[str, Any]
    utilities: Float[np.ndarray, " seed"]
    score: float
    has_learned: bool
    status: str
    folder: str


def write_sweep_page(title: str, rows: Sequence[SweepRow], path: str | Path) -> None:
    """Write an HTML page about a sweep.

    Args:
        title: Heading of the page.
        rows: Configurations in the order of their ranks.
        path: The file to write.
    """
    from matplotlib import style

    names = list(rows[0].settings)
    header = ["Rank", *names, "Score", "Lowest seed", "Highest seed", "Learned", "Seeds", "Folder"]
    cells: list[list[str]] = []
    for rank, row in enumerate(rows, start=1):
        lowest, highest = _range(row.utilities)
        values = [_text(row.settings[name]) for name in names]
        learned = "yes" if row.has_learned else "nothing"
        numbers = [number(row.score), lowest, highest]
        cells.append([str(rank), *values, *numbers, learned, row.status, row.folder])
    charts = [_chart(name, rows) for name in names if _is_numeric(name, rows)]
    with style.context("default"):
        text = page.render("sweep.html", title=title, header=header, rows=cells, charts=charts)
    write_text(Path(path), text)


def _range(utilities: Float[np.ndarray, " seed"]) -> tuple[str, str]:
    """Return the lowest and the highest finite utility."""
    known = utilities[np.isfinite(utilities)]
    if not known.size:
        return UNKNOWN, UNKNOWN
    return number(known.min()), number(known.max())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _is_numeric(name: str, rows: Sequence[SweepRow]) -> bool:
    """Return whether a setting has two or more finite numbers as values."""
    values = {row.settings[name] for row in rows}
    is_number = [isinstance(value, int | float) and bool(np.isfinite(value)) for value in values]
    return len(values) > 1 and all(is_number)


def _chart(name: str, rows: Sequence[SweepRow]) -> Chart:
    """Return the utilities of all seeds against a setting, and the median at each of its values."""
    places = [np.full(len(row.utilities), float(row.settings[name])) for row in rows]
    x = np.concatenate(places)
    y = np.concatenate([row.utilities for row in rows]).astype(float)
    values = np.unique(x)
    medians = [_median(y[x == value]) for value in values]
    series = (
        Series("seeds", x, y, style="points"),
        Series("median", values, np.array(medians), style="dashed"),
    )
    labels = (name, "utility of the trained policy")
    return Chart(f"sweep-{figure_name(name)}", name, CAPTION, *labels, series)


def _median(utilities: Float[np.ndarray, " seed"]) -> float:
    known = utilities[np.isfinite(utilities)]
    if not known.size:
        return np.nan
    return float(np.median(known))

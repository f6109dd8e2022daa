"""What a finished run is worth, seed by seed."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import occupax as ox

NUMBERS = ("utility", "gap", "return")


class Summary(NamedTuple):
    """The numbers of every seed, their medians, and what is certified."""

    rows: list[dict[str, Any]]
    median: dict[str, float | None]
    certificate: ox.exact.Certificate | None
    """The one of the best seed, where there are any."""
    verdict: str
    """The certificate as a sentence, or why there is none."""


def summarise(problem: ox.Problem, result: ox.Result) -> Summary:
    """Look at the policies of all seeds: exactly, where there is a table."""
    utilities, returns = result.utilities, result.metrics["return"][:, -1]
    certificates, verdict = _certificates(problem, result)
    rows: list[dict[str, Any]] = [
        {
            "seed": seed,
            "utility": float(utilities[i]),
            "gap": None if certificates is None else certificates[i].gap,
            "return": float(returns[i]) if np.isfinite(returns[i]) else None,
            "status": result.status[i],
        }
        for i, seed in enumerate(result.seeds)
    ]
    median = {name: _median([row[name] for row in rows if row[name] is not None]) for name in NUMBERS}
    if certificates is None:
        return Summary(rows, median, None, verdict)
    seed, best = max(zip(result.seeds, certificates, strict=True), key=lambda pair: pair[1].value)
    verdict = f"certified: no policy is better than that of seed {seed}, {best.value:.6g}, by more than {best.gap:.3g}"
    return Summary(rows, median, best, verdict)


def save_pictures(name: str, result: ox.Result, folder: Path) -> Path:
    """Write `plot.png` and `report.html`; return the latter."""
    from occupax.analysis.report import write_report

    result.plot().savefig(folder / "plot.png")
    write_report([(name, result)], folder / "report.html")
    return folder / "report.html"


def _certificates(problem: ox.Problem, result: ox.Result) -> tuple[list[ox.exact.Certificate] | None, str]:
    """One for each seed, or the reason why there are none."""
    if not isinstance(problem.env, ox.TabularMDP):
        return None, ""
    try:
        return [result.certificate(seed) for seed in result.seeds], ""
    except ValueError as error:
        return None, f"not certified: {error}"


def _median(numbers: list[float]) -> float | None:
    return float(np.median(numbers)) if numbers else None

"""The report of the experiments: a page, the same as Markdown, figures as files, numbers as CSV."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from occupax import serial
from occupax.analysis import page, plots
from occupax.analysis.charts import csv_lines
from occupax.experiments import tuning
from occupax.experiments.cells import SEED, Done
from occupax.experiments.methods import PRINTED_STEP_SIZES, SNAPSHOTS, best_trials, described, read_search
from occupax.experiments.sections import Section, TextTable, text
from occupax.training.setup import versions

BADGES = {"reproduced": "good", "partly": "partly", "not reproduced": "bad", "cannot tell": "unknown"}


def write(
    folder: Path, command: str, scale: str, sections: Sequence[Section], done: Sequence[Done], search: Any
) -> Path:
    """Write everything into a folder; return the path of the page."""
    runs = [
        [cell.name, described(cell.algorithm), f"{cell.episodes:,}", str(cell.seeds), f"{it.seconds:,.0f}"]
        for it in done
        for cell in [it.cell]
    ]
    settings = TextTable(**text("tables", "runs", seed=SEED), rows=runs)
    searched = _search(search, {it.cell.task.name for it in done})
    everything = [*sections, Section(**text("sections", "settings"), tables=[settings, searched])]
    rows = [[it.where, it.says, it.setting, it.verdict, it.measured] for section in sections for it in section.claims]
    claims = TextTable(**text("tables", "claims"), rows=rows)
    numbers = {f"table-{table.name}": table for section in everything for table in section.tables} | {"claims": claims}
    for section in everything:
        for figure in section.figures:
            plots.save(figure, folder / "figures")
    for name, table in numbers.items():
        serial.write_text(folder / "numbers" / f"{name}.csv", csv_lines([table.header, *table.rows]))
    serial.write_text(folder / "numbers" / "seeds.csv", csv_lines(_seeds(done)))
    words = text("report") | {"facts": _facts(command, scale, done), "conventions": list(text("conventions").items())}
    for kind in ("md", "html"):
        content = page.render(f"experiments.{kind}", **words, claims=claims, badges=BADGES, sections=everything)
        serial.write_text(folder / f"report.{kind}", content)
    return folder / "report.html"


def _search(search: Any, names: Iterable[str]) -> TextTable:
    """What the search found, and what it would have found in the paper's range of step sizes."""
    trials = [it for it in read_search(search) if it.task in set(names) and it.snapshot in SNAPSHOTS]
    low, high = PRINTED_STEP_SIZES
    first = [trial for trial in trials if trial.seeds == tuning.SEEDS]
    within = best_trials(trial for trial in first if low <= trial.settings["step_size"] <= high)
    rows: list[list[str]] = []
    for (task, method), trial in best_trials(trials).items():
        tried = sum((other.task, other.method) == (task, method) for other in first)
        settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in trial.settings.items())
        inside = f"{within[task, method].score:.4g}" if (task, method) in within else "none"
        rows.append([task, method, f"N {trial.snapshot}, {settings}", str(tried), f"{trial.score:.4g}", inside])
    words = text("tables", "search", tuning=tuning, confirming=len(tuning.CONFIRMING), low=low, high=high)
    return TextTable(**words, rows=rows)


def _seeds(done: Sequence[Done]) -> list[list[str]]:
    rows = [["run", "of", "seed", "area_under_curve", "episodes_to_threshold", "final"]]
    for it in done:
        for of, outcome in {"policy": it.last, "mixture": it.mixture}.items():
            columns = zip(outcome.heights, outcome.reached, outcome.final, strict=True) if outcome else ()
            rows += [[it.cell.name, of, str(seed), *(f"{x:.10g}" for x in found)] for seed, found in enumerate(columns)]
    return rows


def _facts(command: str, scale: str, done: Sequence[Done]) -> list[tuple[str, str]]:
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "float64")
    return [
        ("Command", command),
        ("Scale", text("scales", scale)),
        ("Paper", text("report", "paper")),
        ("Runs", f"{len(done)}, of {sum(it.cell.seeds for it in done):,} seeds in all"),
        ("Training time", f"{sum(it.seconds for it in done) / 60:,.1f} minutes, compilation included"),
        ("Versions", used),
    ]

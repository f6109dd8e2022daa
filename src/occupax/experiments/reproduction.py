"""Run the paper's experiments, and write the report: a page, the same as Markdown, figures as files, numbers as CSV."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from occupax import serial
from occupax._errors import unknown
from occupax.analysis import page, plots
from occupax.analysis.charts import csv_lines
from occupax.experiments import ablations, cells, methods, rate, reward, tuning, utility
from occupax.experiments.cells import SCALES, Cell, Done, Scale
from occupax.experiments.progress import Job, run_jobs
from occupax.experiments.sections import Section, TextTable, text
from occupax.experiments.tasks import CARTPOLE, COVERAGE, COVERAGE_CARTPOLE, LAKE, tasks
from occupax.training.loggers import Logger
from occupax.training.setup import versions

BADGES = {"reproduced": "good", "partly": "partly", "not reproduced": "bad", "cannot tell": "unknown"}
Part = Literal["reward", "rate", "utility", "all"]
SEARCHED = {
    "reward": [
        *((task, method, methods.SNAPSHOTS) for task in reward.TASKS for method in reward.REWARD),
        *((task, ablations.CUT, methods.SNAPSHOTS) for task in (LAKE, CARTPOLE)),
        *((task, ablations.OURS, methods.SNAPSHOTS) for task in (COVERAGE, COVERAGE_CARTPOLE)),
    ],
    "rate": [(task, rate.OURS, (methods.RATE_SNAPSHOT,)) for task in rate.TASKS],
    "utility": [(task, method, methods.SNAPSHOTS) for task in utility.TASKS for method in utility.METHODS_OF["tuned"]],
}
"""The tasks, methods and snapshots N of which each part needs tuned settings."""
Experiment = tuple[Mapping[Any, Cell], Callable[[Mapping[Any, Done]], list[Section]]]
"""What is to be trained, and what is made of it."""


def experiments(part: Part, scale: Scale, search: Any = methods.SEARCH) -> list[Experiment]:
    """Those of a part of section 6, with the tuned settings of a search; the ablations belong to the reward."""
    printed, tuned = methods.printed(), methods.tuned(search)
    made: list[Experiment] = []
    if part in ("reward", "all"):
        trained = reward.COMPARISON.cells(scale, printed=printed, tuned=tuned)
        made.append((trained, partial(reward.sections, printed=printed)))
        made.append((ablations.cells(scale, tuned), ablations.sections))
    if part in ("rate", "all"):
        made.append((rate.cells(scale, methods.tuned(search, (methods.RATE_SNAPSHOT,))), rate.sections))
    if part in ("utility", "all"):
        given = utility.printed_settings(printed)
        trained = utility.COMPARISON.cells(scale, printed=given, tuned=tuned)
        made.append((trained, partial(utility.sections, printed=printed)))
    return made


def reproduce(part: Part, scale: str, out: str | Path, tune: bool = False, progress: bool = True) -> Path:
    """Run experiments of the paper's section 6; what the folder has already is not run again.

    Args:
        part: "reward" (6.1 and the ablations), "rate" (6.2), "utility" (6.3) or "all".
        scale: "quick", a small version of everything, or "full".
        out: folder for the report, the figures, the numbers and the outcomes.
        tune: search for the tuned settings first, instead of taking those that are stored.
        progress: show how far it is.

    Returns:
        The path of the report.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if part not in (*SEARCHED, "all"):
        raise unknown("part", part, (*SEARCHED, "all"))
    folder, search = Path(out), methods.SEARCH
    if tune:
        search = folder / "search.csv"
        needed = [it for name in SEARCHED if part in (name, "all") for it in SEARCHED[name]]
        wanted = [
            (tasks()[task], method, snapshot)
            for task, method, snapshots in dict.fromkeys(needed)
            for snapshot in (snapshots if task in SCALES[scale].tasks else ())
        ]
        tuning.search(wanted, search, SCALES[scale], progress)
    chosen = experiments(part, SCALES[scale], search)
    every = {cell.name: cell for needed, _ in chosen for cell in needed.values()}
    done = {name: found for name, cell in every.items() if (found := cells.load(folder, cell)) is not None}

    def train(cell: Cell, logger: Logger) -> None:
        done[cell.name] = cells.measure(cell, logger)
        cells.save(folder, done[cell.name])

    left = [cell for name, cell in every.items() if name not in done]
    run_jobs([Job(cell.name, cell.cost, partial(train, cell)) for cell in left], progress)
    sections: list[Section] = []
    for needed, describe in chosen:
        sections += describe({key: done[cell.name] for key, cell in needed.items()})
    command = f"occupax reproduce {part} --scale {scale}"
    return write_page(folder, command, SCALES[scale].name, sections, [done[name] for name in every], search)


def write_page(
    folder: Path, command: str, scale: str, sections: Sequence[Section], done: Sequence[Done], search: Any
) -> Path:
    """Write everything into a folder; return the path of the page."""
    runs = [
        [cell.name, methods.described(cell.algorithm), f"{cell.episodes:,}", str(cell.seeds), f"{it.seconds:,.0f}"]
        for it in done
        for cell in [it.cell]
    ]
    settings = TextTable(**text("tables", "runs", seed=cells.SEED), rows=runs)
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
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "float64")
    seeds, minutes = sum(it.cell.seeds for it in done), sum(it.seconds for it in done) / 60
    values = {"command": command, "scale": text("scales", scale), "runs": len(done), "versions": used}
    facts = text("facts", **values, seeds=seeds, minutes=minutes)
    words = text("report") | {"facts": list(facts.items()), "conventions": list(text("conventions").items())}
    for kind in ("md", "html"):
        content = page.render(f"experiments.{kind}", **words, claims=claims, badges=BADGES, sections=everything)
        serial.write_text(folder / f"report.{kind}", content)
    return folder / "report.html"


def _search(search: Any, names: Iterable[str]) -> TextTable:
    """What the search found, and what it would have found in the paper's range of step sizes."""
    trials = [it for it in methods.read_search(search) if it.task in set(names) and it.snapshot in methods.SNAPSHOTS]
    low, high = methods.PRINTED_STEP_SIZES
    first = [trial for trial in trials if trial.seeds == tuning.SEEDS]
    within = methods.best_trials(trial for trial in first if low <= trial.settings["step_size"] <= high)
    rows: list[list[str]] = []
    for (task, method), trial in methods.best_trials(trials).items():
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

"""Run the paper's experiments, and write the report: a page, the same as Markdown, figures as files, numbers as CSV."""

import os
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from occupax.analysis import page, plots
from occupax.analysis.charts import csv_lines
from occupax.errors import check_path, unknown
from occupax.experiments import (
    ablations,
    cells,
    convergence,
    episodes_to_gap,
    methods,
    opening,
    rate,
    readings,
    reward,
    tuning,
    utility,
)
from occupax.experiments.cells import Cell, Outcome
from occupax.experiments.figures import table
from occupax.experiments.scale import SCALES, Scale
from occupax.experiments.sections import Section, text
from occupax.experiments.store import SECONDS, Arrays, Unit, run_units
from occupax.experiments.tasks import COVERAGE
from occupax.experiments.tuning import Search, Trial
from occupax.io.files import write_text
from occupax.io.run_folder import check_foreign_files, versions

QUICKLY_COMPILED = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""Of two hundred programs: most of their work is done by the kernels, and compiling them is what
takes the time."""
BADGES = {
    "reproduced": "good",
    "partly": "partly",
    "not reproduced": "bad",
    "cannot tell": "unknown",
}


class Work:
    """Does the work of the experiments, and remembers what was run."""

    def __init__(self, folder: Path, scale: Scale, progress: bool):
        self.folder, self.scale, self.progress = folder, scale, progress
        self.searches: list[tuple[Search, Sequence[Trial]]] = []
        self.cells: dict[str, tuple[Cell, Outcome]] = {}
        self.seconds: dict[str, float] = {}

    def run(self, units: Mapping[Any, Unit]) -> dict[Any, Arrays]:
        """The arrays of units, by the same keys."""
        found = run_units(self.folder, list(units.values()), self.progress)
        self.seconds |= {name: float(it[SECONDS]) for name, it in found.items()}
        return {key: found[unit.name] for key, unit in units.items()}

    def search(self, searches: Mapping[Any, Search]) -> dict[Any, list[Trial]]:
        """The trials of searches."""
        found = {
            key: tuning.read(it)
            for key, it in self.run({key: it.unit for key, it in searches.items()}).items()
        }
        self.searches += [(search, found[key]) for key, search in searches.items()]
        return found

    def train(self, made: Mapping[Any, Cell]) -> dict[Any, Outcome]:
        """The outcomes of cells."""
        found = {key: Outcome(*(it[name] for name in Outcome._fields)) for key, it in
                 self.run({key: cell.unit for key, cell in made.items()}).items()}  # fmt: skip
        self.cells |= {cell.name: (cell, found[key]) for key, cell in made.items()}
        return found


def reward_part(work: Work) -> tuple[list[Section], list[str]]:
    """Section 6.1, and what its readings and controls show."""
    made = reward.cells(work.scale, work.search(reward.searches(work.scale)))
    done, read = work.train(made), work.train(readings.cells(work.scale))
    return [*reward.sections(done), *readings.sections(read, done)], opening.reward_sentences(
        done, read
    )


def rate_part(work: Work) -> tuple[list[Section], list[str]]:
    """Section 6.2, the rate where the theorem applies, and the map of what variance reduction pays."""
    made = rate.cells(work.scale, work.search(rate.searches(work.scale)))
    done, exactly = work.train(made), work.run(rate.controls(made))
    small = convergence.cells(work.scale, work.run(convergence.pilots()))
    converged, controls = work.train(small), work.run(convergence.controls(small))
    times = work.run(episodes_to_gap.units(work.scale))
    told = opening.rate_sentences(done, made, exactly, converged, small, times)
    return [
        *rate.sections(done, made, exactly),
        *convergence.sections(converged, small, controls),
        *episodes_to_gap.sections(times),
    ], told


def utility_part(work: Work) -> tuple[list[Section], list[str]]:
    """Section 6.3, and the ablations of TSIVR-PG."""
    made = utility.cells(work.scale, work.search(utility.searches(work.scale)))
    done = work.train(made)
    varied = work.train(
        ablations.cells(
            work.scale, made["area", COVERAGE, methods.OURS, utility.READINGS[0]].algorithm
        )
    )
    return [*utility.sections(done), *ablations.sections(varied)], opening.utility_sentences(done)


RUN = {"reward": reward_part, "rate": rate_part, "utility": utility_part}


def reproduce(scale: str, out: str | Path, only: str | None = None, progress: bool = True) -> Path:
    """Run experiments of the paper's section 6; what the folder has already is not run again.

    Args:
        scale: "quick", a small version of everything, or "full".
        out: folder for the report, the figures, the numbers and the outcomes.
        only: the one part to run, "reward" (6.1), "rate" (6.2) or "utility" (6.3); by default all,
            in two processes. Several processes may work in the same folder.
        progress: show how far it is.

    Returns:
        The path of the report.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if only is not None and only not in RUN:
        raise unknown("only", only, RUN)
    check_path(out, "out")
    check_foreign_files(Path(out), ("units", "locks"))
    os.environ.setdefault("XLA_FLAGS", QUICKLY_COMPILED)
    work, sections, told = Work(Path(out), SCALES[scale], progress), list[Section](), list[str]()
    if only is None:
        get_context("spawn").Process(
            target=train_parts, args=(scale, out, [*reversed(RUN)]), daemon=True
        ).start()
    for part in RUN if only is None else [only]:
        found, sentences = RUN[part](work)
        sections += found
        told += sentences
    command = f"occupax reproduce --scale {scale}{f' --only {only}' if only else ''}"
    return write_page(work, command, sections, told)


def train_parts(scale: str, out: str | Path, parts: Sequence[str]) -> None:
    """Do the work of some parts, one after the other, beside a process that does so in another order."""
    os.environ.setdefault("XLA_FLAGS", QUICKLY_COMPILED)
    for part in parts:
        RUN[part](Work(Path(out), SCALES[scale], progress=False))


def write_page(work: Work, command: str, sections: Sequence[Section], told: Sequence[str]) -> Path:
    """Write everything into the folder; return the path of the page."""
    folder = work.folder
    everything = [
        *sections,
        Section(**text("sections", "settings"), tables=[_runs(work), _searched(work)]),
    ]
    rows = [
        [it.verdict, it.where, it.says, it.on, it.measured]
        for section in sections
        for it in section.claims
    ]
    claims = table("claims", rows)
    numbers = {f"table-{it.name}": it for section in everything for it in section.tables} | {
        "claims": claims
    }
    for section in everything:
        for figure in section.figures:
            plots.save(figure, folder / "figures")
    for name, it in numbers.items():
        write_text(folder / "numbers" / f"{name}.csv", csv_lines([it.header, *it.rows]))
    write_text(folder / "numbers" / "seeds.csv", csv_lines(_seeds([*work.cells.values()])))
    write_text(folder / "numbers" / "search.csv", csv_lines(_trials(work.searches)))
    used = ", ".join(
        f"{name} {version}" for name, version in versions().items() if name != "float64"
    )
    seeds = sum(len(it.values) for _, it in work.cells.values())
    facts = text("facts", command=command, scale=text("scales", work.scale.name), runs=len(work.cells), seeds=seeds,
                 searches=len(work.searches), minutes=sum(work.seconds.values()) / 60, versions=used)  # fmt: skip
    listed = {name: list(text(name).items()) for name in ("rules", "conventions")}
    words = (
        text("report")
        | listed
        | {"facts": list(facts.items()), "told": told, "changed": text("changed")["after"]}
    )
    for kind in ("md", "html"):
        content = page.render(
            f"experiments.{kind}", **words, claims=claims, badges=BADGES, sections=everything
        )
        write_text(folder / f"report.{kind}", content)
    return folder / "report.html"


def _runs(work: Work) -> Any:
    rows = [
        [cell.name, methods.described(cell.algorithm), f"{cell.episodes:,}", f"{cell.seeds}"]
        for cell, _ in work.cells.values()
    ]
    return table("runs", rows, seed=cells.SEED)


def _searched(work: Work) -> Any:
    """The winners of all searches by both scores, and whether their step size lies between others that were tried."""
    rows: list[list[str]] = []
    for search, trials in work.searches:
        for by in ("area", "end") if "area" in search.rounds else ("end",):
            best = tuning.winner(trials, by)
            kinds = "".join(f", {name}" for name, value in search.changes if value)
            within = "yes" if search.enclosed(trials, best) else "no"
            setting = methods.described(search.algorithm(best.point))
            rows.append(
                [
                    search.task.name,
                    f"{search.method}{kinds}",
                    by,
                    setting,
                    f"{len(trials)}",
                    f"{best.score(by, True):.4g}",
                    within,
                ]
            )
    return table("search", rows, seed=tuning.SEED, confirming=len(tuning.CONFIRMING))


def _trials(searches: Sequence[tuple[Search, Sequence[Trial]]]) -> list[list[str]]:
    rows = [
        ["search", "N", "step_size", "second", "area", "end", "confirmed_area", "confirmed_end"]
    ]
    for search, trials in searches:
        name = search.unit.name
        rows += [[name, *(f"{number:.6g}" for number in (*it.point, *it[1:]))] for it in trials]
    return rows


def _seeds(done: Sequence[tuple[Cell, Outcome]]) -> list[list[str]]:
    rows = [["run", "seed", "area_under_curve", "final", "mixture_area_under_curve"]]
    for cell, it in done:
        columns = zip(it.area(), it.final, cells.mean_height(it.episodes, it.mixture), strict=True)
        rows += [
            [cell.name, str(seed), *(f"{x:.10g}" for x in found)]
            for seed, found in enumerate(columns)
        ]
    return rows

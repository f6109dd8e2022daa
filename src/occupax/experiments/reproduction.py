"""Reproduction: run the paper's experiments, and write the report as HTML, Markdown and CSV."""

import os
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from occupax.analysis import page, plots
from occupax.analysis.charts import csv_lines
from occupax.analysis.text_table import TextTable
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
from occupax.experiments.cells import ExperimentCell, ExperimentResult
from occupax.experiments.scale import SCALES, Scale
from occupax.experiments.sections import Section, table, text
from occupax.experiments.tasks import COVERAGE
from occupax.experiments.tuning import SCORES, HyperparameterSearch, Trial
from occupax.io.files import write_text
from occupax.io.run_folder import check_foreign_files
from occupax.jobs import FOLDERS, SECONDS, Job, JobResult, JobStore, versions_text

FAST_COMPILATION = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""Flags of XLA. The kernels do most of the work, and compiling two hundred programs dominates."""
BADGES = {
    "reproduced": "good",
    "partly": "partly",
    "not reproduced": "bad",
    "cannot tell": "unknown",
}
Key = TypeVar("Key")
Part = tuple[list[Section], list[str]]
"""Sections and opening sentences of a part."""


class Reproduction:
    """Runner of the experiments, which records all runs for the report."""

    def __init__(self, folder: Path, scale: Scale, progress: bool):
        self.folder = folder
        self.scale = scale
        self.searches: list[tuple[HyperparameterSearch, Sequence[Trial]]] = []
        self.cells: dict[str, tuple[ExperimentCell, ExperimentResult]] = {}
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._store = JobStore(folder)

    def run(self, jobs: Mapping[Key, Job]) -> dict[Key, JobResult]:
        """Return the results of jobs by the same keys."""
        results = self._store.run(list(jobs.values()), self._progress)
        for name, result in results.items():
            self.seconds[name] = result.facts[SECONDS]
        return {key: results[job.name] for key, job in jobs.items()}

    def search(self, searches: Mapping[Key, HyperparameterSearch]) -> dict[Key, list[Trial]]:
        """Return the trials of searches by the same keys."""
        results = self.run({key: search.job for key, search in searches.items()})
        trials = {key: tuning.read_trials(result) for key, result in results.items()}
        self.searches += [(search, trials[key]) for key, search in searches.items()]
        return trials

    def train(self, by_key: Mapping[Key, ExperimentCell]) -> dict[Key, ExperimentResult]:
        """Return the results of cells by the same keys."""
        finished = self.run({key: cell.job for key, cell in by_key.items()})
        results: dict[Key, ExperimentResult] = {}
        for key, cell in by_key.items():
            results[key] = ExperimentResult(**finished[key].arrays)
            self.cells[cell.name] = (cell, results[key])
        return results


def reward_part(runner: Reproduction) -> Part:
    """Run section 6.1 with its readings and controls."""
    scale = runner.scale
    trials = runner.search(reward.searches(scale))
    results = runner.train(reward.make_cells(scale, trials))
    read = runner.train(readings.make_cells(scale))
    sections = [*reward.sections(results), *readings.sections(read, results)]
    return sections, opening.reward_sentences(results, read)


def rate_part(runner: Reproduction) -> Part:
    """Run section 6.2, the rate where the theorem applies, and the map of episodes to a gap."""
    scale = runner.scale
    paper_cells = rate.make_cells(scale, runner.search(rate.searches(scale)))
    paper_results = runner.train(paper_cells)
    paper_controls = runner.run(rate.control_jobs(paper_cells))
    small_cells = convergence.make_cells(scale, runner.run(convergence.pilot_jobs()))
    small_results = runner.train(small_cells)
    small_controls = runner.run(convergence.control_jobs(small_cells))
    gap_results = runner.run(episodes_to_gap.jobs(scale))
    sections = [
        *rate.sections(paper_results, paper_cells, paper_controls),
        *convergence.sections(small_results, small_cells, small_controls),
        *episodes_to_gap.sections(gap_results),
    ]
    sentences = [
        *opening.rate_sentences(paper_results, paper_cells, paper_controls),
        *opening.convergence_sentences(small_results, small_cells),
        *opening.gap_sentences(gap_results),
    ]
    return sections, sentences


def utility_part(runner: Reproduction) -> Part:
    """Run section 6.3, and the ablations of TSIVR-PG."""
    scale = runner.scale
    trials = runner.search(utility.searches(scale))
    utility_cells = utility.make_cells(scale, trials)
    results = runner.train(utility_cells)
    tuned = utility_cells["area", COVERAGE, methods.OURS, utility.FREE].algorithm
    ablated = runner.train(ablations.make_cells(scale, tuned))
    sections = [*utility.sections(results), *ablations.sections(ablated)]
    return sections, opening.utility_sentences(results)


PARTS: dict[str, Callable[[Reproduction], Part]] = {
    "reward": reward_part,
    "rate": rate_part,
    "utility": utility_part,
}


def reproduce(scale: str, out: str | Path, only: str | None = None, progress: bool = True) -> Path:
    """Run experiments of the paper's section 6. Finished jobs in the folder are not run again.

    Args:
        scale: "quick", a small version of everything, or "full".
        out: Directory for the report, the figures, the numbers and the results of jobs.
        only: Part to run, "reward" (6.1), "rate" (6.2) or "utility" (6.3). By default all parts run
            in two processes. Several processes may share a directory.
        progress: Whether to show a progress bar.

    Returns:
        The path of the report.

    Raises:
        ValueError: If an argument is invalid, or if `out` holds other files.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if only is not None and only not in PARTS:
        raise unknown("only", only, PARTS)
    check_path(out, "out")
    check_foreign_files(Path(out), FOLDERS)
    os.environ.setdefault("XLA_FLAGS", FAST_COMPILATION)
    command = f"occupax reproduce --scale {scale}"
    selected = list(PARTS)
    if only is None:
        helper = get_context("spawn").Process(
            target=run_parts, args=(scale, out, selected[::-1]), daemon=True
        )
        helper.start()
    else:
        command += f" --only {only}"
        selected = [only]
    runner = Reproduction(Path(out), SCALES[scale], progress)
    sections: list[Section] = []
    sentences: list[str] = []
    for name in selected:
        part_sections, part_sentences = PARTS[name](runner)
        sections += part_sections
        sentences += part_sentences
    return write_report(runner, command, sections, sentences)


def run_parts(scale: str, out: str | Path, names: Sequence[str]) -> None:
    """Run parts in their order, beside a process with another order."""
    os.environ.setdefault("XLA_FLAGS", FAST_COMPILATION)
    for name in names:
        PARTS[name](Reproduction(Path(out), SCALES[scale], progress=False))


def write_report(
    runner: Reproduction, command: str, sections: Sequence[Section], sentences: Sequence[str]
) -> Path:
    """Write pages, figures and numbers, and return the path of the page."""
    folder = runner.folder
    settings = [_runs_table(runner), _searches_table(runner)]
    sections = [*sections, Section(**text("sections", "settings"), tables=settings)]
    claims = _claims_table(sections)
    numbers = {"claims": claims.csv()}
    for section in sections:
        for listed in section.tables:
            numbers[f"table-{listed.name}"] = listed.csv()
        for figure in section.figures:
            plots.save(figure, folder / "figures")
    numbers["seeds"] = csv_lines(_seed_rows(runner))
    numbers["search"] = csv_lines(_trial_rows(runner))
    for name, content in numbers.items():
        write_text(folder / "numbers" / f"{name}.csv", content)
    seeds = sum(len(result.values) for _, result in runner.cells.values())
    facts = text(
        "facts",
        command=command,
        scale=text("scales", runner.scale.name),
        runs=len(runner.cells),
        seeds=seeds,
        searches=len(runner.searches),
        minutes=sum(runner.seconds.values()) / 60,
        versions=versions_text(),
    )
    content = {
        **text("report"),
        "rules": list(text("rules").items()),
        "conventions": list(text("conventions").items()),
        "facts": list(facts.items()),
        "told": sentences,
        "changed": text("changed")["after"],
        "claims": claims,
        "badges": BADGES,
        "sections": sections,
    }
    for kind in ("md", "html"):
        rendered = page.render(f"experiments.{kind}", **content)
        write_text(folder / f"report.{kind}", rendered)
    return folder / "report.html"


def _claims_table(sections: Sequence[Section]) -> TextTable:
    rows = [
        [claim.verdict, claim.where, claim.says, claim.on, claim.measured]
        for section in sections
        for claim in section.claims
    ]
    return table("claims", rows)


def _runs_table(runner: Reproduction) -> TextTable:
    rows: list[list[str]] = []
    for cell, _ in runner.cells.values():
        settings = methods.describe(cell.algorithm)
        rows.append([cell.name, settings, f"{cell.episodes:,}", str(cell.seeds)])
    return table("runs", rows, seed=cells.SEED)


def _searches_table(runner: Reproduction) -> TextTable:
    """Return the winners of all searches, and whether their step size is enclosed."""
    rows: list[list[str]] = []
    for search, trials in runner.searches:
        method = ", ".join([search.method, *search.enabled_changes()])
        for score in SCORES:
            if score not in search.rounds and score != "end":
                continue
            best = tuning.winner(trials, score)
            settings = methods.describe(search.algorithm(best.point))
            is_enclosed = "no"
            if search.is_enclosed(best, trials):
                is_enclosed = "yes"
            confirmed = f"{best.score(score, confirmed=True):.4g}"
            row = [search.task.name, method, score, settings, str(len(trials))]
            rows.append([*row, confirmed, is_enclosed])
    return table("search", rows, seed=tuning.SEED, confirming=len(tuning.CONFIRMING_SEEDS))


def _trial_rows(runner: Reproduction) -> list[list[str]]:
    rows = [["search", "N", "step_size", "second", *Trial._fields[1:]]]
    for search, trials in runner.searches:
        for trial in trials:
            numbers = [f"{number:.6g}" for number in (*trial.point, *trial[1:])]
            rows.append([search.job.name, *numbers])
    return rows


def _seed_rows(runner: Reproduction) -> list[list[str]]:
    rows = [["run", "seed", "area_under_curve", "final", "mixture_area_under_curve"]]
    for cell, result in runner.cells.values():
        columns = (result.area(), result.final, utility.mixture_area(result))
        for seed, numbers in enumerate(zip(*columns, strict=True)):
            rows.append([cell.name, str(seed), *(f"{number:.10g}" for number in numbers)])
    return rows

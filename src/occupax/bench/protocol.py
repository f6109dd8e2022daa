"""Protocol of the benchmark: every algorithm on every problem, in each track."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from occupax.algorithms import Algorithm
from occupax.bench.cells import BenchCell, CellResult, Track, read_cell
from occupax.bench.families import BenchProblem, Half, Suite, problems
from occupax.bench.leaderboard import DEFAULT, Leaderboard
from occupax.bench.references import Reference, read_reference, reference_job, stored_reference
from occupax.errors import check_integer, check_path, shown
from occupax.io.run_folder import check_foreign_files
from occupax.jobs import FOLDERS, Job, JobStore
from occupax.training.setup import as_algorithm

Entries = Mapping[str, Algorithm[Any] | None]
"""Algorithms by label. None stands for the default of `occupax.train`."""


def run(
    out: str | Path,
    algorithms: Entries | None = None,
    suite: Suite = "quick",
    half: Half | Literal["both"] = "both",
    tuned: bool = False,
    fresh: int | None = None,
    seeds: int = 5,
    progress: bool = True,
) -> Leaderboard:
    """Run the benchmark, and write `bench.html`, `bench.md`, figures and numbers.

    Finished cells of problem, algorithm and track in the folder are not run again. Several
    processes may share the work in a folder. Results of the tuned track from earlier commands are
    shown too, where they cover all problems of a half.

    Args:
        out: Directory of the benchmark.
        algorithms: Algorithms by their names on the leaderboard. None stands for the default of
            `occupax.train`, which is the only submission by default.
        suite: "quick" for eight problems, or "full" for all.
        half: Problems of the "development" families, of the "test" families, or "both".
        tuned: Whether to run the tuned track as well: for each problem the best of 16 settings,
            selected on other seeds.
        fresh: Seed of new problems of the same families.
        seeds: Number of seeds, at least 2.
        progress: Whether to show a progress bar.

    Returns:
        The leaderboard with the scores of every run.

    Raises:
        ValueError: If an argument is invalid, or if `out` holds other files.
    """
    entries = _read_entries(algorithms)
    if check_integer("seeds", seeds) < 2:
        raise ValueError(f"seeds must be at least 2 to tell how much they differ, got {seeds}.")
    check_path(out, "out")
    folder = Path(out)
    selected = problems(suite, half, fresh)
    check_foreign_files(folder, FOLDERS)
    cells = _make_cells(entries, selected, "default", seeds)
    if tuned:
        cells += _make_cells(entries, selected, "tuned", seeds)
    if len({cell.name for cell in cells}) < len(cells):
        got = ", ".join(entries)
        raise ValueError(f"algorithms must have names that differ in letters or digits, got {got}.")
    references: dict[str, Reference] = {}
    reference_jobs: dict[str, Job] = {}
    for problem in selected:
        reference = stored_reference(problem)
        if reference is None:
            reference_jobs[problem.name] = reference_job(problem)
        else:
            references[problem.name] = reference
    cell_jobs = [cell.job for cell in cells]
    store = JobStore(folder)
    finished = store.run([*reference_jobs.values(), *cell_jobs], progress)
    for name, job in reference_jobs.items():
        references[name] = read_reference(finished[job.name])
    results = [read_cell(cell, finished[cell.name]) for cell in cells]
    if not tuned:
        results += _earlier_tuned_results(store, entries, selected, seeds)
    command = _command(entries, suite, half, tuned, fresh)
    board = Leaderboard(tuple(results), references, command)
    board.save(folder)
    return board


def _read_entries(algorithms: Any) -> Entries:
    """Return the checked algorithms by label, by default the default of `occupax.train`."""
    if algorithms is None:
        return {DEFAULT: None}
    if not isinstance(algorithms, Mapping):
        got = f"{type(algorithms).__name__} {shown(algorithms)}"
        raise ValueError(f"algorithms must be a dictionary of algorithms by name, got {got}.")
    entries: dict[str, Algorithm[Any] | None] = {}
    for name, algorithm in algorithms.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"algorithms must have names that are not empty, got {shown(name)}.")
        entries[name] = None
        if algorithm is not None:
            entries[name] = as_algorithm(algorithm)
    return entries or {DEFAULT: None}


def _make_cells(
    entries: Entries, selected: Sequence[BenchProblem], track: Track, seeds: int
) -> list[BenchCell]:
    cells: list[BenchCell] = []
    for label, algorithm in entries.items():
        cells += [BenchCell(problem, label, algorithm, track, seeds) for problem in selected]
    return cells


def _earlier_tuned_results(
    store: JobStore, entries: Entries, selected: Sequence[BenchProblem], seeds: int
) -> list[CellResult]:
    """Return stored results of the tuned track, for the halves that miss none."""
    results: list[CellResult] = []
    for half in dict.fromkeys(problem.half for problem in selected):
        members = [problem for problem in selected if problem.half == half]
        cells = _make_cells(entries, members, "tuned", seeds)
        of_half: list[CellResult] = []
        for cell in cells:
            result = store.load(cell.job)
            if result is not None:
                of_half.append(read_cell(cell, result))
        if len(of_half) == len(cells):
            results += of_half
    return results


def _command(entries: Entries, suite: str, half: str, tuned: bool, fresh: int | None) -> str:
    """Return the command that does the same."""
    words = ["occupax bench", f"--suite {suite}"]
    words += [f"--algorithm {label}" for label in entries]
    if half != "both":
        words.append(f"--half {half}")
    if tuned:
        words.append("--tuned")
    if fresh is not None:
        words.append(f"--fresh {fresh}")
    return " ".join([*words, "--out FOLDER"])

"""Run the benchmark: every algorithm on every problem, in each track; what the folder has already is not run again."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from occupax.algorithms import Algorithm
from occupax.bench import cells
from occupax.bench.cells import Cell, Done
from occupax.bench.families import BenchProblem, Half, Suite, problems
from occupax.bench.leaderboard import DEFAULT, Leaderboard
from occupax.bench.references import keep_reference, known_reference
from occupax.errors import check_integer, shown
from occupax.experiments.progress import Job, share_jobs
from occupax.io.run_folder import refuse_others_files
from occupax.training.loggers import Logger
from occupax.training.setup import as_algorithm, refuse_unless_path

SOLVING = 10.0
"""How many seconds it takes, roughly, to work out the best value of a problem."""


def run(
    out: str | Path,
    algorithms: Mapping[str, Algorithm[Any] | None] | None = None,
    suite: Suite = "quick",
    half: Half | Literal["both"] = "both",
    tuned: bool = False,
    fresh: int | None = None,
    seeds: int = 5,
    progress: bool = True,
) -> Leaderboard:
    """Run the benchmark, and write its pages, `bench.html` and `bench.md`, its figures and its numbers.

    Args:
        out: folder for all of it; a cell of problem, algorithm and track that it has already is not
            run again. Several processes may work in the same folder: each leaves to the others what
            they are at. What earlier commands left of the tuned track, for all problems of a half,
            is shown as well.
        algorithms: what is entered, by the name it gets on the leaderboard; None is what
            `occupax.train` takes by default, which is entered if nothing is.
        suite: "quick", eight problems, or "full", all of them.
        half: problems of the "development" families, of the "test" families, or "both".
        tuned: run the tuned track as well: for each problem the best of 16 settings, found on other
            seeds.
        fresh: a seed for new problems of the same families.
        seeds: how many seeds.
        progress: show how far it is.

    Returns:
        The leaderboard, with the scores of every run.
    """
    given = _read_entries(algorithms)
    entered = {
        name: None if algorithm is None else as_algorithm(algorithm)
        for name, algorithm in given.items()
    }
    if check_integer("seeds", seeds) < 2:
        raise ValueError(f"seeds must be at least 2 to tell how much they differ, got {seeds}.")
    refuse_unless_path(out, "out")
    folder, chosen = Path(out), problems(suite, half, fresh)
    refuse_others_files(folder, ("cells", "optima", "locks"))
    tracks: tuple[cells.Track, ...] = ("default", "tuned") if tuned else ("default",)
    every = [
        Cell(it, *entry, track, seeds)
        for track in tracks
        for entry in entered.items()
        for it in chosen
    ]
    if len({cell.name for cell in every}) < len(every):
        raise ValueError(
            f"algorithms must have names that differ in letters or digits, got {', '.join(entered)}."
        )
    optima = folder / "optima"
    references = {
        it.name: found for it in chosen if (found := known_reference(it, optima)) is not None
    }
    done = {
        cell.name: found
        for cell in every
        if (found := cells.load(folder / "cells", cell)) is not None
    }

    def solve(it: BenchProblem, _: Logger) -> None:
        references[it.name] = known_reference(it, optima) or keep_reference(it, optima)

    def train(cell: Cell, logger: Logger) -> None:
        done[cell.name] = cells.load(folder / "cells", cell) or cells.keep(
            folder / "cells", cell, logger
        )

    unknown = [it for it in chosen if it.name not in references]
    jobs = [Job(f"the best value of {it.name}", SOLVING, partial(solve, it)) for it in unknown]
    jobs += [
        Job(f"{cell.label} ({cell.track}) on {cell.problem.name}", cell.cost, partial(train, cell))
        for cell in every
        if cell.name not in done
    ]
    share_jobs(jobs, folder / "locks", progress)
    kept = [] if tuned else _kept(folder / "cells", entered, chosen, seeds)
    command = _command(entered, suite, half, tuned, fresh)
    board = Leaderboard((*(done[cell.name] for cell in every), *kept), references, command)
    board.save(folder)
    return board


def _read_entries(algorithms: Any) -> Mapping[str, Any]:
    """Return the algorithms that are entered, by name; the default of `occupax.train` if there are none."""
    if algorithms is None:
        return {DEFAULT: None}
    if not isinstance(algorithms, Mapping):
        got = f"{type(algorithms).__name__} {shown(algorithms)}"
        raise ValueError(f"algorithms must be a dictionary of algorithms by name, got {got}.")
    for name in algorithms:
        if not isinstance(name, str) or not name:
            raise ValueError(f"algorithms must have names that are not empty, got {shown(name)}.")
    return algorithms or {DEFAULT: None}


def _kept(
    folder: Path,
    entered: Mapping[str, Algorithm[Any] | None],
    chosen: Sequence[BenchProblem],
    seeds: int,
) -> list[Done]:
    """What earlier commands left of the tuned track: the halves of which no algorithm and no problem is missing."""
    kept: list[Done] = []
    for half in dict.fromkeys(it.half for it in chosen):
        there = [
            Cell(it, *entry, "tuned", seeds)
            for entry in entered.items()
            for it in chosen
            if it.half == half
        ]
        found = [done for cell in there if (done := cells.load(folder, cell)) is not None]
        kept += found if len(found) == len(there) else []
    return kept


def _command(
    entered: Mapping[str, Any], suite: str, half: str, tuned: bool, fresh: int | None
) -> str:
    """The command that does the same."""
    names = "".join(f" --algorithm {name}" for name in entered)
    halves = "" if half == "both" else f" --half {half}"
    again = "" if fresh is None else f" --fresh {fresh}"
    return f"occupax bench --suite {suite}{names}{halves}{' --tuned' if tuned else ''}{again} --out FOLDER"

"""Commands `report` and `reproduce`: pages about training runs and the paper's experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

import occupax as ox
from occupax.cli.options import Flag, shown
from occupax.cli.output import INTERRUPTED, print_line


def report(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, shown("", "RUN [RUN ...]")],
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("report.html"),
    trust: Flag = False,
) -> None:
    """Write a page about training runs: each run, and comparisons.

    Example: occupax report runs/a runs/b --out comparison.html

    Args:
        runs: directories of finished runs of occupax train --out.
        out: page to write. It needs no other file.
        trust: import the modules of the environments that the directories name.
    """
    # slow: imports the charts
    from occupax.analysis.report import write_report

    if not runs:
        raise ValueError("RUN must be given: the folder of a finished run, for example runs/a.")
    results = [ox.load_result(run, trust=trust) for run in runs]
    write_report(list(zip(run_names(runs), results, strict=True)), out)
    print_line(f"report: {out}")


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest distinct names of folders: each with its last parent directories."""
    paths = [folder.resolve().parts[1:] for folder in folders]
    longest = max(map(len, paths), default=0)
    for length in range(1, longest + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise ValueError(f"RUN must name different folders, got {folder} twice.")
    return []


def reproduce(
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")],
    scale: Literal["quick", "full"] = "quick",
    only: Annotated[
        Literal["reward", "rate", "utility"] | None, shown("all", "{reward,rate,utility}")
    ] = None,
    progress: Annotated[bool, shown("")] = True,
) -> None:
    """Run the experiments of section 6 of the paper, and test each claim.

    Example: occupax reproduce --scale quick --out runs/reproduction

    After Ctrl-C the same command continues without repeating finished jobs. Without --only two
    processes share the work.

    Args:
        out: directory for the report, the figures, and all numbers as CSV.
        scale: quick takes two or three minutes; full takes up to an hour on two processes.
        only: reward (6.1), rate (6.2) or utility (6.3).
        progress: disable the progress bar.
    """
    # slow: imports every experiment
    from occupax.experiments import reproduce as run

    try:
        page = run(scale, out, only, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None
    print_line(f"report: {page}")

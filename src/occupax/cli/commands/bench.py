"""Command `bench`: scores of algorithms on problems with a reference optimum."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import occupax as ox
from occupax.algorithms import Algorithm
from occupax.cli import names
from occupax.cli.options import Flag, number, shown
from occupax.cli.output import INTERRUPTED, print_line, print_table

COLUMNS = ("algorithm", "track", "mean over training", "in the end")
"""Columns of the leaderboard that the command prints."""


def bench(
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")],
    suite: Literal["quick", "full"] = "quick",
    algorithm: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, shown("ox.train", "NAME")
    ] = (),
    tuned: Flag = False,
    half: Literal["development", "test", "both"] = "both",
    fresh: Annotated[int | None, number(int), shown("the problems that all have")] = None,
    seeds: Annotated[int, number(int)] = 5,
    progress: Annotated[bool, shown("")] = True,
) -> None:
    """Run algorithms on problems with a reference optimum, and write a leaderboard.

    Example: occupax bench --algorithm tsivr-pg --algorithm my_module:MyAlgorithm --out runs/bench

    An algorithm is a name of `occupax list`, ox.train for the default of each problem, or
    module:Class. The module is installed or a file in the current directory.

    After Ctrl-C the same command continues without repeating finished jobs. Two processes with the
    same command share the work.

    Args:
        out: directory for the leaderboard (bench.html, bench.md), the figures and CSV files.
        suite: quick has eight problems and takes about three minutes. full has all problems.
        algorithm: algorithm to run. Repeat the option for several algorithms.
        tuned: also run the best of 16 configurations for each problem.
        half: the families for development, the families for testing, or both.
        fresh: seed of new problems of the same families.
        seeds: number of seeds.
        progress: disable the progress bar.
    """
    submissions: dict[str, Algorithm[Any] | None] = {}
    for name in algorithm:
        submissions[name] = None
        if name != ox.bench.DEFAULT:
            submissions[name] = names.algorithm(name)
    try:
        board = ox.bench.run(out, submissions or None, suite, half, tuned, fresh, seeds, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None
    table = board.table()
    rows: list[dict[str, Any]] = []
    for cells in table.rows:
        row = dict(zip(table.header, cells, strict=True))
        rows.append({name: row[name] for name in COLUMNS})
    print_table(table.caption, rows)
    print_line(f"leaderboard: {out / 'bench.html'}")

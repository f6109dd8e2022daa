"""`occupax bench`: how far algorithms get on problems whose optimum is known."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import occupax as ox
from occupax.algorithms import Algorithm
from occupax.cli.options import Flag, number, shown
from occupax.cli.output import print_line, print_table
from occupax.envs.lookup import find
from occupax.training.setup import as_algorithm


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
    """Run algorithms on problems with a known optimum, and write a leaderboard.

    Example: occupax bench --algorithm tsivr-pg --algorithm my_module:MyAlgorithm --out runs/bench

    An algorithm is a name, see `occupax list`; ox.train for its default; or module:Class, where the
    module is installed or a file in the current directory.

    After Ctrl-C the same command continues without repeating finished jobs. Two processes with the
    same command share the work.

    Args:
        out: directory for the leaderboard (bench.html, bench.md), the figures and CSV files.
        suite: quick has eight problems and takes about three minutes; full has all.
        algorithm: algorithm; repeatable.
        tuned: also run the best of 16 configurations for each problem.
        half: the families for development, the families for testing, or both.
        fresh: seed of new problems of the same families.
        seeds: number of seeds.
        progress: disable the progress bar.
    """
    entered = {name: _make(name) for name in algorithm} or None
    try:
        board = ox.bench.run(out, entered, suite, half, tuned, fresh, seeds, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command goes on with what is left.") from None
    table = board.table()
    columns = ("algorithm", "track", "mean over training", "in the end")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    print_table(table.caption, [{name: row[name] for name in columns} for row in rows])
    print_line(f"leaderboard: {out / 'bench.html'}")


def _make(name: str) -> Algorithm[Any] | None:
    """Return the algorithm of a name or a class, None for the default of `train`."""
    if name == ox.bench.DEFAULT:
        return None
    if ":" not in name:
        return as_algorithm(name)
    found = find(name)
    try:
        made = found() if isinstance(found, type) else found
    except TypeError as error:
        raise ValueError(f"{name} must have a default for every setting: {error}") from error
    return as_algorithm(made)

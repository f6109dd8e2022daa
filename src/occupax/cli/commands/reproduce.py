"""`occupax reproduce`."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from occupax.cli.choices import shown
from occupax.cli.output import print_line


def reproduce(
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")],
    part: Annotated[Literal["reward", "rate", "utility", "all"], tyro.conf.Positional] = "all",
    scale: Literal["quick", "full"] = "quick",
    tune: bool = False,
    progress: Annotated[bool, shown("")] = True,
) -> None:
    """Run the experiments of the paper's section 6, and judge each of its claims.

    Example: occupax reproduce all --scale quick --out runs/reproduction

    Stopped by Ctrl-C, the same command goes on; what is done is not run again.

    Args:
        out: folder for the report, the figures, and all numbers as CSV.
        part: reward (6.1 and the ablations), rate (6.2), utility (6.3), or all of them.
        scale: quick is a small version that takes two or three minutes; full takes up to half an hour.
        tune: search for the tuned settings first, which takes about an hour at full scale; by default the stored ones.
        progress: show no progress.
    """
    from occupax.experiments import reproduce as run

    try:
        print_line(f"report: {run(part, scale, out, tune, progress)}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command goes on with what is left.") from None

"""`occupax sweep`."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

import occupax as ox
from occupax.cli import names, settings
from occupax.cli.choices import Choices, build, number, shown
from occupax.cli.output import UNSAVED, print_json, print_line, print_table


def sweep(
    choices: Annotated[Choices, tyro.conf.arg(name="")],
    over: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,VALUE ...", help_behavior_hint="(required)")],
    episodes: Annotated[int, number(int)],
    out: Annotated[Path | None, shown("nothing is saved", "FOLDER")] = None,
    resume: bool = False,
    workers: Annotated[str | None, shown("this process", "N|ray|ray:N|ray://HOST:PORT")] = None,
    progress: Annotated[bool, shown("")] = True,
    json: bool = False,
) -> None:
    """Train with every combination of some settings, and rank them by what the policies are worth.

    Example: occupax sweep FrozenLake8x8-v1 --over step_size=0.01,0.1 radius=0.1,0.2 --episodes 5000 --seeds 3

    Args:
        choices: what to train.
        over: values to try for settings of the algorithm, such as step_size=0.01,0.1 radius=0.1,0.2.
        episodes: trajectories each seed may sample with each combination.
        out: folder for what `occupax train` would save of each combination.
        resume: go on with the sweep in the folder, which the same command began.
        workers: who trains: N processes (for environments of Gymnasium), or Ray, where a combination is a task.
        progress: show no progress.
        json: print JSON instead of a table.
    """
    training = build(choices)
    grid = {
        name: [settings.read(name, text, {"": training.algorithm}) for text in texts]
        for name, texts in settings.parse_lists(over).items()
    }
    if not grid:
        raise ValueError("--over must name values to try, for example --over step_size=0.01,0.1.")
    if not json:
        print_line(training.title)
    try:
        done = ox.sweep(
            training.problem,
            training.algorithm,
            grid,
            episodes,
            out=out,
            resume=resume,
            sampler="auto" if workers is None else names.sampler(workers),
            progress=progress and not json,
            **training.options,
        )
    except KeyboardInterrupt:
        onward = "nothing was saved (--out)" if out is None else "go on by repeating the command with --resume"
        raise KeyboardInterrupt(f"stopped; {onward}.") from None
    points = _ranking(done, out)
    given = settings.parse(choices.given)
    best = " ".join(f"{name}={value}" for name, value in {**given, **points[0]["settings"]}.items())
    if json:
        print_json({"episodes": episodes, "points": points, "best": best})
    else:
        _print_text(points, best, out)
    if all(point["stopped"] == len(done.results[0].seeds) for point in points):
        raise RuntimeError("every seed was stopped, whatever the settings: lower step_size or radius.")


def _ranking(done: ox.Sweep, out: Path | None) -> list[dict[str, Any]]:
    """What there is to say about each point, the best first."""
    scores = done.scores
    return [
        {
            "settings": done.points[i],
            "score": float(scores[i]),
            "stopped": sum(status != "finished" for status in done.results[i].status),
            "folder": None if out is None else str(out / f"point-{i}"),
        }
        for i in np.argsort(-scores, kind="stable")
    ]


def _print_text(points: list[dict[str, Any]], best: str, out: Path | None) -> None:
    rows = [
        {"score": point["score"], **{name: str(value) for name, value in point["settings"].items()}}
        | {"stopped seeds": point["stopped"]}
        | ({} if out is None else {"folder": Path(point["folder"]).name})
        for point in points
    ]
    print_table("score: the mean utility of the trained policies", rows)
    print_line(f"best: --set {best}")
    print_line(UNSAVED if out is None else f"saved: {out}")

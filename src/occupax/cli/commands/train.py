"""`occupax train`."""

from pathlib import Path
from typing import Annotated

import tyro

import occupax as ox
from occupax.cli import names
from occupax.cli.choices import Choices, TrainingArguments, build, number, shown
from occupax.cli.output import UNSAVED, print_json, print_line, print_table
from occupax.cli.resume import restore
from occupax.cli.summary import NUMBERS, Summary, save_pictures, summarise

HEADINGS = {"gap": "certified gap", "return": "last return"}


def train(
    choices: Annotated[Choices, tyro.conf.arg(name="")],
    episodes: Annotated[int | None, number(int), shown("")] = None,
    out: Annotated[Path | None, shown("nothing is saved", "FOLDER")] = None,
    resume: bool = False,
    workers: Annotated[str | None, shown("this process", "N|ray|ray:N|ray://HOST:PORT")] = None,
    exact: bool = False,
    tensorboard: Annotated[Path | None, shown("none", "FOLDER")] = None,
    progress: Annotated[bool, shown("")] = True,
    json: bool = False,
) -> None:
    """Train a policy for each seed, and show what it is worth.

    Example: occupax train FrozenLake8x8-v1 --utility log-coverage --episodes 50000 --seeds 10 --out runs/a

    Stopped by Ctrl-C, or to be made longer: occupax train --out runs/a --resume --episodes 100000

    Args:
        choices: what to train.
        episodes: trajectories each seed may sample; with --resume by default as many as before.
        out: folder for configuration, metrics, checkpoints, policies and report.
        resume: go on with the run in the folder; it says what is trained, and so ENV and settings may be left out.
        workers: who samples: N processes (for environments of Gymnasium), all cores by Ray, N workers by Ray, or a Ray
            cluster; or the name of a sampler: jax, kernel, host or ray. With the same random numbers, which all but jax
            and kernel share, the results are the same but for rounding.
        exact: record exact utility and certified gap too, which takes time at every record; tabular only.
        tensorboard: folder for TensorBoard.
        progress: show no progress.
        json: print JSON instead of a table.
    """
    training, episodes = _arguments(choices, episodes, out, resume)
    if exact:
        training.options["exact"] = True
    if workers is not None:
        training.options["sampler"] = names.sampler(workers)
    callbacks = [] if tensorboard is None else [ox.training.TensorBoard(tensorboard)]
    if not json:
        print_line(training.title)
    result = ox.train(
        training.problem,
        training.algorithm,
        episodes,
        callbacks=callbacks,
        out=out,
        resume=resume,
        progress=progress and not json,
        **training.options,
    )
    summary = summarise(training.problem, result)
    if not json:
        _print_text(result, summary)
    report = None if out is None else save_pictures(choices.env or str(out), result, out)
    if json:
        _print_json(training, result, summary, report)
    else:
        print_line(UNSAVED if report is None else f"report: {report}")
    if all(status != "finished" for status in result.status):
        raise RuntimeError("every seed was stopped: lower step_size or radius.")


def _arguments(choices: Choices, episodes: int | None, out: Path | None, resume: bool) -> tuple[TrainingArguments, int]:
    """What to train and for how long, from the options or from the folder."""
    if choices.env is None and resume and out is not None:
        if choices.options():
            given = ", ".join(choices.options())
            raise ValueError(f"the folder says what is resumed: leave out {given}, or give all of it with ENV.")
        training, before = restore(out)
        return training, before if episodes is None else episodes
    if choices.env is None:
        raise ValueError("ENV must be given, or --out FOLDER --resume to go on with the run in a folder.")
    if episodes is None:
        raise ValueError("--episodes must be given, for example --episodes 50000.")
    return build(choices), episodes


def _print_json(training: TrainingArguments, result: ox.Result, summary: Summary, report: Path | None) -> None:
    print_json(
        {
            "discount": training.problem.discount,
            "horizon": training.problem.horizon,
            "termination": training.problem.termination,
            "episodes": int(result.episodes[-1]),
            "seconds": result.seconds,
            "seeds": summary.rows,
            "median": summary.median,
            "certificate": None if summary.certificate is None else summary.certificate._asdict(),
            "report": None if report is None else str(report),
        }
    )


def _print_text(result: ox.Result, summary: Summary) -> None:
    several = len(summary.rows) > 1
    rows = [*summary.rows, *([{"seed": "median", **summary.median, "status": ""}] if several else [])]
    known = [name for name in NUMBERS if any(row[name] is not None for row in rows)]
    title = f"after {int(result.episodes[-1]):,} episodes a seed, in {result.seconds:,.1f} s"
    table = [{HEADINGS.get(name, name): row[name] for name in ("seed", *known, "status")} for row in rows]
    print_table(title, table, last_apart=several)
    if summary.verdict:
        print_line(summary.verdict)

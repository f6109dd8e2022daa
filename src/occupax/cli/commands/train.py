"""`occupax train`."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

import occupax as ox
from occupax.cli import names
from occupax.cli.choices import Choices, TrainingArguments, build, number, restore, shown
from occupax.cli.output import UNSAVED, print_json, print_line, print_table

NUMBERS = ("utility", "gap", "return")
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
    training.options.update(out=out, resume=resume, progress=progress and not json)
    if exact:
        training.options["exact"] = True
    if workers is not None:
        training.options["sampler"] = names.sampler(workers)
    callbacks = [] if tensorboard is None else [ox.training.TensorBoard(tensorboard)]
    if not json:
        print_line(training.title)
    result = ox.train(training.problem, training.algorithm, episodes, callbacks=callbacks, **training.options)
    summary = summarise(training.problem, result)
    if not json:
        _print_text(result, summary)
    report = None if out is None else _write_report(choices.env or str(out), result, out)
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


class Summary(NamedTuple):
    """What a finished run is worth: the numbers of every seed, their medians, and what is certified."""

    rows: list[dict[str, Any]]
    median: dict[str, float | None]
    certificate: ox.exact.Certificate | None
    """The one of the best seed, where there are any."""
    verdict: str
    """The certificate as a sentence, or why there is none."""


def summarise(problem: ox.Problem, result: ox.Result) -> Summary:
    """Look at the policies of all seeds: exactly, where there is a table."""
    certificates: list[ox.exact.Certificate] = []
    verdict = ""
    if isinstance(problem.env, ox.TabularMDP):
        try:
            certificates = [result.certificate(seed) for seed in result.seeds]
        except ValueError as error:
            verdict = f"not certified: {error}"
    columns: dict[str, list[Any]] = {
        "seed": list(result.seeds),
        "utility": [float(utility) for utility in result.utilities],
        "gap": [it.gap for it in certificates] or [None] * len(result.seeds),
        "return": [float(last) if np.isfinite(last) else None for last in result.metrics["return"][:, -1]],
        "status": list(result.status),
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    known = {name: [number for number in columns[name] if number is not None] for name in NUMBERS}
    median = {name: float(np.median(numbers)) if numbers else None for name, numbers in known.items()}
    if not certificates:
        return Summary(rows, median, None, verdict)
    seed, best = max(zip(result.seeds, certificates, strict=True), key=lambda pair: pair[1].value)
    verdict = f"certified: no policy is better than that of seed {seed}, {best.value:.6g}, by more than {best.gap:.3g}"
    return Summary(rows, median, best, verdict)


def _write_report(name: str, result: ox.Result, folder: Path) -> Path:
    from occupax.analysis.report import write_report

    result.plot().savefig(folder / "plot.png")
    write_report([(name, result)], folder / "report.html")
    return folder / "report.html"


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

"""`occupax train` and `occupax sweep`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

import occupax as ox
from occupax.algorithms import Budget
from occupax.analysis.verdict import finding_lines, has_reward, last_entries, share_text, short
from occupax.api.sweeps import NOTHING_LEARNED
from occupax.cli import names, settings
from occupax.cli.choices import (
    Choices,
    TrainingArguments,
    build,
    check_settings,
    restore,
)
from occupax.cli.grid import read_values, set_text, value_text
from occupax.cli.options import FOLDER, Flag, number, shown
from occupax.cli.output import UNSAVED, print_json, print_line, print_table

NUMBERS = ("utility", "gap", "return")


def train(
    choices: Annotated[Choices, tyro.conf.arg(name="")],
    episodes: Annotated[int | None, number(int), shown("")] = None,
    steps: Annotated[int | None, number(int), shown("")] = None,
    out: Annotated[Path | None, FOLDER, shown("nothing is saved", "FOLDER")] = None,
    resume: Flag = False,
    workers: Annotated[str | None, shown("this process", "N|ray|ray:N|ray://HOST:PORT")] = None,
    exact: Flag = False,
    tensorboard: Annotated[Path | None, shown("none", "FOLDER")] = None,
    progress: Annotated[bool, shown("")] = True,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Train a policy for each seed, and print its utility.

    Example: occupax train FrozenLake8x8-v1 --utility log-coverage --episodes 50000 --out runs/a

    Resume or extend a run: occupax train --out runs/a --resume --episodes 100000

    The sampler is jax, kernel, host or ray; a number N of processes for Gymnasium environments; or
    Ray on all cores, with N workers, or on a cluster. Results agree up to rounding, except that jax
    and kernel draw different random numbers.

    Args:
        choices: problem and algorithm.
        episodes: trajectories of each seed; with --resume, by default as many as before.
        steps: environment steps of each seed, instead of --episodes. The last batch is completed.
        out: directory for configuration, metrics, checkpoints, policies and report.
        resume: continue the run in the directory. ENV and settings may be left out.
        workers: sampler.
        exact: also log the exact utility and certified gap (tabular only; slow).
        tensorboard: directory for TensorBoard.
        progress: disable the progress bar.
        trust: with --resume, import the module of the environment that the directory names.
        json: print JSON instead of a table.
    """
    given = Budget(episodes, steps)
    training, budget = _arguments(choices, given, out, resume, trust)
    training.options.update(out=out, resume=resume, progress=progress and not json)
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
        **budget._asdict(),
        callbacks=callbacks,
        **training.options,
    )
    summary, verdict = summarise(training.problem, result)
    done = int(result.episodes[-1])
    if not json:
        print_line(result.headline, bold=True)
        for line in finding_lines(result.diagnosis):
            print_line(line)
        title = f"{_used_text(budget, result)} per seed, {result.seconds:,.1f} s"
        _print_seeds(title, result, summary["median"])
        if verdict:
            print_line(verdict)
    report = None if out is None else _report_in(out)
    if json:
        time = {
            name: getattr(training.problem, name) for name in ("discount", "horizon", "termination")
        }
        print_json(
            {
                **time,
                "episodes": done,
                "steps": result.steps[:, -1].tolist(),
                "seconds": result.seconds,
                **summary,
                **_judged(result),
                "report": report,
            }
        )
    else:
        print_line(_files_text(out, report))
    if all(status != "finished" for status in result.status):
        raise RuntimeError("every seed was stopped: lower step_size or radius.")
    if out is not None and report is None:
        sys.exit(1)  # a warning of the training has said why


def _used_text(budget: Budget, result: ox.Result) -> str:
    """Return the sampled episodes, or the median of the steps, in the unit of the budget."""
    if budget.steps is None:
        return f"{result.episodes[-1]:,} episodes"
    return f"{int(np.median(result.steps[:, -1])):,} steps"


def _report_in(out: Path) -> str | None:
    """Return the path of the report of the run in a folder, None if there is no report."""
    from occupax.analysis.report import REPORT

    path = out / REPORT
    return str(path) if path.exists() else None


def _files_text(out: Path | None, report: str | None) -> str:
    """Return the last line of a training: the file to open, or else the folder of the run."""
    if out is None:
        return UNSAVED
    return f"saved: {out}" if report is None else f"report: {report}"


def _judged(result: ox.Result) -> dict[str, Any]:
    """How good the policies are, and what went wrong."""
    others = result.references
    return {
        "headline": result.headline,
        "references": None if others is None else asdict(others),
        "diagnosis": [finding._asdict() for finding in result.diagnosis],
    }


def _arguments(
    choices: Choices, budget: Budget, out: Path | None, resume: bool, trust: bool
) -> tuple[TrainingArguments, Budget]:
    if choices.env is None and resume and out is not None:
        if used := choices.used_options():
            raise ValueError(
                f"the folder says what is resumed: leave out {', '.join(used)}, "
                "or give all of it with ENV."
            )
        training, before = restore(out, trust)
        return training, before if budget == Budget() else budget
    if choices.env is None:
        raise ValueError(
            "ENV must be given, or --out FOLDER --resume to go on with the run in a folder."
        )
    _check_one_budget(budget)
    return build(choices), budget


def _check_one_budget(budget: Budget) -> None:
    """Raise ValueError unless exactly one of --episodes and --steps is given."""
    if budget == Budget():
        raise ValueError(
            "--episodes or --steps must be given, for example --episodes 50000 or --steps 1000000."
        )
    if None not in budget:
        raise ValueError("--episodes and --steps must not be given together. Leave out one.")


def summarise(problem: ox.Problem, result: ox.Result) -> tuple[dict[str, Any], str]:
    """What the policies of all seeds are worth: exactly, where there is a table.

    Returns the numbers of all seeds, their medians and the certificate of the best; and a sentence
    on the certificate.
    """
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
        "return": _last_returns(result),
        "status": list(result.status),
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    known = {name: [number for number in columns[name] if number is not None] for name in NUMBERS}
    median = {
        name: float(np.median(numbers)) if numbers else None for name, numbers in known.items()
    }
    summary: dict[str, Any] = {"seeds": rows, "median": median, "certificate": None}
    if not certificates:
        return summary, verdict
    seed, best = max(zip(result.seeds, certificates, strict=True), key=lambda pair: pair[1].value)
    verdict = f"seed {seed} is within {short(best.gap)} of optimal (certified)"
    return summary | {"certificate": best._asdict()}, verdict


def _print_seeds(title: str, result: ox.Result, median: dict[str, float | None]) -> None:
    """Print the table of the seeds: utility, normalised score, constraints, return, status."""
    columns: dict[str, list[Any]] = {
        "seed": list(result.seeds),
        "utility": result.utilities.tolist(),
    }
    references = result.references
    if references is not None and np.isfinite(references.way):
        scores = [references.share(utility) for utility in result.utilities]
        columns["of the way"] = [share_text(score) for score in scores]
    for name, excesses in result.excesses.items():
        columns[f"slack of {name}"] = (-excesses).tolist()
    problem = result.problem
    if problem is not None and has_reward(problem.objective):
        columns["return"] = _last_returns(result)
    columns["status"] = list(result.status)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    is_several = len(rows) > 1
    if is_several:
        last = {"seed": "median", "utility": median["utility"]}
        rows.append(dict.fromkeys(columns, "") | last)
    print_table(title, rows, last_apart=is_several)


def _last_returns(result: ox.Result) -> list[float | None]:
    """Return the undiscounted return of the last log entry of each seed, None if not finite."""
    last = last_entries(result, "return")
    return [float(value) if np.isfinite(value) else None for value in last]


def sweep(
    choices: Annotated[Choices, tyro.conf.arg(name="")],
    over: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME=VALUE,VALUE ...", help_behavior_hint="(required)"),
    ],
    episodes: Annotated[int | None, number(int), shown("")] = None,
    steps: Annotated[int | None, number(int), shown("")] = None,
    out: Annotated[Path | None, FOLDER, shown("nothing is saved", "FOLDER")] = None,
    resume: Flag = False,
    workers: Annotated[str | None, shown("this process", "N|ray|ray:N|ray://HOST:PORT")] = None,
    progress: Annotated[bool, shown("")] = True,
    json: Flag = False,
) -> None:
    """Train with every combination of hyperparameters and rank them by mean utility.

    Example: occupax sweep FrozenLake8x8-v1 --over step_size=0.01,0.1 --episodes 5000 --seeds 3

    Values are those of hyperparameters of the algorithm, the policy or the problem, such as
    `step_size=0.01,0.1 policy.hidden=32,64x64 discount=0.9,0.99`. Scores use --discount and
    --horizon. Workers are N processes for Gymnasium environments, or Ray with one task for each
    combination.

    Args:
        choices: problem and algorithm.
        over: values to try, such as step_size=0.01,0.1.
        episodes: trajectories of each seed with each combination.
        steps: environment steps of each seed with each combination, instead of --episodes.
        out: directory with a run of each combination.
        resume: continue the sweep in the directory, with the same options.
        workers: workers that train.
        progress: disable the progress bar.
        json: print JSON instead of a table.
    """
    budget = Budget(episodes, steps)
    _check_one_budget(budget)
    training = build(choices)
    texts_of = settings.parse_lists(over)
    check_settings(training.algorithm, choices.algorithm, texts_of)
    grid = read_values(training, texts_of)
    if not grid:
        raise ValueError("--over must name values to try, for example --over step_size=0.01,0.1.")
    if not json:
        print_line(training.title)
    sampler = "auto" if workers is None else names.sampler(workers)
    training.options.update(out=out, resume=resume, progress=progress and not json, sampler=sampler)
    try:
        done = ox.sweep(
            training.problem, training.algorithm, grid, **budget._asdict(), **training.options
        )
    except KeyboardInterrupt:
        onward = (
            "nothing was saved (--out)"
            if out is None
            else "go on by repeating the command with --resume"
        )
        raise KeyboardInterrupt(f"stopped; {onward}.") from None
    scores = done.scores
    points: list[dict[str, Any]] = [
        {
            "settings": done.points[i],
            "score": float(scores[i]),
            "learned": bool(done.learned[i]),
            "stopped": sum(status != "finished" for status in done.results[i].status),
            "folder": None if out is None else str(out / f"point-{i}"),
        }
        for i in np.argsort(-scores, kind="stable")
    ]
    given = choices.settings()
    best = None
    if done.learned.any():
        best = set_text({**given, **done.points[done.best]})
    if json:
        print_json({**budget._asdict(), "points": points, "best": best})
    else:
        _print_points(points)
        print_line(f"{NOTHING_LEARNED}." if best is None else f"best: --set {best}")
        print_line(UNSAVED if out is None else f"saved: {out}")
    if all(point["stopped"] == len(done.results[0].seeds) for point in points):
        raise RuntimeError(
            "every seed was stopped, whatever the settings: lower step_size or radius."
        )


def _print_points(points: list[dict[str, Any]]) -> None:
    rows = [
        {
            "score": point["score"],
            **{name: value_text(value) for name, value in point["settings"].items()},
        }
        | {"learned": "yes" if point["learned"] else "nothing", "stopped seeds": point["stopped"]}
        | ({} if point["folder"] is None else {"folder": Path(point["folder"]).name})
        for point in points
    ]
    print_table("score: the mean utility of the trained policies", rows)

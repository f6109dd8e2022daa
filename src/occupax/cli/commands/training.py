"""Commands `train` and `sweep`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

import occupax as ox
from occupax.algorithms import Budget
from occupax.analysis.sweep_page import SWEEP_PAGE, SweepRow, write_sweep_page
from occupax.analysis.verdict import finding_lines, has_reward, last_entries, share_text, short
from occupax.api.sweeps import NOTHING_LEARNED
from occupax.cli import names, settings
from occupax.cli.choices import (
    Choices,
    TrainingArguments,
    build,
    check_settings,
    problem_settings,
    restore,
)
from occupax.cli.grid import read_values, set_text, value_text
from occupax.cli.options import FOLDER, Flag, number, shown
from occupax.cli.output import UNSAVED, print_json, print_line, print_table

ALL_DIVERGED = "all seeds diverged (non-finite values): lower step_size or radius."


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

    The sampler is jax, kernel, host or ray, or a number N of processes for Gymnasium environments,
    or Ray on all cores, with N workers, or on a cluster. Results agree up to rounding, except that
    jax and kernel use different random numbers.

    Args:
        choices: problem and algorithm.
        episodes: trajectories of each seed. With --resume, default: that of the run.
        steps: environment steps of each seed, instead of --episodes. The last batch is completed.
        out: directory for configuration, metrics, checkpoints, policies and report.
        resume: continue the run in the directory. ENV and settings may be left out.
        workers: sampler.
        exact: also log the exact utility and certified gap (tabular only, slow).
        tensorboard: directory for TensorBoard.
        progress: disable the progress bar.
        trust: with --resume, import the module of the environment that the directory names.
        json: print JSON instead of a table.
    """
    training, budget = _arguments(choices, Budget(episodes, steps), out, resume, trust)
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
    summary, certificate_text = summarise(training.problem, result)
    report = None if out is None else _report_in(out)
    if json:
        values = problem_settings(training.problem)
        values["episodes"] = int(result.episodes[-1])
        values["steps"] = result.steps[:, -1].tolist()
        values["seconds"] = result.seconds
        values |= summary
        values |= _assessment(result)
        values["report"] = report
        print_json(values)
    else:
        print_line(result.headline, bold=True)
        for line in finding_lines(result.diagnosis):
            print_line(line)
        title = f"{_used_text(budget, result)} per seed, {result.seconds:,.1f} s"
        _print_seeds(title, result, summary["median"])
        if certificate_text:
            print_line(certificate_text)
        print_line(_files_text(out, report))
    if "finished" not in result.status:
        raise RuntimeError(ALL_DIVERGED)
    if out is not None and report is None:
        sys.exit(1)  # training has warned that no report was written


def _used_text(budget: Budget, result: ox.Result) -> str:
    """Return the sampled episodes, or the median of the steps, in the unit of the budget."""
    if budget.steps is None:
        return f"{result.episodes[-1]:,} episodes"
    return f"{int(np.median(result.steps[:, -1])):,} steps"


def _report_in(out: Path) -> str | None:
    """Return the path of the report of the run in a folder, None if there is no report."""
    # slow: imports the charts
    from occupax.analysis.report import REPORT

    path = out / REPORT
    return str(path) if path.exists() else None


def _files_text(out: Path | None, report: str | None) -> str:
    """Return the last line of a training run: the report to open, or else the folder of the run."""
    if out is None:
        return UNSAVED
    if report is None:
        return f"saved: {out}"
    return f"report: {report}"


def _assessment(result: ox.Result) -> dict[str, Any]:
    """Return headline, references and diagnosis of a result as JSON values."""
    references = result.references
    return {
        "headline": result.headline,
        "references": None if references is None else asdict(references),
        "diagnosis": [finding._asdict() for finding in result.diagnosis],
    }


def _arguments(
    choices: Choices, budget: Budget, out: Path | None, resume: bool, trust: bool
) -> tuple[TrainingArguments, Budget]:
    """Return the training arguments and the budget of a command line."""
    if choices.env is None and resume and out is not None:
        options = choices.used_options()
        if options:
            raise ValueError(
                "settings of a resumed run are those of its folder: "
                f"leave out {', '.join(options)}, or repeat the whole command with ENV."
            )
        training, saved_budget = restore(out, trust)
        if budget == Budget():
            return training, saved_budget
        return training, budget
    if choices.env is None:
        raise ValueError("ENV must be given, or --out FOLDER --resume to resume a run.")
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
    """Return utility, certified gap and last return of all seeds, exact for a tabular problem.

    Returns:
        The numbers of all seeds, their medians and the best certificate, and a line about the best
        certificate, empty for a problem without a table.
    """
    certificates: list[ox.exact.Certificate] = []
    text = ""
    if isinstance(problem.env, ox.TabularMDP):
        try:
            certificates = [result.certificate(seed) for seed in result.seeds]
        except ValueError as error:
            text = f"not certified: {error}"
    gaps: list[float | None] = [certificate.gap for certificate in certificates]
    columns: dict[str, list[Any]] = {
        "utility": result.utilities.tolist(),
        "gap": gaps or [None] * len(result.seeds),
        "return": _last_returns(result),
    }
    medians = {name: _median(values) for name, values in columns.items()}
    columns = {"seed": list(result.seeds), **columns, "status": list(result.status)}
    summary: dict[str, Any] = {"seeds": _rows(columns), "median": medians, "certificate": None}
    if certificates:
        values = [certificate.value for certificate in certificates]
        index = values.index(max(values))
        best = certificates[index]
        summary["certificate"] = best._asdict()
        text = f"seed {result.seeds[index]} is within {short(best.gap)} of optimal (certified)"
    return summary, text


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table of columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _median(values: list[float | None]) -> float | None:
    """Return the median of the values that are known, None if no value is."""
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers else None


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
    rows = _rows(columns)
    is_several = len(rows) > 1
    if is_several:
        rows.append({"seed": "median", "utility": median["utility"]})
    print_table(title, rows, missing="", last_apart=is_several)


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
        result = ox.sweep(
            training.problem, training.algorithm, grid, **budget._asdict(), **training.options
        )
    except KeyboardInterrupt:
        remedy = "repeat the command with --resume to resume it"
        if out is None:
            remedy = "nothing was saved (--out)"
        raise KeyboardInterrupt(f"stopped; {remedy}.") from None
    points = _points(result, out)
    best = None
    if result.learned.any():
        best = set_text({**choices.settings(), **result.points[result.best]})
    if json:
        print_json({**budget._asdict(), "points": points, "best": best})
    else:
        _print_points(points)
        print_line(f"{NOTHING_LEARNED}." if best is None else f"best: --set {best}")
        print_line(UNSAVED if out is None else f"saved: {out}")
    if out is not None:
        path = out / SWEEP_PAGE
        write_sweep_page(training.title, _sweep_rows(result), path)
        if not json:
            print_line(f"page: {path}")
    seed_count = len(result.results[0].seeds)
    if all(point["stopped"] == seed_count for point in points):
        raise RuntimeError(ALL_DIVERGED)


def _points(result: ox.Sweep, out: Path | None) -> list[dict[str, Any]]:
    """Return the configurations of a sweep as JSON values, the best score first."""
    points: list[dict[str, Any]] = []
    for i in np.argsort(-result.scores, kind="stable"):
        stopped = [status for status in result.results[i].status if status != "finished"]
        point = {
            "settings": result.points[i],
            "score": float(result.scores[i]),
            "learned": bool(result.learned[i]),
            "stopped": len(stopped),
            "folder": None if out is None else str(out / f"point-{i}"),
        }
        points.append(point)
    return points


def _sweep_rows(sweep: ox.Sweep) -> list[SweepRow]:
    """Return the configurations of a sweep in the order of their ranks."""
    rows: list[SweepRow] = []
    for index in np.argsort(-sweep.scores, kind="stable"):
        result = sweep.results[index]
        finished = sum(status == "finished" for status in result.status)
        rows.append(
            SweepRow(
                settings=sweep.points[index],
                utilities=result.utilities,
                score=float(sweep.scores[index]),
                has_learned=bool(sweep.learned[index]),
                status=f"{finished} of {len(result.seeds)} finished",
                folder=f"point-{index}",
            )
        )
    return rows


def _print_points(points: list[dict[str, Any]]) -> None:
    rows: list[dict[str, Any]] = []
    for point in points:
        row: dict[str, Any] = {"score": point["score"]}
        for name, value in point["settings"].items():
            row[name] = value_text(value)
        row["learned"] = "yes" if point["learned"] else "nothing"
        row["stopped seeds"] = point["stopped"]
        if point["folder"] is not None:
            row["folder"] = Path(point["folder"]).name
        rows.append(row)
    print_table("score: mean utility of the trained policies", rows)

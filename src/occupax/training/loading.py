"""Results read back from the folders of finished runs."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from occupax.algorithms import Algorithm
from occupax.errors import OccupaxWarning, check_number
from occupax.io import codec
from occupax.io.checksummed_json import check_seal, read_json
from occupax.io.policies import load_policy
from occupax.io.run_folder import read_config, untrusted_module
from occupax.policies import Policy, check_policy_fits
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.training.assessment import FILE, load_assessment
from occupax.training.loggers import read_csv
from occupax.training.records import EXACT, RECORDED
from occupax.training.result import (
    MODEL,
    RECORDS,
    SUMMARY,
    Finding,
    Result,
    comparison,
    model_file,
    policy_file,
)
from occupax.training.setup import refuse_unless_path


def load_result(
    folder: str | Path,
    problem: ProblemSource | None = None,
    policy: Policy | None = None,
    algorithm: Algorithm[Any] | type[Algorithm[Any]] | None = None,
    trust: bool = False,
) -> Result:
    """Read what `Result.save` or `train(out=folder)` wrote; docs/trust.md says what a folder of a stranger can do.

    Args:
        folder: the folder of a finished run.
        problem: the problem as for `train`, where it holds functions of your own, which no file can
            restore.
        policy: likewise, a policy of the same structure as those that were trained.
        algorithm: likewise, an algorithm of your own, or its class, which is given the settings
            that were saved.
        trust: whether to restore an environment of Gymnasium whose id names a module, which is
            imported to make it.

    Returns:
        The result. Its problem is None if it cannot be restored; for an algorithm there is a
        warning, too.
    """
    refuse_unless_path(folder, "folder")
    path = Path(folder)
    config, arrays = read_config(path)
    setup, seeds = config["setup"], tuple(config["setup"]["seeds"])
    if isinstance(setup["algorithm"], list):
        raise ValueError(
            f"{path} is a part of a sweep, whose results are in the folders of its points."
        )
    summary = _read_summary(path, config, seeds)
    found, table = read_csv(path / RECORDS)
    if found != seeds:
        raise ValueError(f"{path / RECORDS} must have the seeds {seeds}, got {found}.")
    if missing := set(RECORDED) - set(table.metrics):
        raise ValueError(
            f"{path / RECORDS} must have a column {min(missing)!r}, which every run records."
        )
    if problem is None and (module := untrusted_module(setup)) and not trust:
        hint = "load_result(folder, trust=True), or --trust, allows it if you trust the folder"
        said = f"the environment is not restored, because to make it the module {module!r} is imported: {hint}."
        warnings.warn(said, OccupaxWarning, stacklevel=2)
        restored = None
    else:
        restored = (
            _unpack_if_possible(setup["problem"], arrays)
            if problem is None
            else as_problem(problem)
        )
    first = _unpack_if_possible(setup["policy"], arrays, policy)
    if not isinstance(first, Policy | None):
        raise ValueError(f"config.json must describe a policy, got {type(first).__name__}.")
    policies = tuple(load_policy(path / policy_file(seed), like=policy) for seed in seeds)
    for seed, trained in zip(seeds, policies, strict=True):
        _refuse_other_policy(path / policy_file(seed), trained, config, arrays)
    if restored is not None:
        if not isinstance(restored, Problem):
            raise ValueError(f"problem must be an occupax.Problem, got {type(restored).__name__}.")
        _refuse_other_problem(restored, config, policies)
    findings = summary.get("diagnosis")
    return Result(
        problem=restored,
        algorithm=_restore_algorithm(setup["algorithm"], arrays, algorithm),
        seeds=seeds,
        episodes=table.episodes,
        steps=table.steps,
        metrics={
            name: values.astype(_precision(name, config)) for name, values in table.metrics.items()
        },
        policies=policies,
        status=tuple(summary["status"]),
        seconds=summary["seconds"],
        config=config,
        arrays=arrays,
        saved_assessment=load_assessment(path, len(seeds)),
        saved_diagnosis=None
        if findings is None
        else tuple(Finding(**finding) for finding in findings),
        compare=None if restored is None or first is None else comparison(restored, first),
        models=tuple(_load_model(path / model_file(seed)) for seed in seeds),
    )


def _read_summary(path: Path, config: dict[str, Any], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Read `summary.json`, and refuse it, or files that were written with it, if they are not those of this run."""
    file = path / SUMMARY
    try:
        summary = read_json(file)
    except FileNotFoundError:
        raise ValueError(f"{path} holds a run that is not finished: resume it first.") from None
    others = [name for name in (FILE, *map(model_file, seeds)) if (path / name).exists()]
    check_seal(file, summary, [RECORDS, *map(policy_file, seeds), *others])
    if summary.get("fingerprint") != config["fingerprint"]:
        raise ValueError(f"{file} is the summary of another run than config.json.")
    status, seconds, findings = (summary.get(name) for name in ("status", "seconds", "diagnosis"))
    if not isinstance(status, list) or [type(it) for it in status] != [str] * len(seeds):
        raise ValueError(f"{file} must have a status for each seed, got {status!r:.60}.")
    check_number(f"seconds in {file}", seconds, low=0.0)
    fields = dict.fromkeys(Finding._fields, str)
    known = [
        {key: type(value) for key, value in it.items()}
        for it in findings or ()
        if isinstance(it, dict)
    ]
    if not isinstance(findings, list | None) or known != [fields] * len(findings or ()):
        raise ValueError(f"{file} must have findings of {', '.join(fields)}, got {findings!r:.60}.")
    return summary


def _refuse_other_policy(
    file: Path, policy: Policy, config: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Refuse a policy of another structure, or of other sizes, than that which training began with."""
    description, own = codec.pack({"policy": policy})
    place = codec.difference(description["dict"]["policy"], config["setup"]["policy"])
    for name, array in own.items():
        if place is None and getattr(arrays.get(name), "shape", None) != array.shape:
            place = name
    if place is not None:
        raise ValueError(
            f"{file} is the policy of another run: it differs at {place or 'the top'}."
        )


def _refuse_other_problem(
    problem: Problem, config: dict[str, Any], policies: tuple[Policy, ...]
) -> None:
    """Refuse a problem that the policies do not fit, or whose occupancy has another size than that which was saved."""
    match config["setup"]["problem"]:
        case {"fields": {"size": int() as size}}:
            pass
        case _:
            size = problem.size
    if problem.size != size:
        raise ValueError(
            f"problem must have {size} features, as that which was trained on, got {problem.size}."
        )
    for policy in policies:
        try:
            check_policy_fits(policy, problem.env)
        except Exception as error:
            raise ValueError(
                f"problem must be that which was trained on, but the policies do not fit: {str(error).splitlines()[0]}"
            ) from error


def _load_model(file: Path) -> Any:
    """The model in a file, if there is one."""
    if not file.exists():
        return None
    arrays, content = codec.read(file)
    if content.get("format") != MODEL:
        raise ValueError(
            f"{file} must have the format {MODEL}, but has {content.get('format')!r:.60}."
        )
    return codec.unpack(content.get("model"), arrays)


def _precision(metric: str, config: dict[str, Any]) -> str:
    """The type a number was recorded in: text holds as many digits as it needs, no more."""
    return "float64" if metric in EXACT or config["versions"]["float64"] else "float32"


def _unpack_if_possible(description: Any, arrays: dict[str, np.ndarray], like: Any = None) -> Any:
    try:
        return codec.unpack(description, arrays, like)
    except ValueError:
        return None


def _restore_algorithm(
    description: Any,
    arrays: dict[str, np.ndarray],
    given: Algorithm[Any] | type[Algorithm[Any]] | None,
) -> Algorithm[Any] | None:
    name = codec.class_name(description)
    if given is None:
        restored = _unpack_if_possible(description, arrays)
        if not isinstance(restored, Algorithm | None):
            raise ValueError(
                f"config.json must describe an algorithm, got {type(restored).__name__}."
            )
        if restored is None:
            reason = "because it is or holds something that no file can restore"
            hint = "load_result(folder, algorithm=...) takes it or, if it is one of your own, its class"
            warnings.warn(
                f"the algorithm {name} is not restored, {reason}: {hint}.",
                OccupaxWarning,
                stacklevel=3,
            )
        return restored
    kind = given if isinstance(given, type) else type(given)
    if kind.__name__ != name:
        raise ValueError(
            f"algorithm must be the {name} that was trained with, or its class, got {kind.__name__}."
        )
    return codec.unpack_as(kind, description, arrays) if isinstance(given, type) else given

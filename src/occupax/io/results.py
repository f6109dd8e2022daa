"""Outcomes of runs in their folders: summary, policies, models and assessment."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from occupax.algorithms import Algorithm
from occupax.errors import OccupaxWarning, check_number
from occupax.io import codec
from occupax.io.codec import Arrays
from occupax.io.files import (
    check_header,
    check_json,
    header,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
    write_text,
)
from occupax.io.policies import load_policy, save_policy
from occupax.io.records import EXACT, RECORDED, RECORDS, RecordTable, csv_text, read_csv
from occupax.io.run_folder import read_config, untrusted_module, write_config
from occupax.outcome import Assessment, Finding, Outcome, References
from occupax.policies import Policy, check_policy_fits
from occupax.problem import Problem, ProblemSource, as_problem

SUMMARY = "summary.json"
SUMMARY_KIND = "occupax-summary"
ASSESSMENT = "assessment.safetensors"
ASSESSMENT_KIND = "occupax-assessment"
MODEL_KIND = "occupax-model"
REFERENCES = "references/"
"""Prefix of the names of arrays of references."""

AlgorithmHint = Algorithm[Any] | type[Algorithm[Any]] | None


def policy_file(seed: int) -> str:
    """Return the file of the policy of a seed, relative to the folder of the run."""
    return f"policies/seed-{seed}.safetensors"


def model_file(seed: int) -> str:
    """Return the file of the learned model of a seed, relative to the folder of the run."""
    return f"models/seed-{seed}.safetensors"


def write_records(outcome: Outcome, folder: Path) -> None:
    """Write `metrics.csv`."""
    table = RecordTable(outcome.episodes, outcome.steps, outcome.metrics)
    write_text(folder / RECORDS, csv_text(outcome.seeds, table))


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """Write all but `metrics.csv`, which training has written. The summary comes last."""
    (folder / SUMMARY).unlink(missing_ok=True)  # a folder without a summary is incomplete
    write_config(folder, outcome.config, outcome.arrays)
    files = [RECORDS]
    for seed, policy in zip(outcome.seeds, outcome.policies, strict=True):
        save_policy(policy, folder / policy_file(seed))
        files.append(policy_file(seed))
    for seed, model in zip(outcome.seeds, outcome.models, strict=False):
        if model is not None:
            _write_model(model, folder / model_file(seed))
            files.append(model_file(seed))
    (folder / ASSESSMENT).unlink(missing_ok=True)
    summary = {
        **header(SUMMARY_KIND),
        "seeds": outcome.seeds,
        "status": outcome.status,
        "seconds": outcome.seconds,
        "fingerprint": outcome.config.get("fingerprint"),
    }
    if outcome.saved_assessment is not None:
        _write_assessment(outcome.saved_assessment, folder / ASSESSMENT)
        files.append(ASSESSMENT)
    if outcome.saved_diagnosis is not None:
        summary["diagnosis"] = [finding._asdict() for finding in outcome.saved_diagnosis]
    write_json(folder / SUMMARY, summary, files)


def read_outcome(
    folder: Path,
    problem: ProblemSource | None = None,
    policy: Policy | None = None,
    algorithm: AlgorithmHint = None,
    trust: bool = False,
) -> Outcome:
    """Read the outcome of a finished run. The arguments are those of `load_result`."""
    config, arrays = read_config(folder)
    setup = config["setup"]
    seeds = tuple(setup["seeds"])
    if isinstance(setup["algorithm"], list):
        raise ValueError(
            f"{folder} is a part of a sweep, whose results are in the directories of its points."
        )
    summary = _read_summary(folder, config, seeds)
    table = _read_records(folder / RECORDS, seeds)
    initial_policy = _unpack_if_possible(setup["policy"], arrays, policy)
    if not isinstance(initial_policy, Policy | None):
        kind = type(initial_policy).__name__
        raise ValueError(f"config.json must describe a policy, got {kind}.")
    policies = tuple(load_policy(folder / policy_file(seed), like=policy) for seed in seeds)
    for seed, trained in zip(seeds, policies, strict=True):
        _check_same_policy(folder / policy_file(seed), trained, config, arrays)
    restored = _restore_problem(config, arrays, problem, trust)
    if restored is not None:
        _check_same_problem(restored, config, policies)
    return Outcome(
        problem=restored,
        algorithm=_restore_algorithm(setup["algorithm"], arrays, algorithm),
        seeds=seeds,
        episodes=table.episodes,
        steps=table.steps,
        metrics=_with_precision(table.metrics, config["versions"]["float64"]),
        policies=policies,
        status=tuple(summary["status"]),
        seconds=summary["seconds"],
        config=config,
        arrays=arrays,
        initial_policy=initial_policy,
        models=tuple(_read_model(folder / model_file(seed)) for seed in seeds),
        saved_assessment=_read_assessment(folder / ASSESSMENT, len(seeds)),
        saved_diagnosis=_read_findings(summary),
    )


def _with_precision(metrics: dict[str, np.ndarray], double: bool) -> dict[str, np.ndarray]:
    """Return metrics in the precision of a run. Exact values are always in double precision."""
    converted: dict[str, np.ndarray] = {}
    for name, values in metrics.items():
        if double or name in EXACT:
            converted[name] = values.astype(np.float64)
        else:
            converted[name] = values.astype(np.float32)
    return converted


def _write_model(model: Any, file: Path) -> None:
    description, arrays = codec.pack(model)
    write_arrays(file, arrays, {**header(MODEL_KIND), "model": description})


def _read_model(file: Path) -> Any:
    """Return the model in a file, or None without the file."""
    if not file.exists():
        return None
    arrays, content = read_arrays(file)
    check_header(file, content, MODEL_KIND)
    return codec.unpack(content.get("model"), arrays)


def _write_assessment(assessment: Assessment, file: Path) -> None:
    arrays: Arrays = {}
    for name in ("utilities", "gaps", "visits", "excesses"):
        array = getattr(assessment, name)
        if array is not None:
            arrays[name] = array
    if assessment.references is not None:
        for name, value in asdict(assessment.references).items():
            if value is not None:
                arrays[REFERENCES + name] = np.array(value)  # JSON has no infinities
    texts = {"source": assessment.source, "reason": assessment.reason}
    write_arrays(file, arrays, {**header(ASSESSMENT_KIND), **texts})


def _read_assessment(file: Path, seeds: int) -> Assessment | None:
    """Return the assessment of so many seeds, or None without the file."""
    if not file.exists():
        return None
    arrays, content = read_arrays(file)
    check_header(file, content, ASSESSMENT_KIND)
    if "utilities" not in arrays:
        raise ValueError(f"{file} is not the assessment of a run.")
    for name, axes in (("utilities", 1), ("gaps", 1), ("visits", 2), ("excesses", 2)):
        array = arrays.get(name)
        if array is None:
            continue
        if array.ndim != axes or len(array) != seeds or array.dtype.kind != "f":
            raise ValueError(
                f"{file} must have {name} of {seeds} seeds, got {array.dtype} of shape "
                f"{array.shape}."
            )
    return Assessment(
        utilities=arrays["utilities"],
        source=str(content.get("source")),
        gaps=arrays.get("gaps"),
        reason=str(content.get("reason", "")),
        visits=arrays.get("visits"),
        excesses=arrays.get("excesses"),
        references=_read_references(file, arrays),
    )


def _read_references(file: Path, arrays: Mapping[str, np.ndarray]) -> References | None:
    values: dict[str, float] = {}
    for field in fields(References):
        array = arrays.get(REFERENCES + field.name)
        if array is None:
            continue
        if array.shape or array.dtype.kind != "f":
            raise ValueError(f"{file} must have a number for each of its references.")
        values[field.name] = float(array)
    if not values:
        return None
    if "first" not in values:
        raise ValueError(f"{file} must have the utility of the initial policy.")
    return References(**values)


def _read_summary(folder: Path, config: dict[str, Any], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Read and check `summary.json` and the checksums of the files of the run."""
    file = folder / SUMMARY
    try:
        content = read_json(file)
    except FileNotFoundError:
        raise ValueError(f"{folder} holds a run that is not finished: resume it first.") from None
    check_header(file, content, SUMMARY_KIND)
    optional = [ASSESSMENT, *map(model_file, seeds)]
    present = [name for name in optional if (folder / name).exists()]
    summary = check_json(file, content, [RECORDS, *map(policy_file, seeds), *present])
    if summary.get("fingerprint") != config["fingerprint"]:
        raise ValueError(f"{file} is the summary of another run than config.json.")
    status = summary.get("status")
    if not isinstance(status, list) or [type(text) for text in status] != [str] * len(seeds):
        raise ValueError(f"{file} must have a status for each seed, got {status!r:.60}.")
    check_number(f"seconds in {file}", summary.get("seconds"), low=0.0)
    findings = summary.get("diagnosis")
    if findings is not None and not (isinstance(findings, list) and all(map(_fits, findings))):
        names = ", ".join(Finding._fields)
        raise ValueError(f"{file} must have findings of {names}, got {findings!r:.60}.")
    return summary


def _fits(finding: Any) -> bool:
    """Return whether JSON has the fields of a finding."""
    if not isinstance(finding, dict):
        return False
    return {key: type(value) for key, value in finding.items()} == dict.fromkeys(
        Finding._fields, str
    )


def _read_findings(summary: dict[str, Any]) -> tuple[Finding, ...] | None:
    findings = summary.get("diagnosis")
    if findings is None:
        return None
    return tuple(Finding(**finding) for finding in findings)


def _read_records(file: Path, seeds: tuple[int, ...]) -> RecordTable:
    saved_seeds, table = read_csv(file)
    if saved_seeds != seeds:
        raise ValueError(f"{file} must have the seeds {seeds}, got {saved_seeds}.")
    missing = set(RECORDED) - set(table.metrics)
    if missing:
        raise ValueError(f"{file} must have a column {min(missing)!r}, which every run records.")
    return table


def _check_same_policy(file: Path, policy: Policy, config: dict[str, Any], arrays: Arrays) -> None:
    """Raise ValueError unless a policy has the structure and the sizes of the initial policy."""
    description, own_arrays = codec.pack({"policy": policy})
    path = codec.difference(description["dict"]["policy"], config["setup"]["policy"])
    for name, array in own_arrays.items():
        if path is None and getattr(arrays.get(name), "shape", None) != array.shape:
            path = name
    if path is not None:
        raise ValueError(f"{file} is the policy of another run: it differs at {path or 'the top'}.")


def _check_same_problem(
    problem: Problem, config: dict[str, Any], policies: tuple[Policy, ...]
) -> None:
    """Raise ValueError unless the policies and the size of the saved occupancy fit a problem."""
    size = problem.size
    match config["setup"]["problem"]:
        case {"fields": {"size": int() as saved_size}}:
            size = saved_size
        case _:
            pass
    if problem.size != size:
        raise ValueError(
            f"problem must have {size} features, as in the training run, got {problem.size}."
        )
    for policy in policies:
        try:
            check_policy_fits(policy, problem.env)
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                "problem must be that of the training run, but the policies do not fit: " + reason
            ) from error


def _restore_problem(
    config: dict[str, Any], arrays: Arrays, problem: ProblemSource | None, trust: bool
) -> Problem | None:
    """Return the problem of the user or of the file, or None if it cannot be restored."""
    if problem is not None:
        return as_problem(problem)
    module = untrusted_module(config["setup"])
    if module and not trust:
        warnings.warn(
            "the environment is not restored, because to make it the module "
            f"{module!r} is imported: load_result(folder, trust=True), or --trust, allows it if "
            "you trust the folder.",
            OccupaxWarning,
            stacklevel=4,
        )
        return None
    restored = _unpack_if_possible(config["setup"]["problem"], arrays)
    if not isinstance(restored, Problem | None):
        kind = type(restored).__name__
        raise ValueError(f"problem must be an occupax.Problem, got {kind}.")
    return restored


def _restore_algorithm(
    description: Any, arrays: Arrays, hint: AlgorithmHint
) -> Algorithm[Any] | None:
    """Return the algorithm of the file, of the user, or of the class of the user."""
    name = codec.class_name(description)
    if hint is None:
        return _unpack_algorithm(name, description, arrays)
    if isinstance(hint, type):
        _check_kind(hint, name)
        return codec.unpack_as(hint, description, arrays)
    _check_kind(type(hint), name)
    return hint


def _check_kind(kind: type, name: str) -> None:
    if kind.__name__ != name:
        raise ValueError(
            f"algorithm must be the {name} of the training run or its class, got {kind.__name__}."
        )


def _unpack_algorithm(name: str, description: Any, arrays: Arrays) -> Algorithm[Any] | None:
    restored = _unpack_if_possible(description, arrays)
    if not isinstance(restored, Algorithm | None):
        kind = type(restored).__name__
        raise ValueError(f"config.json must describe an algorithm, got {kind}.")
    if restored is None:
        warnings.warn(
            f"the algorithm {name} is not restored, because it is or holds something that no file "
            "can restore: load_result(folder, algorithm=...) takes it or, if it is one of your "
            "own, its class.",
            OccupaxWarning,
            stacklevel=5,
        )
    return restored


def _unpack_if_possible(description: Any, arrays: Arrays, like: Any = None) -> Any:
    try:
        return codec.unpack(description, arrays, like)
    except ValueError:
        return None

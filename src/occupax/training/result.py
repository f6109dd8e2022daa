"""What training returns, and the files of it."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from occupax import exact, serial
from occupax._errors import OccupaxWarning, check_number
from occupax.algorithms import Algorithm
from occupax.envs.tabular import TabularMDP
from occupax.policies import Policy, refuse_unless_fitting, refuse_unless_policy
from occupax.problem import Problem
from occupax.samplers import EpisodeError
from occupax.training.assessment import (
    FILE,
    Assessment,
    References,
    assess,
    find_references,
    load_assessment,
    probabilities,
)
from occupax.training.folder import CONFIG, read_config, refuse_others_files, untrusted_module, write_config
from occupax.training.loggers import csv_text, read_csv
from occupax.training.records import EXACT, RECORDED, RecordTable
from occupax.training.sealed import check_seal, read_json, write_sealed
from occupax.training.setup import refuse_unless_path

SUMMARY, RECORDS = "summary.json", "metrics.csv"
POLICY, POLICY_VERSION = "occupax-policy", 1
MODEL = "occupax-model"


class Finding(NamedTuple):
    """Something that went wrong in a training, in words; docs/diagnosis.md has a section for each kind."""

    kind: str
    """A short name such as "no-progress"."""
    sentence: str
    """What happened, with its numbers."""
    advice: str
    """What to try."""


@dataclass(frozen=True, repr=False)
class Result:
    """Records and policies of a set of seeds."""

    problem: Problem | None
    """What was trained on; None if it could not be restored from a file."""
    algorithm: Algorithm[Any] | None
    seeds: tuple[int, ...]
    episodes: Int[np.ndarray, " record"]
    """Trajectories each seed had sampled at each record."""
    steps: Int[np.ndarray, "seed record"]
    """Environment steps each seed had taken."""
    metrics: dict[str, Float[np.ndarray, "seed record"]]
    """What was recorded; docs/records.md explains each number."""
    policies: tuple[Policy, ...]
    status: tuple[str, ...]
    """"finished", or why a seed was stopped."""
    seconds: float
    config: dict[str, Any]
    arrays: dict[str, np.ndarray]
    """What `config.json` says, and the arrays that belong to it."""
    saved_assessment: Assessment | None = None
    """What was found out about the policies at the end of training, if this was loaded from a file."""
    saved_diagnosis: tuple[Finding, ...] | None = None
    """What went wrong, likewise."""
    compare: Callable[[], References] | None = None
    """Finds out what other policies are worth, once for all results that share this function."""
    models: tuple[Any, ...] = ()
    """What the algorithm has learned of the environment, for each seed; None for most algorithms."""

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of a seed; by default the first."""
        return self.policies[self._place(seed)]

    def model(self, seed: int | None = None) -> Any:
        """The model that a seed of `PlugIn` has learned, with its counts; by default that of the first seed."""
        found = self.models[self._place(seed)] if self.models else None
        if found is None:
            name = "this algorithm" if self.algorithm is None else type(self.algorithm).__name__
            raise ValueError(f"{name} learns no model of the environment; PlugIn does.")
        return found

    def _place(self, seed: int | None) -> int:
        if seed is not None and seed not in self.seeds:
            raise ValueError(f"seed must be one of {', '.join(map(str, self.seeds))}, got {seed!r}.")
        return 0 if seed is None else self.seeds.index(seed)

    def certificate(self, seed: int | None = None) -> exact.Certificate:
        """How far at most a seed's policy is from the best one; for tabular problems with a concave utility."""
        return exact.certificate(self._problem(), probabilities(self._problem(), self.policy(seed)), self._multipliers)

    @cached_property
    def _multipliers(self) -> dict[str, float] | None:
        problem = self._problem()
        if not (problem.constraints and isinstance(problem.env, TabularMDP)):
            return None
        names = [constraint.name for constraint in problem.constraints]
        return dict(zip(names, map(float, exact.evaluation.best_multipliers(problem)), strict=True))

    @cached_property
    def assessment(self) -> Assessment:
        """What the policies are worth: as it was saved at the end of training or, if it was not, found out now."""
        return self.saved_assessment or assess(self._problem(), self.policies)

    @property
    def utilities(self) -> Float[np.ndarray, " seed"]:
        """What each policy is worth: exactly for a table, else estimated from 1,000 new episodes (Gymnasium: 100)."""
        return self.assessment.utilities

    @property
    def excesses(self) -> dict[str, Float[np.ndarray, " seed"]]:
        """By how much each policy violates each constraint, by its name; negative where there is slack."""
        names = [constraint.name for constraint in self._problem().constraints]
        return {name: self.assessment.excesses[:, k] for k, name in enumerate(names)} if names else {}  # pyright: ignore[reportOptionalSubscript]

    @cached_property
    def references(self) -> References | None:
        """What the first, the uniform and the best policy are worth, as far as it is known; found out in seconds."""
        saved = None if self.saved_assessment is None else self.saved_assessment.references
        return self.compare() if saved is None and self.compare is not None else saved

    @property
    def headline(self) -> str:
        """How good the policies are, in one sentence: the median over the seeds, and what to compare it with."""
        from occupax.analysis.verdict import headline

        return headline(self)

    @cached_property
    def diagnosis(self) -> tuple[Finding, ...]:
        """What went wrong, and what to try; nothing for a training that is well."""
        from occupax.analysis.diagnosis import diagnose

        return diagnose(self) if self.saved_diagnosis is None else self.saved_diagnosis

    def summary(self) -> str:
        """The headline and the findings of the diagnosis, as a text of several lines."""
        from occupax.analysis.verdict import summary

        return summary(self)

    def __repr__(self) -> str:
        from occupax.analysis.verdict import short_description

        return short_description(self)

    @property
    def best_policy(self) -> Policy:
        """The policy of the seed with the highest of `utilities`, among those that violate the constraints least."""
        if np.isnan(self.utilities).all():
            raise ValueError("no seed has a policy whose utility is finite.")
        violation = np.zeros(len(self.seeds))
        if self.assessment.excesses is not None:
            violation = np.maximum(self.assessment.excesses, 0.0).max(1)
        least = violation <= np.nanmin(np.where(np.isnan(self.utilities), np.nan, violation))
        return self.policies[int(np.nanargmax(np.where(least, self.utilities, -np.inf)))]

    def plot(self, metric: str = "utility") -> Any:
        """A Matplotlib figure: median and quartiles over the seeds against sampled episodes."""
        from occupax.analysis.describe import plot_metric

        return plot_metric(self, metric)

    def save(self, folder: str | Path) -> None:
        """Write configuration, records and policies; `load_result` reads them."""
        refuse_unless_path(folder, "folder")
        path = Path(folder)
        refuse_others_files(path, (CONFIG,))
        table = RecordTable(self.episodes, self.steps, self.metrics)
        serial.write_text(path / RECORDS, csv_text(self.seeds, table))
        self.save_beside_records(path)

    def save_beside_records(self, path: Path) -> None:
        """Write all but the records into a folder that has them already, more of them than are in memory perhaps."""
        (path / SUMMARY).unlink(missing_ok=True)  # what is not complete is not taken for a result
        write_config(path, self.config, self.arrays)
        for seed, policy in zip(self.seeds, self.policies, strict=True):
            save_policy(policy, path / _policy_file(seed))
        for seed, model in zip(self.seeds, self.models, strict=False):
            if model is not None:
                description, arrays = serial.pack(model)
                serial.write(_model_file(path, seed), arrays, {"format": MODEL, "model": description})
        files = [RECORDS, *map(_policy_file, self.seeds)]
        (path / FILE).unlink(missing_ok=True)
        summary: dict[str, Any] = {"seeds": self.seeds, "status": self.status, "seconds": self.seconds}
        if self.problem is not None or self.saved_assessment is not None:
            try:
                replace(self.assessment, references=self.references).save(path)
                files.append(FILE)
                summary["diagnosis"] = [finding._asdict() for finding in self.diagnosis]
            except EpisodeError as error:
                warnings.warn(f"the trained policies could not be evaluated: {error}", OccupaxWarning, stacklevel=2)
        write_sealed(path / SUMMARY, summary | {"fingerprint": self.config.get("fingerprint")}, files)

    def _problem(self) -> Problem:
        if self.problem is None:
            raise ValueError("the problem cannot be restored from a file: load_result(folder, problem=...) takes it.")
        return self.problem


def load_result(
    folder: str | Path,
    problem: Problem | None = None,
    policy: Policy | None = None,
    algorithm: Algorithm[Any] | type[Algorithm[Any]] | None = None,
    trust: bool = False,
) -> Result:
    """Read what `Result.save` or `train(out=folder)` wrote; docs/trust.md says what a folder of a stranger can do.

    Args:
        folder: the folder of a finished run.
        problem: the problem, where it holds functions of your own, which no file can restore.
        policy: likewise, a policy of the same structure as those that were trained.
        algorithm: likewise, an algorithm of your own, or its class, which is given the settings that were saved.
        trust: whether to restore an environment of Gymnasium whose id names a module, which is imported to make it.

    Returns:
        The result. Its problem is None if it cannot be restored; for an algorithm there is a warning, too.
    """
    refuse_unless_path(folder, "folder")
    path = Path(folder)
    config, arrays = read_config(path)
    setup, seeds = config["setup"], tuple(config["setup"]["seeds"])
    if isinstance(setup["algorithm"], list):
        raise ValueError(f"{path} is a part of a sweep, whose results are in the folders of its points.")
    summary = _read_summary(path, config, seeds)
    found, table = read_csv(path / RECORDS)
    if found != seeds:
        raise ValueError(f"{path / RECORDS} must have the seeds {seeds}, got {found}.")
    if missing := set(RECORDED) - set(table.metrics):
        raise ValueError(f"{path / RECORDS} must have a column {min(missing)!r}, which every run records.")
    if problem is None and (module := untrusted_module(setup)) and not trust:
        hint = "load_result(folder, trust=True), or --trust, allows it if you trust the folder"
        said = f"the environment is not restored, because to make it the module {module!r} is imported: {hint}."
        warnings.warn(said, OccupaxWarning, stacklevel=2)
        restored = None
    else:
        restored = _unpack_if_possible(setup["problem"], arrays) if problem is None else problem
    first = _unpack_if_possible(setup["policy"], arrays, policy)
    if not isinstance(first, Policy | None):
        raise ValueError(f"config.json must describe a policy, got {type(first).__name__}.")
    policies = tuple(load_policy(path / _policy_file(seed), like=policy) for seed in seeds)
    for seed, trained in zip(seeds, policies, strict=True):
        _refuse_other_policy(path / _policy_file(seed), trained, config, arrays)
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
        metrics={name: values.astype(_precision(name, config)) for name, values in table.metrics.items()},
        policies=policies,
        status=tuple(summary["status"]),
        seconds=summary["seconds"],
        config=config,
        arrays=arrays,
        saved_assessment=load_assessment(path, len(seeds)),
        saved_diagnosis=None if findings is None else tuple(Finding(**finding) for finding in findings),
        compare=None if restored is None or first is None else comparison(restored, first),
        models=tuple(_load_model(_model_file(path, seed)) for seed in seeds),
    )


def _policy_file(seed: int) -> str:
    return f"policies/seed-{seed}.safetensors"


def _read_summary(path: Path, config: dict[str, Any], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Read `summary.json`, and refuse it, or files that were written with it, if they are not those of this run."""
    file = path / SUMMARY
    try:
        summary = read_json(file)
    except FileNotFoundError:
        raise ValueError(f"{path} holds a run that is not finished: resume it first.") from None
    assessed = [FILE] if (path / FILE).exists() else []
    check_seal(file, summary, [RECORDS, *map(_policy_file, seeds), *assessed])
    if summary.get("fingerprint") != config["fingerprint"]:
        raise ValueError(f"{file} is the summary of another run than config.json.")
    status, seconds, findings = (summary.get(name) for name in ("status", "seconds", "diagnosis"))
    if not isinstance(status, list) or [type(it) for it in status] != [str] * len(seeds):
        raise ValueError(f"{file} must have a status for each seed, got {status!r:.60}.")
    check_number(f"seconds in {file}", seconds, low=0.0)
    fields = dict.fromkeys(Finding._fields, str)
    known = [{key: type(value) for key, value in it.items()} for it in findings or () if isinstance(it, dict)]
    if not isinstance(findings, list | None) or known != [fields] * len(findings or ()):
        raise ValueError(f"{file} must have findings of {', '.join(fields)}, got {findings!r:.60}.")
    return summary


def _refuse_other_policy(file: Path, policy: Policy, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Refuse a policy of another structure, or of other sizes, than that which training began with."""
    description, own = serial.pack({"policy": policy})
    place = serial.difference(description["dict"]["policy"], config["setup"]["policy"])
    for name, array in own.items():
        if place is None and getattr(arrays.get(name), "shape", None) != array.shape:
            place = name
    if place is not None:
        raise ValueError(f"{file} is the policy of another run: it differs at {place or 'the top'}.")


def _refuse_other_problem(problem: Problem, config: dict[str, Any], policies: tuple[Policy, ...]) -> None:
    """Refuse a problem that the policies do not fit, or whose occupancy has another size than that which was saved."""
    match config["setup"]["problem"]:
        case {"fields": {"size": int() as size}}:
            pass
        case _:
            size = problem.size
    if problem.size != size:
        raise ValueError(f"problem must have {size} features, as that which was trained on, got {problem.size}.")
    for policy in policies:
        try:
            refuse_unless_fitting(policy, problem.env)
        except Exception as error:
            raise ValueError(
                f"problem must be that which was trained on, but the policies do not fit: {str(error).splitlines()[0]}"
            ) from error


def _model_file(folder: Path, seed: int) -> Path:
    return folder / "models" / f"seed-{seed}.safetensors"


def _load_model(file: Path) -> Any:
    """The model in a file, if there is one."""
    if not file.exists():
        return None
    arrays, content = serial.read(file)
    if content.get("format") != MODEL:
        raise ValueError(f"{file} must have the format {MODEL}, but has {content.get('format')!r:.60}.")
    return serial.unpack(content.get("model"), arrays)


def comparison(problem: Problem, first: Policy) -> Callable[[], References]:
    """A function that finds out what other policies of a problem are worth when it is first called."""
    return cache(partial(find_references, problem, first))


def _precision(metric: str, config: dict[str, Any]) -> str:
    """The type a number was recorded in: text holds as many digits as it needs, no more."""
    return "float64" if metric in EXACT or config["versions"]["float64"] else "float32"


def _unpack_if_possible(description: Any, arrays: dict[str, np.ndarray], like: Any = None) -> Any:
    try:
        return serial.unpack(description, arrays, like)
    except ValueError:
        return None


def _restore_algorithm(
    description: Any, arrays: dict[str, np.ndarray], given: Algorithm[Any] | type[Algorithm[Any]] | None
) -> Algorithm[Any] | None:
    name = serial.class_name(description)
    if given is None:
        restored = _unpack_if_possible(description, arrays)
        if not isinstance(restored, Algorithm | None):
            raise ValueError(f"config.json must describe an algorithm, got {type(restored).__name__}.")
        if restored is None:
            reason = "because it is or holds something that no file can restore"
            hint = "load_result(folder, algorithm=...) takes it or, if it is one of your own, its class"
            warnings.warn(f"the algorithm {name} is not restored, {reason}: {hint}.", OccupaxWarning, stacklevel=3)
        return restored
    kind = given if isinstance(given, type) else type(given)
    if kind.__name__ != name:
        raise ValueError(f"algorithm must be the {name} that was trained with, or its class, got {kind.__name__}.")
    return serial.unpack_as(kind, description, arrays) if isinstance(given, type) else given


def save_policy(policy: Policy, path: str | Path) -> None:
    """Save a policy as one safetensors file that holds its arrays and, as JSON, all else there is to know of it.

    Args:
        policy: any policy; `load_policy` restores those of `occupax.policies` and of layers of equinox.nn by itself,
            and needs one of the same structure for those with classes or functions of your own.
        path: the file, by habit with the suffix .safetensors; folders on the way are made.
    """
    refuse_unless_policy(policy)
    description, arrays = serial.pack(policy)
    leaves = [leaf for leaf in jax.tree.leaves(policy) if isinstance(leaf, (jax.Array, np.ndarray))]
    if len(leaves) > len(arrays):
        raise ValueError(
            "policy holds arrays that cannot be saved: keep them as numbers, in modules, tuples, lists or dictionaries "
            "whose keys are texts."
        )
    serial.write(path, arrays, {"format": POLICY, "version": POLICY_VERSION, "policy": description})


def load_policy(path: str | Path, like: Policy | None = None) -> Policy:
    """Load a policy that `save_policy` saved; nothing in the file is executed.

    Args:
        path: the file.
        like: a policy of the same structure, needed for one with classes or functions of your own; its arrays are
            replaced by those of the file.
    """
    if like is not None:
        refuse_unless_policy(like)
    refuse_unless_path(path, "path")
    arrays, content = serial.read(path)
    if content.get("format") != POLICY:
        raise ValueError(f"{path} must have the format {POLICY}, but has {content.get('format')!r:.60}.")
    if content.get("version") != POLICY_VERSION:
        raise ValueError(
            f"{path} has version {content.get('version')!r:.20} of the format {POLICY}, but this occupax reads version "
            f"{POLICY_VERSION}; a newer occupax may read it."
        )
    try:
        policy = serial.unpack(content.get("policy"), arrays, like)
    except ValueError as error:
        raise ValueError(f"the policy in {path} could not be restored: {error}") from error
    if not isinstance(policy, Policy):
        raise ValueError(f"{path} must hold a policy, but holds a {type(policy).__name__}.")
    return policy

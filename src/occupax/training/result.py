"""What training returns, and the files of it."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from occupax import exact
from occupax.algorithms import Algorithm
from occupax.envs.tabular import TabularMDP
from occupax.errors import OccupaxWarning
from occupax.io import codec
from occupax.io.checksummed_json import write_sealed
from occupax.io.policies import save_policy
from occupax.io.run_folder import CONFIG, refuse_others_files, write_config
from occupax.policies import Policy, with_spaces
from occupax.problem import Problem
from occupax.samplers import EpisodeError
from occupax.training.assessment import (
    FILE,
    Assessment,
    References,
    assess,
    find_references,
    probabilities,
)
from occupax.training.loggers import csv_text
from occupax.training.records import RecordTable
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
    """What was found out about the policies at the end of training, if this was loaded from a
    file."""
    saved_diagnosis: tuple[Finding, ...] | None = None
    """What went wrong, likewise."""
    compare: Callable[[], References] | None = None
    """Finds out what other policies are worth, once for all results that share this function."""
    models: tuple[Any, ...] = ()
    """What the algorithm has learned of the environment, for each seed; None for most
    algorithms."""

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of a seed; by default the first. Its `predict` is for the environment of the problem."""
        return self._with_spaces(self.policies[self._place(seed)])

    def _with_spaces(self, policy: Policy) -> Policy:
        return policy if policy.spaces or not self._spaces else with_spaces(policy, self._spaces)

    @cached_property
    def _spaces(self) -> str:
        """The spaces of the environment as text; nothing where they are not known."""
        from occupax.envs.spaces import describe_spaces

        try:
            return "" if self.problem is None else describe_spaces(self.problem.env)
        except Exception:  # noqa: BLE001 - observations of several arrays, or a simulator that is not made any more
            return ""

    def model(self, seed: int | None = None) -> Any:
        """The model that a seed of `PlugIn` has learned, with its counts; by default that of the first seed."""
        found = self.models[self._place(seed)] if self.models else None
        if found is None:
            name = "this algorithm" if self.algorithm is None else type(self.algorithm).__name__
            raise ValueError(f"{name} learns no model of the environment; PlugIn does.")
        return found

    def _place(self, seed: int | None) -> int:
        if seed is not None and seed not in self.seeds:
            raise ValueError(
                f"seed must be one of {', '.join(map(str, self.seeds))}, got {seed!r}."
            )
        return 0 if seed is None else self.seeds.index(seed)

    def certificate(self, seed: int | None = None) -> exact.Certificate:
        """How far at most a seed's policy is from the best one; for tabular problems with a concave utility."""
        return exact.certificate(
            self._problem(), probabilities(self._problem(), self.policy(seed)), self._multipliers
        )

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
        return (
            {name: self.assessment.excesses[:, k] for k, name in enumerate(names)} if names else {}
        )  # pyright: ignore[reportOptionalSubscript]

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

        return short_description(self).text()

    def _repr_html_(self) -> str:
        from occupax.analysis.verdict import short_description

        return short_description(self).html()

    def to_dataframe(self) -> Any:
        """The records as a data frame of pandas: a row for each seed and record, a column for each metric."""
        pandas, shape = import_pandas(), self.steps.shape
        seeds = np.broadcast_to(np.array(self.seeds)[:, None], shape)
        columns = {
            "seed": seeds,
            "episodes": np.broadcast_to(self.episodes, shape),
            "steps": self.steps,
        }
        return pandas.DataFrame(
            {name: values.ravel() for name, values in {**columns, **self.metrics}.items()}
        )

    def report(self, path: str | Path, name: str | None = None) -> None:
        """Write a page of HTML about the training, which needs no other file.

        Args:
            path: the file, by habit with the suffix .html.
            name: what the run is called in it; by default its algorithm and its environment.
        """
        from occupax.analysis.report import write_report
        from occupax.analysis.verdict import run_name

        refuse_unless_path(path, "path")
        write_report([(run_name(self) if name is None else name, self)], path)

    @property
    def best_policy(self) -> Policy:
        """The policy of the seed with the highest of `utilities`, among those that violate the constraints least."""
        if np.isnan(self.utilities).all():
            raise ValueError("no seed has a policy whose utility is finite.")
        violation = np.zeros(len(self.seeds))
        if self.assessment.excesses is not None:
            violation = np.maximum(self.assessment.excesses, 0.0).max(1)
        least = violation <= np.nanmin(np.where(np.isnan(self.utilities), np.nan, violation))
        return self._with_spaces(
            self.policies[int(np.nanargmax(np.where(least, self.utilities, -np.inf)))]
        )

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
        codec.write_text(path / RECORDS, csv_text(self.seeds, table))
        self.save_beside_records(path)

    def save_beside_records(self, path: Path) -> None:
        """Write all but the records into a folder that has them already, more of them than are in memory perhaps."""
        (path / SUMMARY).unlink(missing_ok=True)  # what is not complete is not taken for a result
        write_config(path, self.config, self.arrays)
        for seed, policy in zip(self.seeds, self.policies, strict=True):
            save_policy(self._with_spaces(policy), path / policy_file(seed))
        files = [RECORDS, *map(policy_file, self.seeds)]
        for seed, model in zip(self.seeds, self.models, strict=False):
            if model is not None:
                description, arrays = codec.pack(model)
                codec.write(
                    path / model_file(seed), arrays, {"format": MODEL, "model": description}
                )
                files.append(model_file(seed))
        (path / FILE).unlink(missing_ok=True)
        summary: dict[str, Any] = {
            "seeds": self.seeds,
            "status": self.status,
            "seconds": self.seconds,
        }
        if self.problem is not None or self.saved_assessment is not None:
            try:
                replace(self.assessment, references=self.references).save(path)
                files.append(FILE)
                summary["diagnosis"] = [finding._asdict() for finding in self.diagnosis]
            except EpisodeError as error:
                warnings.warn(
                    f"the trained policies could not be evaluated: {error}",
                    OccupaxWarning,
                    stacklevel=2,
                )
        write_sealed(
            path / SUMMARY, summary | {"fingerprint": self.config.get("fingerprint")}, files
        )

    def _problem(self) -> Problem:
        if self.problem is None:
            raise ValueError(
                "the problem cannot be restored from a file: load_result(folder, problem=...) takes it."
            )
        return self.problem


def import_pandas() -> Any:
    """Return the module pandas, or say how to install it."""
    try:
        import pandas as pd
    except ImportError:
        raise ValueError(
            "to_dataframe() needs pandas, which is not installed: pip install pandas."
        ) from None
    return pd


def policy_file(seed: int) -> str:
    """Where in the folder of a run the policy of a seed is."""
    return f"policies/seed-{seed}.safetensors"


def model_file(seed: int) -> str:
    """Where in the folder of a run the model is that a seed has learned."""
    return f"models/seed-{seed}.safetensors"


def comparison(problem: Problem, first: Policy) -> Callable[[], References]:
    """A function that finds out what other policies of a problem are worth when it is first called."""
    return cache(partial(find_references, problem, first))

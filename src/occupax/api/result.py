"""Result of a training run: the facade above analysis and files."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occupax import exact, plot
from occupax.analysis.describe import UTILITIES, Against, plot_metric
from occupax.analysis.diagnosis import diagnose
from occupax.analysis.report import write_report
from occupax.analysis.verdict import finding_lines, headline, run_name, short, short_description
from occupax.display import Description
from occupax.envs.tabular import TabularMDP
from occupax.errors import OccupaxWarning, check_path
from occupax.exact.probabilities import probabilities
from occupax.io.results import write_outcome, write_records
from occupax.io.run_folder import CONFIG, check_foreign_files
from occupax.outcome import Assessment, Finding, Outcome, References
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers import EpisodeError
from occupax.training.assessment import assess, find_references, quick_optimum


@dataclass(frozen=True, repr=False)
class Result(Outcome):
    """Metrics and policies of the seeds of a training run, with their evaluation."""

    def policy(self, seed: int | None = None) -> Policy:
        """Return the trained policy of a seed.

        Args:
            seed: one of `seeds`, by default the first.

        Returns:
            The policy. Its `predict` uses the spaces of the environment of the problem.
        """
        return self.policies[self._index(seed)]

    def model(self, seed: int | None = None) -> Any:
        """Return the model of the environment that a seed of `PlugIn` has learned.

        Args:
            seed: one of `seeds`, by default the first.

        Returns:
            The model with its counts.

        Raises:
            ValueError: if the algorithm learns no model.
        """
        model = None
        if self.models:
            model = self.models[self._index(seed)]
        if model is None:
            name = "this algorithm"
            if self.algorithm is not None:
                name = type(self.algorithm).__name__
            raise ValueError(f"{name} learns no model of the environment; PlugIn does.")
        return model

    def certificate(self, seed: int | None = None) -> exact.Certificate:
        """Return a bound on the optimality gap of the policy of a seed.

        Args:
            seed: one of `seeds`, by default the first.

        Returns:
            The value of the policy, an upper bound on the optimum, and the gap between both.

        Raises:
            ValueError: if the problem is not tabular, or its utility is not concave.
        """
        problem = self._known_problem()
        table = probabilities(problem, self.policy(seed))
        return exact.certificate(problem, table, self._multipliers)

    @cached_property
    def _multipliers(self) -> dict[str, float] | None:
        problem = self._known_problem()
        if not problem.constraints or not isinstance(problem.env, TabularMDP):
            return None
        multipliers = exact.evaluation.best_multipliers(problem)
        names = [constraint.name for constraint in problem.constraints]
        return dict(zip(names, map(float, multipliers), strict=True))

    @cached_property
    def assessment(self) -> Assessment:
        """Evaluation of the policies, read from the file of the run or computed on first use."""
        if self.saved_assessment is not None:
            return self.saved_assessment
        return assess(self._known_problem(), self.policies)

    @property
    def utilities(self) -> Float[np.ndarray, " seed"]:
        """Utility of each policy.

        It is exact for a table, and else estimated from 1,000 new episodes (100 in Gymnasium).
        """
        return self.assessment.utilities

    @property
    def excesses(self) -> dict[str, Float[np.ndarray, " seed"]]:
        """Violation of each constraint by each policy. Negative where there is slack."""
        excesses = self.assessment.excesses
        if excesses is None:
            return {}
        names = [constraint.name for constraint in self._known_problem().constraints]
        return dict(zip(names, excesses.T, strict=True))

    @cached_property
    def references(self) -> References | None:
        """Utilities of the initial, the uniform and the optimal policy. None if unknown."""
        saved = self.saved_assessment
        if saved is not None and saved.references is not None:
            return saved.references
        if self.problem is None or self.initial_policy is None:
            return None
        return find_references(self.problem, self.initial_policy)

    @property
    def headline(self) -> str:
        """Median utility over the seeds beside the utilities of other policies, in one sentence."""
        if self._is_unknown:
            return headline(self, None)
        return headline(self, self.full_assessment)

    @cached_property
    def diagnosis(self) -> tuple[Finding, ...]:
        """Problems of the training run with their remedies. Empty for a successful run."""
        if self.saved_diagnosis is not None:
            return self.saved_diagnosis
        if self._is_unknown:
            return ()
        return diagnose(self, self.full_assessment)

    @property
    def _is_unknown(self) -> bool:
        """Whether the policies have no evaluation and no problem to compute one."""
        return self.problem is None and self.saved_assessment is None

    @property
    def full_assessment(self) -> Assessment:
        """Evaluation of the policies with the utilities of other policies."""
        return replace(self.assessment, references=self.references)

    def summary(self) -> str:
        """Return the headline and the findings of the diagnosis as several lines of text."""
        return "\n".join([self.headline, *finding_lines(self.diagnosis)])

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        try:
            kinds = [finding.kind for finding in self.diagnosis]
            return short_description(self, self.headline, kinds, self.references)
        except (EpisodeError, ValueError) as error:  # a display raises no error
            text = f"the policies could not be evaluated: {error}"
            return short_description(self, text, [], None)

    def to_dataframe(self) -> Any:
        """Return the metrics as a data frame of pandas.

        Returns:
            A row for each seed and record, a column for each metric.

        Raises:
            ValueError: if pandas is not installed.
        """
        pandas = import_pandas()
        shape = self.steps.shape
        columns = {
            "seed": np.broadcast_to(np.array(self.seeds)[:, None], shape),
            "episodes": np.broadcast_to(self.episodes, shape),
            "steps": self.steps,
            **self.metrics,
        }
        return pandas.DataFrame({name: values.ravel() for name, values in columns.items()})

    def report(self, path: str | Path, name: str | None = None) -> None:
        """Write a page of HTML about the run, which needs no other file.

        Args:
            path: the file, by convention with the suffix .html.
            name: the title of the run, by default its algorithm and its environment.
        """
        check_path(path, "path")
        if name is None:
            name = run_name(self)
        write_report([(name, self.evaluated())], path)

    @property
    def best_policy(self) -> Policy:
        """Policy with the highest utility among those that violate the constraints least."""
        if np.isnan(self.utilities).all():
            raise ValueError("no seed has a policy whose utility is finite.")
        violation = np.zeros(len(self.seeds))
        if self.assessment.excesses is not None:
            violation = np.maximum(self.assessment.excesses, 0.0).max(1)
        smallest = np.nanmin(np.where(np.isnan(self.utilities), np.nan, violation))
        utilities = np.where(violation <= smallest, self.utilities, -np.inf)
        return self.policies[int(np.nanargmax(utilities))]

    def plot(self, metric: str = "utility", against: Against = "episodes") -> Any:
        """Draw the median and the quartiles of a metric over the seeds.

        Args:
            metric: one of `metrics`.
            against: horizontal axis, the number of sampled "episodes" or of environment "steps".

        Returns:
            A Matplotlib figure.
        """
        references = None
        if metric in UTILITIES:
            references = self.references
        return plot_metric(self, metric, against=against, references=references)

    def plot_visits(self, episodes: int | None = None) -> Any:
        """Draw the visits of the best policy beside those of other policies.

        The others are the uniform and the optimal policy on a table with a layout, the optimum if
        a few seconds suffice, and else the initial policy. `ox.plot.occupancy` draws any policies.

        Args:
            episodes: number of sampled episodes, unless the problem is tabular.

        Returns:
            A Matplotlib figure.

        Raises:
            ValueError: if a table has no layout, or observations are no vectors.
        """
        problem = self._known_problem()
        best = self.best_policy
        if not isinstance(problem.env, TabularMDP):
            both = [self.initial_policy, best]
            names = ["initial policy", "best policy"]
            return plot.occupancy(problem, *both, titles=names, episodes=episodes)
        value = float(exact.value(problem, best))
        shown: list[Any] = ["uniform", best]
        titles: list[str | None] = [None, f"best policy: {short(value)}"]
        optimum = quick_optimum(problem)
        if optimum is not None:
            shown.append(optimum)
            titles.append(None)
        return plot.occupancy(problem, *shown, titles=titles)

    def save(self, folder: str | Path) -> None:
        """Write configuration, metrics, policies and evaluation. `load_result` reads them.

        Args:
            folder: a directory, which is created unless it exists.

        Raises:
            ValueError: if the directory contains files other than those of a run.
        """
        check_path(folder, "folder")
        path = Path(folder)
        check_foreign_files(path, (CONFIG,))
        write_records(self, path)
        write_outcome(self.evaluated(), path)

    def evaluated(self) -> "Result":
        """Return the result with its evaluation and its diagnosis as data.

        An environment that fails is a warning, and the result is returned unchanged.
        """
        if self._is_unknown:
            return self
        try:
            return replace(
                self, saved_assessment=self.full_assessment, saved_diagnosis=self.diagnosis
            )
        except EpisodeError as error:
            warnings.warn(
                f"the trained policies could not be evaluated: {error}",
                OccupaxWarning,
                stacklevel=3,
            )
            return self

    def _index(self, seed: int | None) -> int:
        if seed is None:
            return 0
        if seed not in self.seeds:
            seeds = ", ".join(map(str, self.seeds))
            raise ValueError(f"seed must be one of {seeds}, got {seed!r}.")
        return self.seeds.index(seed)

    def _known_problem(self) -> Problem:
        if self.problem is None:
            raise ValueError(
                "the problem cannot be restored from a file: pass it to "
                "load_result(folder, problem=...)."
            )
        return self.problem


def as_result(outcome: Outcome) -> Result:
    """Return the facade of an outcome."""
    return Result(**vars(outcome))


def import_pandas() -> Any:
    """Return the module pandas.

    Raises:
        ValueError: if pandas is not installed.
    """
    try:
        import pandas as pd  # an optional package
    except ImportError:
        raise ValueError(
            "to_dataframe() needs pandas, which is not installed: pip install pandas."
        ) from None
    return pd

"""Sweeps over hyperparameters."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from occupax.analysis import statistics
from occupax.analysis.diagnosis import learned
from occupax.api.result import Result, as_result, import_pandas
from occupax.api.training import warn_of_steep_utility
from occupax.display import Description
from occupax.errors import check_path
from occupax.forking import begin_jax_use
from occupax.io import codec
from occupax.io.files import write_text
from occupax.io.run_folder import check_foreign_files, locked
from occupax.outcome import Assessment
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.progress import ProgressBar
from occupax.samplers import Ray, Sampler
from occupax.training.assessment import assess
from occupax.training.budgets import read_budget
from occupax.training.grid import CHECKING, Base, read_grid
from occupax.training.setup import AlgorithmSource, PolicySource
from occupax.training.sweeps import run_groups, run_trials

NOTHING_LEARNED = (
    "no setting learned anything: none is clearly better than the policy that training began with"
)
QUICK = 100
"""A sweep of more points shows a progress bar while the points are checked."""
MAX_CURVES = 6
"""So many curves of a sweep are shown in a notebook, those of the best points."""


@dataclass(frozen=True, repr=False)
class Sweep:
    """Results of a sweep, one for each configuration of the grid."""

    points: tuple[dict[str, Any], ...]
    """Settings of each configuration."""
    results: tuple[Result, ...]
    """Result of each configuration."""
    problem: Problem | None = None
    """Problem in which all configurations are scored. None if each is scored in its own."""

    @cached_property
    def scores(self) -> np.ndarray:
        """Mean utility of the trained policies of each configuration over the seeds."""
        return np.array([np.mean(assessment.utilities) for assessment in self._assessments])

    @cached_property
    def learned(self) -> np.ndarray:
        """Whether each configuration learned, as far as its run is long enough to tell.

        A configuration did not learn if its diagnosis finds no progress, or if no policy is finite.
        """
        flags: list[bool] = []
        for result, score in zip(self.results, self.scores, strict=True):
            is_finite = bool(np.isfinite(score))
            flags.append(is_finite and learned(result, result.full_assessment))
        return np.array(flags)

    @cached_property
    def violations(self) -> np.ndarray:
        """Largest mean violation of a constraint by each configuration.

        It is 0 if all constraints are satisfied.
        """
        violations = np.zeros(len(self.results))
        for i, assessment in enumerate(self._assessments):
            if assessment.excesses is not None:
                violations[i] = max(0.0, *assessment.excesses.mean(0))
        return violations

    @property
    def best(self) -> int:
        """Index of the configuration with the highest score.

        Only configurations with progress and the smallest violation count.
        """
        if not self.learned.any():
            raise ValueError(f"{NOTHING_LEARNED}; `scores` has what they are worth.")
        least = self.learned & (self.violations <= self.violations[self.learned].min())
        return int(np.argmax(np.where(least, self.scores, -np.inf)))

    def to_dataframe(self) -> Any:
        """Return a data frame of pandas with a row for each configuration.

        Returns:
            Columns of the settings, `score`, `violation` and `learned`.

        Raises:
            ValueError: if pandas is not installed.
        """
        columns: dict[str, Any] = {
            name: [point[name] for point in self.points] for name in self.points[0]
        }
        columns |= {"score": self.scores, "violation": self.violations, "learned": self.learned}
        return import_pandas().DataFrame(columns)

    @cached_property
    def _assessments(self) -> list[Assessment]:
        """The assessment of each point in the problem of the sweep."""
        assessments: list[Assessment] = []
        for result in self.results:
            own = result.problem
            if self.problem is None or own is None or own.same_time_as(self.problem):
                assessments.append(result.assessment)
            else:
                assessments.append(assess(self.problem, result.policies))
        return assessments

    def __repr__(self) -> str:
        lines = [
            f"{'score':>12}  settings",
            *(f"{score:>12}  {settings}" for settings, score in self._ranking()),
        ]
        return "\n".join([*lines, *([] if self.learned.any() else [NOTHING_LEARNED])])

    def _repr_html_(self) -> str:
        title = f"Sweep over {len(self.points)} settings"
        title += "" if self.learned.any() else f": {NOTHING_LEARNED}"
        best = np.argsort(-self.scores, kind="stable")[:MAX_CURVES]
        curves = [statistics.quartiles(self.results[i].metrics["utility"])[1] for i in best]
        return Description(title, self._ranking(), curves).html()

    def _ranking(self) -> list[tuple[str, str]]:
        """The settings and the score of each point, the best first."""
        rows: list[tuple[str, str]] = []
        for i in np.argsort(-self.scores, kind="stable"):
            settings = ", ".join(f"{name}={setting}" for name, setting in self.points[i].items())
            rows.append(
                (
                    settings + ("" if self.learned[i] else "  (learned nothing)"),
                    f"{self.scores[i]:.5g}",
                )
            )
        return rows


def sweep(
    problem: ProblemSource,
    algorithm: AlgorithmSource = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    episodes: int | None = None,
    seeds: int | Iterable[int] = 1,
    seed: int = 0,
    policy: PolicySource = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    record_every: int = 1,
    sampler: Sampler | str = "auto",
    steps: int | None = None,
) -> Sweep:
    """Train with every combination of the settings in `over`.

    Settings that are numbers inside the mathematics (`step_size`, `radius`, `mixing`,
    `weight_bound`) are batched with the seeds into one program. All others (sizes, rules, policies,
    discounts) are looped over.

    Args:
        problem: as for `train`.
        algorithm: has the settings that are not swept over; a name such as "tsivr-pg" stands for
            its defaults. By default the algorithm that `train` takes for the problem.
        over: values to try for each setting: a field of the algorithm; an argument of the policy's
            initialiser, such as "policy.hidden"; "discount" or "horizon". All points are scored
            with the discount and the horizon of `problem`.
        episodes: number of trajectories that each run may sample, the same for every point. Either
            `episodes` or `steps` is required.
        seeds: how many seeds, or which; the same for every point.
        seed: of everything.
        policy: as for `train`.
        out: folder; gets one folder a point, `sweep.json`, and what is needed to go on after an
            interruption.
        resume: go on with what is in `out`.
        progress: show a progress bar.
        record_every: iterations in a record.
        sampler: as for `train`; `occupax.samplers.Ray(...)` spreads the points over a cluster, one
            a task.
        steps: number of environment steps of each run, instead of `episodes`.

    Returns:
        Settings, result and score of every point.
    """
    begin_jax_use()
    check_path(out)
    budget = read_budget(episodes, steps)
    points = read_grid(over)
    chosen = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else seeds
    on_cluster = isinstance(sampler, Ray)
    posed = as_problem(problem)
    base = Base(posed, algorithm, policy, chosen, seed, record_every, sampler)
    with ProgressBar(len(points), CHECKING, shown=progress and len(points) > QUICK) as bar:
        groups = base.groups(points, together=not on_cluster, bar=bar)
    for group in groups:
        group.setup.iterations(budget)
        warn_of_steep_utility(group.setup.problem)
    folder = None if out is None else Path(out).absolute()
    with locked(folder):
        if folder is not None:
            check_foreign_files(
                folder, ("groups", "sweep.json", *(f"point-{i}" for i in range(len(points))))
            )
        if on_cluster:
            setups = {group.numbers[0]: group.setup for group in groups}
            outcomes = run_trials(setups, sampler, budget, folder, resume, progress)
        else:
            outcomes = run_groups(groups, budget, folder, resume, progress)
        results = tuple(as_result(outcomes[i]) for i in range(len(points)))
        sweep = Sweep(tuple(points), results, posed)
        if folder is not None:
            _save(sweep, folder)
    return sweep


def _save(sweep: Sweep, folder: Path) -> None:
    """Write the result of each configuration and the summary of a sweep into a folder."""
    for i, result in enumerate(sweep.results):
        result.save(folder / f"point-{i}")
    summary: list[dict[str, Any]] = []
    for i, (point, score) in enumerate(zip(sweep.points, map(float, sweep.scores), strict=True)):
        known = score if np.isfinite(score) else None
        summary.append(
            {"folder": f"point-{i}", "score": known, "settings": codec.pack(point)[0]["dict"]}
        )
    write_text(folder / "sweep.json", json.dumps(summary, indent=1))

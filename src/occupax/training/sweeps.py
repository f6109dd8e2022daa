"""Many settings of one algorithm, in one program or as trials on a cluster, one a task."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from occupax._display import Description
from occupax._forking import begin_jax_use
from occupax.io import codec
from occupax.io.codec import Arrays, named_arrays, with_arrays_of
from occupax.io.run_folder import locked, make_config, refuse_another_run, refuse_others_files
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.progress import ProgressBar
from occupax.samplers import EpisodeError, Host, Ray, Sampler, choose_sampler
from occupax.samplers.cluster import LOSSES, Cluster, Package
from occupax.samplers.kernel import program_sampler
from occupax.samplers.wire import with_function_names, with_functions
from occupax.training.assessment import Assessment, assess
from occupax.training.grid import CHECKING, Base, Group, read_grid
from occupax.training.loading import load_result
from occupax.training.loop import paid_iterations, run
from occupax.training.result import SUMMARY, Result, comparison, import_pandas
from occupax.training.setup import (
    AlgorithmSource,
    PolicySource,
    Setup,
    given_episodes,
    refuse_unless_path,
)

NOTHING_LEARNED = (
    "no setting learned anything: none is clearly better than the policy that training began with"
)
QUICK = 100
"""A sweep of more points shows a progress bar while the points are checked."""
MOST_CURVES = 6
"""So many curves of a sweep are shown in a notebook, those of the best points."""
RESUME_HINT = "repeat the sweep with resume=True (on the command line: --resume)"


@dataclass(frozen=True, repr=False)
class Sweep:
    """The results of a sweep, one for each point of the grid."""

    points: tuple[dict[str, Any], ...]
    """The settings of each point."""
    results: tuple[Result, ...]
    problem: Problem | None = None
    """The problem in which all points are scored; None if each is scored in its own."""

    @cached_property
    def scores(self) -> np.ndarray:
        """The mean utility of the trained policies of each point, over the seeds; see `Result.utilities`."""
        return np.array([np.mean(assessment.utilities) for assessment in self._assessments])

    @cached_property
    def learned(self) -> np.ndarray:
        """Whether each point learned anything; one that is too short to tell counts as if it had.

        It did not if its diagnosis finds no progress, or if no policy is finite.
        """
        from occupax.analysis.diagnosis import learned

        some = zip(self.results, self.scores, strict=True)
        return np.array([bool(np.isfinite(score)) and learned(result) for result, score in some])

    @cached_property
    def violations(self) -> np.ndarray:
        """The largest mean violation of a constraint over the seeds of each point; 0 where all are satisfied."""
        violations = np.zeros(len(self.results))
        for i, assessment in enumerate(self._assessments):
            if assessment.excesses is not None:
                violations[i] = max(0.0, *assessment.excesses.mean(0))
        return violations

    @property
    def best(self) -> int:
        """The number of the point with the highest score, of those that learned anything and violate limits least."""
        if not self.learned.any():
            raise ValueError(f"{NOTHING_LEARNED}; `scores` has what they are worth.")
        least = self.learned & (self.violations <= self.violations[self.learned].min())
        return int(np.argmax(np.where(least, self.scores, -np.inf)))

    def to_dataframe(self) -> Any:
        """Return a data frame of pandas with a row for each point: its settings, `score`, `violation` and `learned`."""
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
        from occupax.analysis import statistics

        best = np.argsort(-self.scores, kind="stable")[:MOST_CURVES]
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
        episodes: trajectories each run may sample; the same for every point. It must be given.
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

    Returns:
        Settings, result and score of every point.
    """
    begin_jax_use()
    refuse_unless_path(out)
    budget = given_episodes(episodes)
    points = read_grid(over)
    chosen = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else seeds
    on_cluster = isinstance(sampler, Ray)
    posed = as_problem(problem)
    base = Base(posed, algorithm, policy, chosen, seed, record_every, sampler)
    with ProgressBar(len(points), CHECKING, shown=progress and len(points) > QUICK) as bar:
        groups = base.groups(points, together=not on_cluster, bar=bar)
    for group in groups:
        paid_iterations(group.setup, budget)
    folder = None if out is None else Path(out).absolute()
    with locked(folder):
        if folder is not None:
            refuse_others_files(
                folder, ("groups", "sweep.json", *(f"point-{i}" for i in range(len(points))))
            )
        if on_cluster:
            setups = {group.numbers[0]: group.setup for group in groups}
            results = _run_trials(setups, sampler, budget, folder, resume, progress)
        else:
            results = _run_groups(groups, budget, folder, resume, progress)
        done = Sweep(tuple(points), tuple(results[i] for i in range(len(points))), posed)
        if folder is not None:
            _save(done, folder)
    return done


def _run_groups(
    groups: list[Group], episodes: int, out: Path | None, resume: bool, progress: bool
) -> dict[int, Result]:
    """The result of each point, by its number; the points of a group are one program."""
    results: dict[int, Result] = {}
    for number, group in enumerate(groups):
        folder = None if out is None else out / "groups" / str(number)
        trained = run(group.setup, episodes, (), folder, resume, progress, resume_hint=RESUME_HINT)
        results |= dict(zip(group.numbers, trained, strict=True))
    return results


def _run_trials(
    setups: Mapping[int, Setup],
    sampler: Ray,
    episodes: int,
    out: Path | None,
    resume: bool,
    progress: bool,
) -> dict[int, Result]:
    """Run set-ups of one algorithm each. Those that end are saved in `out` at once and, to resume, not run again."""
    results: dict[int, Result] = {}
    for i, setup in sorted(setups.items()):
        if out is not None:
            folder = out / f"point-{i}"
            refuse_another_run(folder, *make_config(setup, episodes), resume)
            if (folder / SUMMARY).exists():
                saved = load_result(folder, setup.problem, setup.policies[0])
                has = saved.config["episodes"]
                if has > episodes:
                    raise ValueError(
                        f"episodes is {episodes:,}, but the run in {folder} has {has:,} already."
                    )
                if has == episodes:
                    results[i] = replace(saved, algorithm=setup.algorithms[0])
    left = {i: setup for i, setup in setups.items() if i not in results}
    with ProgressBar(len(setups), "trials", len(results), progress) as bar:
        for i, result in _run_tasks(left, sampler, episodes):
            results[i] = result
            if out is not None:
                result.save(out / f"point-{i}")
            bar.update(len(results), f"{len(results)} of {len(setups)} trials")
    return results


def _run_tasks(
    setups: dict[int, Setup], sampler: Ray, episodes: int
) -> Iterator[tuple[int, Result]]:
    """The results of set-ups with their numbers, in the order in which they end."""
    if not setups:
        return
    cluster = Cluster(sampler.address, sampler.workers)
    from ray.exceptions import RayTaskError

    under_way: dict[Any, int] = {}
    try:
        trial = cluster.ray.remote(num_cpus=1, max_retries=LOSSES, scheduling_strategy="SPREAD")(
            _trial
        )
        double = bool(jax.config.read("jax_enable_x64"))
        for i, setup in setups.items():
            under_way[trial.remote(cluster.send(_to_send(setup, sampler), episodes, double))] = i
        failed: list[str] = []
        while under_way:
            for done in cluster.ray.wait(list(under_way), num_returns=1)[0]:
                i = under_way.pop(done)
                try:
                    result, policies = cluster.ray.get(done)
                except RayTaskError as error:
                    failed.append(f"point {i}: {error.cause}")
                    continue
                yield i, _received(result, policies, setups[i], episodes)
        if failed:
            raise EpisodeError(" ".join(failed))
    finally:
        for task in under_way:
            cluster.ray.cancel(task, force=True)
        cluster.close()


def _to_send(setup: Setup, sampler: Ray) -> Setup:
    """A set-up that can be sent, and that a worker samples as it would without a cluster."""
    given = setup.problem, setup.policies[0]
    on_host = isinstance(choose_sampler("auto", *given), Host)
    alone = sampler.host if on_host else program_sampler(*given, sampler.engine)
    return replace(setup, policies=tuple(map(with_function_names, setup.policies)), sampler=alone)


def _trial(package: Package) -> tuple[Result, list[Arrays]]:
    """Run a set-up that was sent; send back what the other side does not have."""
    setup, episodes, double = package.open()
    with jax.enable_x64(double):
        setup = replace(setup, policies=tuple(map(with_functions, setup.policies)))
        try:
            result = run(setup, episodes, progress=False)[0]
        except EpisodeError as error:
            raise error.__cause__ or error from None  # how far it came is known over there
        bare = replace(
            result, problem=None, algorithm=None, policies=(), config={}, arrays={}, compare=None
        )
        return bare, [named_arrays(policy) for policy in result.policies]


def _received(result: Result, policies: list[Arrays], setup: Setup, episodes: int) -> Result:
    config, arrays = make_config(setup, episodes)
    trained = tuple(
        with_arrays_of(first, sent) for first, sent in zip(setup.policies, policies, strict=True)
    )
    made = {
        "config": config,
        "arrays": arrays,
        "compare": comparison(setup.problem, setup.policies[0]),
    }
    return replace(
        result, problem=setup.problem, algorithm=setup.algorithms[0], policies=trained, **made
    )


def _save(done: Sweep, folder: Path) -> None:
    for i, result in enumerate(done.results):
        result.save(folder / f"point-{i}")
    summary: list[dict[str, Any]] = []
    for i, (point, score) in enumerate(zip(done.points, map(float, done.scores), strict=True)):
        known = score if np.isfinite(score) else None
        summary.append(
            {"folder": f"point-{i}", "score": known, "settings": codec.pack(point)[0]["dict"]}
        )
    codec.write_text(folder / "sweep.json", json.dumps(summary, indent=1))

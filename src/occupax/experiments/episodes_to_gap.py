"""Episodes to a given exact gap for each method, against step size and batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis.charts import Chart, Series
from occupax.analysis.text_table import TextTable
from occupax.experiments import cells, convergence, methods, tuning
from occupax.experiments.cells import SUSTAINED, describe_task
from occupax.experiments.inference import Answer, is_later, median
from occupax.experiments.methods import OURS, PLAIN, REWARD
from occupax.experiments.scale import Scale
from occupax.experiments.sections import (
    Claim,
    Section,
    claim,
    names_with,
    parts,
    shown,
    table,
    text,
)
from occupax.experiments.small import small_problems
from occupax.experiments.tasks import LAKE, Task, tasks
from occupax.jobs import Job, JobResult, file_name
from occupax.training.loggers import Logger

SNAPSHOTS = (32, 512)
RADII = (inf, 0.1)
"""Radii of TSIVR-PG. Without one, it is SRVR-PG for a reward."""
FRACTIONS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01)
"""Gaps relative to that of the initial policy."""
TABLE_FRACTIONS = (0.5, 0.1, 0.03, 0.01)
HEADLINE = 0.1
"""Gap of titles and claims."""
SEEDS = 10
RECORDS = 240
LOOK = {method: i for i, method in enumerate(REWARD)}

Key = tuple[str, str]
"""Problem and method."""


class MapProblem(NamedTuple):
    """Problem of the map with its step sizes and budget."""

    task: Task
    optimum: float
    uniform: float
    """Value of the uniform policy."""
    step_sizes: tuple[float, ...]
    episodes: int

    def gaps(self) -> Float[np.ndarray, " fraction"]:
        """Return the gaps to reach."""
        return np.array(FRACTIONS) * (self.optimum - self.uniform)


def map_problems() -> dict[str, MapProblem]:
    """Return the problems of the map by name."""
    problems: dict[str, MapProblem] = {}
    for name, problem in small_problems().items():
        task = convergence.task_of(name)
        step_sizes = _step_sizes(0.01)
        problems[name] = MapProblem(task, problem.optimum, task.uniform, step_sizes, 300_000)
    lake = tasks()[LAKE]
    problems[LAKE] = MapProblem(lake, lake.optimum, lake.uniform, _step_sizes(0.3), 400_000)
    return problems


def _step_sizes(low: float) -> tuple[float, ...]:
    return tuple(float(f"{low * tuning.FACTOR**k:.3g}") for k in range(6))


def settings(name: str, method: str) -> list[dict[str, Any]]:
    """Return the settings of a method on a problem, for each N."""
    step_sizes = map_problems()[name].step_sizes
    if method != OURS:
        return [{"step_size": step_size} for step_size in step_sizes]
    return [
        {"step_size": step_size, "radius": radius}
        for radius, step_size in product(RADII, step_sizes)
    ]


def jobs(scale: Scale) -> dict[Key, Job]:
    """Return the job of each problem and method."""
    by_key: dict[Key, Job] = {}
    for name, problem in map_problems().items():
        episodes = scale.episodes(problem.episodes)
        seeds = scale.seeds(SEEDS)
        snapshots = list(scale.some(SNAPSHOTS, 2))
        for method in scale.some(REWARD, 2):
            tried = settings(name, method)
            description = {
                **describe_task(problem.task),
                "method": method,
                "episodes": episodes,
                "seeds": seeds,
                "N": snapshots,
                "settings": [str(setting) for setting in tried],
                "fractions": list(FRACTIONS),
            }
            seconds = 8.0 + episodes * seeds * len(snapshots) * len(tried) / 5e5
            work = partial(_episodes_to_gaps, name, method, snapshots, episodes, seeds)
            job_name = f"episodes-to-gap-{file_name(name, method)}"
            by_key[name, method] = Job(job_name, description, seconds, work)
    return by_key


def _episodes_to_gaps(
    name: str, method: str, snapshots: Sequence[int], episodes: int, seeds: int, logger: Logger
) -> JobResult:
    """Return the episodes until the gap is at most each fraction of the first one, and stays."""
    problem = map_problems()[name]
    thresholds = problem.optimum - problem.gaps()
    times: list[Any] = []
    for snapshot in snapshots:
        results = cells.train_and_evaluate(
            problem.task,
            [methods.make(method, snapshot, **setting) for setting in settings(name, method)],
            episodes,
            range(seeds),
            tuning.SEED,
            RECORDS,
            logger,
        )
        times += [
            [result.episodes_to(level, exact=True) for level in thresholds] for result in results
        ]
    shape = (len(snapshots), -1, len(FRACTIONS), seeds)
    return JobResult({"times": np.array(times).reshape(shape)})


class Envelope(NamedTuple):
    """Best setting for each gap, by the median over the seeds."""

    medians: Float[np.ndarray, " fraction"]
    times: Float[np.ndarray, "fraction seed"]
    """Episodes of the best setting."""
    settings: list[str]

    def setting_text(self, k: int) -> str:
        """Return the best setting for a gap, empty if none reaches it."""
        if np.isfinite(self.medians[k]):
            return self.settings[k]
        return ""

    def median_text(self, fraction: float) -> str:
        """Return the median episodes to a gap with its interval."""
        return shown(median(self.times[FRACTIONS.index(fraction)]))


def envelope(
    name: str, method: str, times: Float[np.ndarray, "N setting fraction seed"]
) -> Envelope:
    """Return the lower envelope over the settings."""
    names: list[str] = []
    for snapshot, setting in product(SNAPSHOTS, settings(name, method)):
        label = f"N {snapshot}, eta {setting['step_size']:g}"
        radius = setting.get("radius", inf)
        if radius < inf:
            label += f", delta {radius:g}"
        names.append(label)
    flat = times.reshape(-1, *times.shape[2:])
    medians = np.sort(flat, axis=2)[..., flat.shape[2] // 2]
    best = medians.argmin(0)
    best_times = flat[best, np.arange(len(FRACTIONS))]
    return Envelope(medians.min(0), best_times, [names[index] for index in best])


def sections(results: Mapping[Key, JobResult]) -> list[Section]:
    """Return the section of the report about the map."""
    figures: list[Chart] = []
    rows: list[list[str]] = []
    settings_rows: list[list[str]] = []
    claims: list[Claim] = []
    answers: dict[str, Answer] = {}
    lower: list[str] = []
    for name in map_problems():
        envelopes = _envelopes(name, results)
        figures += _charts(name, envelopes)
        tests: dict[str, Answer] = {}
        for fraction in TABLE_FRACTIONS:
            k = FRACTIONS.index(fraction)
            percent = f"{fraction:.0%}"
            ours = envelopes[OURS]
            plain = envelopes[PLAIN]
            answer = is_later(plain.times[k], ours.times[k], len(TABLE_FRACTIONS))
            tests[percent] = answer
            answers[f"{name} at {percent}"] = answer
            medians = [best.median_text(fraction) for best in envelopes.values()]
            word = {True: "fewer", False: "more", None: "cannot tell"}[answer]
            rows.append([name, percent, *medians, word])
            settings_rows.append(
                [name, percent, *(best.setting_text(k) for best in envelopes.values())]
            )
            if ours.medians[k] < plain.medians[k]:
                lower.append(f"{name} at {percent}")
        claims.append(_claim(name, envelopes, tests))
    words = text(
        "sections",
        "payoff",
        sustained=SUSTAINED,
        count=len(SNAPSHOTS) * 6,
        rows=len(rows),
        fewer=_counted(names_with(answers, True)),
        more=_counted(names_with(answers, False)),
        lower=_counted(lower),
    )
    labels = list(dict.fromkeys(method for _, method in results))
    tables = [
        _with_columns(table("payoff", rows), labels),
        _with_columns(table("payoff-settings", settings_rows), labels),
    ]
    return [Section(**words, claims=claims, figures=figures, tables=tables)]


def _envelopes(name: str, results: Mapping[Key, JobResult]) -> dict[str, Envelope]:
    return {
        method: envelope(name, method, result.arrays["times"])
        for (problem, method), result in results.items()
        if problem == name
    }


def _with_columns(listed: TextTable, labels: Sequence[str]) -> TextTable:
    """Return a table whose header has labels of methods after the first two columns."""
    return replace(listed, header=[*listed.header[:2], *labels, *listed.header[2:]])


def _counted(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return f"{len(names)} ({', '.join(names)})"


def _claim(name: str, envelopes: Mapping[str, Envelope], tests: Mapping[str, Answer]) -> Claim:
    medians = [f"{method} {best.median_text(HEADLINE)}" for method, best in envelopes.items()]
    measured = (
        f"Median episodes to {HEADLINE:.0%} of the first gap: {', '.join(medians)}.{parts(tests)}"
    )
    on = f"{name}, the best of the map's settings for each gap"
    return claim("reduction", tests, measured, on)


def _charts(name: str, envelopes: Mapping[str, Envelope]) -> list[Chart]:
    """Return the envelopes of the methods that reach any gap, no chart if none does."""
    x = map_problems()[name].gaps()[::-1]
    series: list[Series] = []
    for method, best in envelopes.items():
        if np.isfinite(best.medians).any():
            medians = np.where(np.isfinite(best.medians), np.maximum(best.medians, 1), np.nan)
            series.append(Series(method, x, medians[::-1]))
    if not series:
        return []
    headline = FRACTIONS.index(HEADLINE)
    first = min(envelopes, key=lambda method: envelopes[method].medians[headline])
    title = "payoff-never"
    if np.isfinite(envelopes[first].medians[headline]):
        title = "payoff"
    chart = Chart(
        file_name("payoff", name),
        text("titles", title, problem=name, first=first, share=HEADLINE),
        text("captions", "payoff"),
        "gap to the optimum",
        "episodes",
        tuple(series),
        log=True,
        look=LOOK,
    )
    return [chart]

"""Does variance reduction pay? Episodes to a given exact gap, for each method, against step size and batch."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis.charts import Chart, Series
from occupax.experiments import methods, tuning
from occupax.experiments.cells import SUSTAINED, described, judged, slug
from occupax.experiments.convergence import task_of
from occupax.experiments.figures import table
from occupax.experiments.inference import later, median
from occupax.experiments.methods import OURS, PLAIN
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, shown, text
from occupax.experiments.small import GARNET, SMALL_LAKE, small_problems
from occupax.experiments.store import Arrays, Unit
from occupax.experiments.tasks import LAKE, Task, tasks

COMPARED = (OURS, PLAIN)
"""TSIVR-PG has no radius here, and for a reward it is then SRVR-PG."""
SNAPSHOTS = (16, 128, 1024)
SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01)
"""The gaps, as shares of that of the first policy."""
TOLD = (0.5, 0.1, 0.03, 0.01)
"""The shares of which the table tells."""
SEEDS, RECORDS = 5, 60


class Ground(NamedTuple):
    """A problem of the map, with its step sizes and episodes."""

    task: Task
    optimum: float
    first: float
    """What the uniform policy is worth."""
    step_sizes: tuple[float, ...]
    episodes: int


def grounds() -> dict[str, Ground]:
    """The problems of the map; step sizes are a factor of sqrt(10) apart."""

    def sizes(low: float) -> tuple[float, ...]:
        return tuple(float(f"{low * tuning.FACTOR**k:.3g}") for k in range(6))

    made: dict[str, Ground] = {}
    for name in (GARNET, SMALL_LAKE):
        task = task_of(name)
        made[name] = Ground(task, small_problems()[name].optimum, task.uniform, sizes(0.01), 40_000)
    lake = tasks()[LAKE]
    made[LAKE] = Ground(lake, lake.optimum, lake.uniform, sizes(0.3), 100_000)
    return made


def units(scale: Scale) -> dict[tuple[str, str], Unit]:
    """The work for each problem and method."""
    made: dict[tuple[str, str], Unit] = {}
    for name, ground in grounds().items():
        episodes, seeds = scale.episodes(ground.episodes), scale.seeds(SEEDS)
        for method in scale.some(COMPARED, 2):
            snapshots = list(scale.some(SNAPSHOTS, 2))
            about = {"method": method, "episodes": episodes, "seeds": seeds, "N": snapshots,
                     "step sizes": list(ground.step_sizes), "shares": list(SHARES)}  # fmt: skip
            seconds = 8.0 + episodes * seeds * len(snapshots) * len(ground.step_sizes) / 5e5
            work = partial(_times, name, method, snapshots, episodes, seeds)
            made[name, method] = Unit(f"payoff-{slug(name, method)}", described(ground.task) | about, seconds, work)
    return made


def _times(name: str, method: str, snapshots: Sequence[int], episodes: int, seeds: int, logger: Any) -> Arrays:
    """Episodes until the gap is at most each share of the first one, and stays so for the next record."""
    ground = grounds()[name]
    levels = ground.optimum - np.array(SHARES) * (ground.optimum - ground.first)
    found = np.empty((len(snapshots), len(ground.step_sizes), len(SHARES), seeds))
    for i, snapshot in enumerate(snapshots):
        algorithms = [methods.make(method, snapshot, step_size=size) for size in ground.step_sizes]
        for j, it in enumerate(judged(ground.task, algorithms, episodes, range(seeds), tuning.SEED, RECORDS, logger)):
            found[i, j] = [it.reached(level, exact=True) for level in levels]
    return {"times": found}


class Envelope(NamedTuple):
    """The best setting for each gap, by the median over the seeds."""

    medians: Float[np.ndarray, " share"]
    times: Float[np.ndarray, "share seed"]
    """Those of the best setting."""
    settings: list[str]


def envelope(name: str, times: Float[np.ndarray, "N eta share seed"]) -> Envelope:
    """The lower envelope over the settings."""
    medians = np.sort(times, axis=3)[..., times.shape[3] // 2]
    flat = medians.reshape(-1, len(SHARES))
    place = flat.argmin(0)
    best, sizes = times.reshape(-1, *times.shape[2:]), grounds()[name].step_sizes
    chosen = [f"N {SNAPSHOTS[at // len(sizes)]}, eta {sizes[at % len(sizes)]:g}" for at in place]
    return Envelope(flat.min(0), best[place, np.arange(len(SHARES))], chosen)


def sections(done: Mapping[tuple[str, str], Arrays]) -> list[Section]:
    """What the report says of the map."""
    figures: list[Chart] = []
    rows: list[list[str]] = []
    for name, ground in grounds().items():
        found = {method: envelope(name, done[name, method]["times"]) for method in COMPARED if (name, method) in done}
        first = ground.optimum - ground.first
        x = np.array(SHARES)[::-1] * first
        known = {method: it for method, it in found.items() if np.isfinite(it.medians).any()}
        series = [
            Series(method, x, np.where(np.isfinite(it.medians), it.medians, np.nan)[::-1])
            for method, it in known.items()
        ]
        kind = slug("payoff", name)
        if series:
            figures.append(
                Chart(
                    kind,
                    text("titles", kind),
                    text("captions", "payoff"),
                    "gap to the optimum",
                    "episodes",
                    tuple(series),
                    log=True,
                )
            )
        ours, plain = found[OURS], found[PLAIN]
        for k, share in ((SHARES.index(it), it) for it in TOLD):
            fewer = later(plain.times[k], ours.times[k], len(grounds()) * len(TOLD))
            times = [shown(median(it.times[k])) for it in (ours, plain)]
            settings = [it.settings[k] if np.isfinite(it.medians[k]) else "" for it in (ours, plain)]
            answer = {True: "fewer", False: "more", None: "cannot tell"}[fewer]
            rows.append([name, f"{share:.0%}", *times, *settings, answer])
    told = [row[-1] for row in rows]
    values = {"count": len(SNAPSHOTS) * 6, "rows": len(rows), "fewer": told.count("fewer"), "more": told.count("more")}
    words = text("sections", "payoff", sustained=SUSTAINED, **values)
    return [Section(**words, figures=[figures], tables=[table("payoff", rows)])]

"""Does variance reduction pay? Episodes to a given exact gap, for each method, against step size and batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.analysis.charts import Chart, Series
from occupax.experiments import methods, tuning
from occupax.experiments.cells import SUSTAINED, described, judged, slug
from occupax.experiments.convergence import task_of
from occupax.experiments.figures import table
from occupax.experiments.inference import later, median
from occupax.experiments.methods import OURS, PLAIN, REWARD
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, claim, parts, shown, text
from occupax.experiments.small import small_problems
from occupax.experiments.store import Arrays, Unit
from occupax.experiments.tasks import LAKE, Task, tasks

SNAPSHOTS = (32, 512)
RADII = (inf, 0.1)
"""TSIVR-PG is tried without and with a radius; without one, for a reward, it is SRVR-PG."""
SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01)
"""The gaps, as shares of that of the first policy."""
TOLD = (0.5, 0.1, 0.03, 0.01)
"""The shares of which the table tells."""
HEADLINE = 0.1
"""The share that titles and claims speak of."""
SEEDS, RECORDS = 10, 240
LOOK = {method: i for i, method in enumerate(REWARD)}


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
    for name, small in small_problems().items():
        task = task_of(name)
        made[name] = Ground(task, small.optimum, task.uniform, sizes(0.01), 300_000)
    lake = tasks()[LAKE]
    made[LAKE] = Ground(lake, lake.optimum, lake.uniform, sizes(0.3), 400_000)
    return made


def settings(name: str, method: str) -> list[dict[str, Any]]:
    """The settings of a method on a problem, for each N."""
    sizes = grounds()[name].step_sizes
    if method != OURS:
        return [{"step_size": size} for size in sizes]
    return [{"step_size": size, "radius": radius} for radius, size in product(RADII, sizes)]


def units(scale: Scale) -> dict[tuple[str, str], Unit]:
    """The work for each problem and method."""
    made: dict[tuple[str, str], Unit] = {}
    for name, ground in grounds().items():
        episodes, seeds = scale.episodes(ground.episodes), scale.seeds(SEEDS)
        for method in scale.some(REWARD, 2):
            snapshots, tried = list(scale.some(SNAPSHOTS, 2)), settings(name, method)
            about = {"method": method, "episodes": episodes, "seeds": seeds, "N": snapshots,
                     "settings": [str(it) for it in tried], "shares": list(SHARES)}  # fmt: skip
            seconds = 8.0 + episodes * seeds * len(snapshots) * len(tried) / 5e5
            work = partial(_times, name, method, snapshots, episodes, seeds)
            made[name, method] = Unit(
                f"payoff-{slug(name, method)}", described(ground.task) | about, seconds, work
            )
    return made


def _times(
    name: str, method: str, snapshots: Sequence[int], episodes: int, seeds: int, logger: Any
) -> Arrays:
    """Episodes until the gap is at most each share of the first one, and stays so for the next record."""
    ground, tried = grounds()[name], settings(name, method)
    levels = ground.optimum - np.array(SHARES) * (ground.optimum - ground.first)
    found = np.empty((len(snapshots), len(tried), len(SHARES), seeds))
    for i, snapshot in enumerate(snapshots):
        algorithms = [methods.make(method, snapshot, **it) for it in tried]
        for j, it in enumerate(
            judged(ground.task, algorithms, episodes, range(seeds), tuning.SEED, RECORDS, logger)
        ):
            found[i, j] = [it.reached(level, exact=True) for level in levels]
    return {"times": found}


class Envelope(NamedTuple):
    """The best setting for each gap, by the median over the seeds."""

    medians: Float[np.ndarray, " share"]
    times: Float[np.ndarray, "share seed"]
    """Those of the best setting."""
    settings: list[str]


def envelope(name: str, method: str, times: Float[np.ndarray, "N setting share seed"]) -> Envelope:
    """The lower envelope over the settings."""
    medians = np.sort(times, axis=3)[..., times.shape[3] // 2]
    flat, tried = medians.reshape(-1, len(SHARES)), settings(name, method)
    place = flat.argmin(0)
    best = times.reshape(-1, *times.shape[2:])
    chosen = [_described(SNAPSHOTS[at // len(tried)], **tried[at % len(tried)]) for at in place]
    return Envelope(flat.min(0), best[place, np.arange(len(SHARES))], chosen)


def _described(snapshot: int, step_size: float, radius: float = inf) -> str:
    cut = "" if radius == inf else f", delta {radius:g}"
    return f"N {snapshot}, eta {step_size:g}{cut}"


def sections(done: Mapping[tuple[str, str], Arrays]) -> list[Section]:
    """What the report says of the map."""
    figures: list[Chart] = []
    rows: list[list[str]] = []
    settings_rows: list[list[str]] = []
    claims: list[Claim] = []
    answers: dict[str, bool | None] = {}
    lower: list[str] = []
    for name in grounds():
        found = {
            method: envelope(name, method, it["times"])
            for (of, method), it in done.items()
            if of == name
        }
        figures += _chart(name, found)
        tests: dict[str, bool | None] = {}
        for k, share in ((SHARES.index(it), it) for it in TOLD):
            tests[f"{share:.0%}"] = later(found[PLAIN].times[k], found[OURS].times[k], len(TOLD))
            rows.append([name, f"{share:.0%}", *(shown(median(it.times[k])) for it in found.values()),
                         {True: "fewer", False: "more", None: "cannot tell"}[tests[f"{share:.0%}"]]])  # fmt: skip
            best = [it.settings[k] if np.isfinite(it.medians[k]) else "" for it in found.values()]
            settings_rows.append([name, f"{share:.0%}", *best])
            lower += (
                [f"{name} at {share:.0%}"]
                if found[OURS].medians[k] < found[PLAIN].medians[k]
                else []
            )
        answers |= {f"{name} at {share}": test for share, test in tests.items()}
        at = SHARES.index(HEADLINE)
        times = ", ".join(f"{method} {shown(median(it.times[at]))}" for method, it in found.items())
        measured = f"Median episodes to {HEADLINE:.0%} of the first gap: {times}.{parts(tests)}"
        claims.append(
            claim(
                "reduction", tests, measured, f"{name}, the best of the map's settings for each gap"
            )
        )
    named = {of: [name for name, test in answers.items() if test is of] for of in (True, False)}
    values = {"count": len(SNAPSHOTS) * 6, "rows": len(rows), "fewer": _listed(named[True]),
              "more": _listed(named[False]), "lower": _listed(lower)}  # fmt: skip
    words, shown_ones = (
        text("sections", "payoff", sustained=SUSTAINED, **values),
        [method for _, method in done],
    )
    header = list(dict.fromkeys(shown_ones))
    tables = [replace(it, header=[*it.header[:2], *header, *it.header[2:]]) for it in
              (table("payoff", rows), table("payoff-settings", settings_rows))]  # fmt: skip
    return [Section(**words, claims=claims, figures=figures, tables=tables)]


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _chart(name: str, found: Mapping[str, Envelope]) -> list[Chart]:
    """The envelopes of all methods that reach any of the gaps; nothing if none does."""
    ground, at = grounds()[name], SHARES.index(HEADLINE)
    x = np.array(SHARES)[::-1] * (ground.optimum - ground.first)
    series = [
        Series(
            method, x, np.where(np.isfinite(it.medians), np.maximum(it.medians, 1), np.nan)[::-1]
        )
        for method, it in found.items()
        if np.isfinite(it.medians).any()
    ]
    if not series:
        return []
    first = min(found, key=lambda method: found[method].medians[at])
    reached = np.isfinite(found[first].medians[at])
    kind = slug("payoff", name)
    title = text(
        "titles", "payoff" if reached else "payoff-never", problem=name, first=first, share=HEADLINE
    )
    words = title, text("captions", "payoff"), "gap to the optimum", "episodes"
    return [Chart(kind, *words, tuple(series), log=True, look=LOOK)]

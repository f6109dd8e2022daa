"""Many settings of one algorithm."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax._errors import unknown
from occupax.algorithms import Algorithm
from occupax.problem import Problem
from occupax.samplers import Ray, Sampler
from occupax.training.execution import same_program
from occupax.training.loop import paid_iterations, run
from occupax.training.result import Result
from occupax.training.setup import PolicySource, Setup, make_setup, refuse_unless_algorithm, refuse_unless_path
from occupax.training.trials import run_trials

RESUME_HINT = "repeat the sweep with resume=True (on the command line: --resume)"


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep, one for each point of the grid."""

    points: tuple[dict[str, Any], ...]
    """The settings of each point."""
    results: tuple[Result, ...]

    @cached_property
    def scores(self) -> np.ndarray:
        """The mean over the seeds of what the trained policies are worth (`Result.utilities`), for each point."""
        return np.array([np.mean(result.utilities) for result in self.results])

    @property
    def best(self) -> int:
        """The number of the point with the highest score."""
        return int(np.nanargmax(self.scores))

    def __str__(self) -> str:
        scores = self.scores
        lines = [f"{'score':>12}  settings"]
        for i in np.argsort(-scores, kind="stable"):
            settings = ", ".join(f"{name}={setting}" for name, setting in self.points[i].items())
            lines.append(f"{scores[i]:12.5g}  {settings}")
        return "\n".join(lines)


def sweep(
    problem: Problem,
    algorithm: Algorithm[Any],
    over: Mapping[str, Sequence[Any]],
    episodes: int,
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

    Settings that are numbers inside the mathematics (`step_size`, `radius`, `mixing`, `weight_bound`) are batched with
    the seeds into one program; those that change its shape (sizes, rules) are looped over.

    Args:
        problem: what to maximise, and where.
        algorithm: has the settings that are not swept over.
        over: values to try for each field of the algorithm.
        episodes: trajectories each run may sample; the same for every point.
        seeds: how many seeds, or which; the same for every point.
        seed: of everything.
        policy: as for `train`.
        out: folder; gets one folder a point, `sweep.json`, and what is needed to go on after an interruption.
        resume: go on with what is in `out`.
        progress: show a progress bar.
        record_every: iterations in a record.
        sampler: as for `train`; `occupax.samplers.Ray(...)` spreads the points over a cluster, one a task.
    """
    refuse_unless_algorithm(algorithm)
    refuse_unless_path(out)
    points = _grid(algorithm, over)
    variants = [dataclasses.replace(algorithm, **point) for point in points]
    chosen = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else seeds
    on_cluster = isinstance(sampler, Ray)
    groups = [[i] for i in range(len(variants))] if on_cluster else _groups(variants)
    setups = [
        make_setup(problem, [variants[i] for i in members], policy, chosen, seed, record_every, False, sampler)
        for members in groups
    ]
    for setup in setups:
        paid_iterations(setup, episodes)
    if on_cluster:
        folder = None if out is None else Path(out)
        results = dict(enumerate(run_trials(setups, sampler, episodes, folder, resume, progress)))
    else:
        results = _run_groups(groups, setups, episodes, out, resume, progress)
    done = Sweep(tuple(points), tuple(results[i] for i in range(len(points))))
    if out is not None:
        _save(done, Path(out))
    return done


def _run_groups(
    groups: list[list[int]], setups: list[Setup], episodes: int, out: str | Path | None, resume: bool, progress: bool
) -> dict[int, Result]:
    """The result of each point, by its number; the points of a group are one program."""
    results: dict[int, Result] = {}
    for number, (members, setup) in enumerate(zip(groups, setups, strict=True)):
        folder = None if out is None else Path(out) / "groups" / str(number)
        made = run(setup, episodes, (), folder, resume, progress, resume_hint=RESUME_HINT)
        results |= dict(zip(members, made, strict=True))
    return results


def _grid(algorithm: Algorithm[Any], over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    if not isinstance(over, Mapping) or not over:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"over must be values to try for each setting, such as {{'step_size': [0.1]}}, got {over!r:.60}."
        )
    fields = {field.name for field in dataclasses.fields(algorithm)}
    tried: dict[str, list[Any]] = {}
    for name, values in over.items():
        if name not in fields:
            raise unknown("setting", name, fields)
        several = isinstance(values, Iterable) and not isinstance(values, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        tried[name] = [_plain(value) for value in values] if several else []
        if not tried[name]:
            raise ValueError(f"over[{name!r}] must be a list of values to try, got {values!r}.")
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python, which is checked and written down as such."""
    return value.item() if isinstance(value, np.generic) else value


def _groups(variants: Sequence[Algorithm[Any]]) -> list[list[int]]:
    """The numbers of the variants that one program can run together."""
    groups: list[list[int]] = []
    for i, variant in enumerate(variants):
        home = next((group for group in groups if same_program(variants[group[0]], variant)), None)
        if home is None:
            groups.append([i])
        else:
            home.append(i)
    return groups


def _save(done: Sweep, folder: Path) -> None:
    for i, result in enumerate(done.results):
        result.save(folder / f"point-{i}")
    scores = done.scores
    summary: list[dict[str, Any]] = []
    for i, point in enumerate(done.points):
        score = float(scores[i]) if np.isfinite(scores[i]) else None
        summary.append({"folder": f"point-{i}", "score": score, "settings": serial.pack(point)[0]["dict"]})
    serial.write_text(folder / "sweep.json", json.dumps(summary, indent=1))

"""Section 6.2: the paper's curve, how the gap to the optimum closes as snapshots grow, and what it is about."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax import exact
from occupax.algorithms import Algorithm
from occupax.analysis.charts import Chart, Series
from occupax.analysis.statistics import Interval
from occupax.experiments import methods, tuning
from occupax.experiments.cells import SEED, Cell, Outcome, described, slug
from occupax.experiments.figures import table
from occupax.experiments.inference import PowerLaw, equivalent, power_law
from occupax.experiments.methods import OURS, epoch_episodes
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, claim, shown, text
from occupax.experiments.small import exact_ascent
from occupax.experiments.store import Arrays, Unit
from occupax.experiments.tasks import COVERAGE, LAKE, Task, tasks
from occupax.experiments.tuning import Search, Trial
from occupax.problem import Problem
from occupax.training.setup import make_setup

TASKS = {LAKE: 64, COVERAGE: 32}
"""The tasks, and the largest square root of N of each."""
GIVEN = f"{LAKE}, eta 1, delta 0.2"
GIVEN_SETTING = {"step_size": 1.0, "radius": 0.2}
"""The lake with a setting that an earlier search found, where the control does as the curve
does."""
CURVES = (LAKE, GIVEN, COVERAGE)
EPOCHS, SEEDS = 100, 10
"""E, and the runs of each N, as in the paper (E is not printed)."""
THEORY, PAPER, MARGIN = -0.5, -0.496, 0.1
"""The slope of the theory, that of the paper, and how far from the first a slope may be to count as
the same."""
PRINTED_OPTIMUM = 0.4146
SEARCHED = 1024
"""The N at which settings are searched for, by the end."""

Key = tuple[str, int]
"""The name of a task, and the square root of N."""


def sized(algorithm: Any, root: int) -> Algorithm[Any]:
    """An algorithm with N = root^2, B = m = root."""
    return replace(algorithm, snapshot_batch=root * root, batch=root, epoch_length=root)


def searches(scale: Scale) -> dict[str, Search]:
    """For each task the search for a step size and a radius, which are the same for all N."""
    found: dict[str, Search] = {}
    for name in TASKS:
        task = replace(tasks()[name], snapshots=(SEARCHED,))
        episodes = scale.episodes(EPOCHS * epoch_episodes(sized(methods.make(OURS, SEARCHED), 32)))
        searched, extensions = (
            replace(task, name=f"{name} rate"),
            tuning.MOST_EXTENSIONS if scale.whole else 0,
        )
        found[name] = Search(searched, OURS, episodes, rounds=("end", "end"), extensions=extensions)
    return found


def cells(scale: Scale, found: Mapping[str, Sequence[Trial]]) -> dict[Key, Cell]:
    """Every run of this section."""
    made: dict[Key, Cell] = {}
    for name in CURVES:
        task = task_of(name).name
        given = searches(scale)[task].algorithm(tuning.winner(found[task], "end").point)
        if name == GIVEN:
            given = replace(given, **GIVEN_SETTING)  # pyright: ignore[reportCallIssue]
        for root in (root for root in scale.lake_roots if root <= TASKS[task]):
            algorithm = sized(given, root)
            episodes = EPOCHS * epoch_episodes(algorithm)
            made[name, root] = Cell(
                f"rate-{slug(name)}-{root**2}",
                task_of(name),
                algorithm,
                episodes,
                scale.seeds(SEEDS),
                1,
            )
    return made


def task_of(name: str) -> Task:
    """The task of a curve."""
    return tasks()[LAKE if name == GIVEN else name]


def controls(made: Mapping[Key, Cell]) -> dict[str, Unit]:
    """Ascent along the exact gradient on each task, with the settings and as many steps as each of the runs has."""
    units: dict[str, Unit] = {}
    for name in CURVES:
        roots = [root for task, root in made if task == name]
        given: Any = made[name, roots[0]].algorithm
        steps = [EPOCHS * root for root in roots]
        about = {"steps": steps, "step size": given.step_size, "radius": given.radius}
        work = partial(_control, task_of(name), given, steps)
        units[name] = Unit(f"rate-{slug(name)}-exact", described(task_of(name)) | about, 40.0, work)
    return units


def _control(task: Task, algorithm: Any, steps: Sequence[int], _: Any) -> Arrays:
    first: Any = make_setup(
        task.problem, [algorithm], task.policy, 1, SEED, 1, exact=False
    ).policies[0]
    return {
        "values": exact_ascent(
            task.problem, first.table, algorithm.step_size, algorithm.radius, steps
        )
    }


class Gaps(NamedTuple):
    """A way to measure the distance of policies from the optimum."""

    label: str
    optimum: float
    evaluator: exact.Evaluator

    def of(self, tables: np.ndarray) -> Float[np.ndarray, " seed"]:
        """The gap of each table."""
        return self.optimum - self.evaluator.utilities(self.evaluator.occupancies(tables))


@cache
def ways(name: str) -> list[Gaps]:
    """As the paper mixes them, against the optimum of the infinite horizon, and against that of H steps."""
    task = tasks()[name]
    finite = task.problem
    endless = Problem(finite.env, finite.utility, finite.discount, None, finite.termination)
    best = exact.solve(endless).value
    within, ever = (exact.Evaluator(problem) for problem in (finite, endless))
    return [
        Gaps(f"{finite.horizon} steps, infinite optimum", best, within),
        Gaps("infinite horizon", best, ever),
        Gaps(f"horizon of {finite.horizon}", task.optimum, within),
    ]


def sections(
    done: Mapping[Key, Outcome], made: Mapping[Key, Cell], exactly: Mapping[str, Arrays]
) -> list[Section]:
    """What the report says of the paper's curve."""
    rows: list[list[str]] = []
    figures: list[Chart] = []
    claims: list[Claim] = []
    for name in CURVES:
        mine = {root: (made[name, root], done[name, root]) for task, root in done if task == name}
        episodes = [cell.episodes for cell, _ in mine.values()]
        for i, way in enumerate(ways(task_of(name).name)):
            gaps = [np.maximum(way.of(it.tables), 1e-9) for _, it in mine.values()]
            law = power_law(episodes, gaps)
            rows.append(
                [
                    name,
                    way.label,
                    *map(shown, (law.slope, law.curvature)),
                    *(f"{law.means[k]:.4g}" for k in (0, -1)),
                ]
            )
            if i == 0:
                control = np.maximum(way.optimum - exactly[name]["values"], 1e-9)
                without = power_law(episodes, [np.full(2, gap) for gap in control])
                fitted = [f"{it.estimate:.3f}" for it in (without.slope, without.curvature)]
                rows.append(
                    [name, "exact gradient", *fitted, f"{control[0]:.4g}", f"{control[-1]:.4g}"]
                )
                figures.append(
                    _chart(name, episodes, gaps, law, control, float(without.slope.estimate))
                )
                claims += _claims(name, way, law, float(without.slope.estimate))
    first = next(iter(made.values()))
    values = {
        "epochs": EPOCHS,
        "seeds": first.seeds,
        "algorithm": first.algorithm,
        "searched": SEARCHED,
    }
    drawn, expected = (epoch_episodes(sized(first.algorithm, 32)), 32 * 32 * 2)
    claims.append(
        claim(
            "episodes",
            {"": drawn == expected},
            text("measured", "episodes", drawn=drawn, expected=expected),
            "counted",
        )
    )
    return [
        Section(
            **text("sections", "rate", **values),
            claims=claims,
            figures=figures,
            tables=[table("rate", rows)],
        )
    ]


def _chart(
    name: str,
    episodes: Sequence[int],
    gaps: Sequence[np.ndarray],
    law: PowerLaw,
    control: np.ndarray,
    without: float,
) -> Chart:
    x = np.array(episodes, float)
    spread = np.array([np.log(gap).std(ddof=1) for gap in gaps])
    series = (
        Series(
            "TSIVR-PG",
            x,
            law.means,
            law.means * np.exp(-spread),
            law.means * np.exp(spread),
            "points",
        ),
        Series("exact gradient, as many steps", x, control, style="points"),
        Series(f"fit, slope {law.slope.estimate:.3f}", x, law.line, style="dashed"),
        Series("slope -1/2", x, law.line[-1] * (x / x[-1]) ** THEORY, style="dashed"),
    )
    kind = slug("rate", name).replace(".", "-")
    title = text("titles", "rate", name=name, slope=float(law.slope.estimate), control=without)
    return Chart(
        kind,
        title,
        text("captions", "rate"),
        "sampled episodes",
        "gap to the optimum",
        series,
        log=True,
    )


def _claims(name: str, way: Gaps, law: PowerLaw, control: float) -> list[Claim]:
    slope, on = shown(law.slope), f"{name}, {way.label}"
    near = equivalent(law.slope, THEORY, MARGIN)
    straight = f"curvature {shown(law.curvature)}"
    made = [
        claim("slope", {"": near}, f"Slope {slope}, {straight}.", on, paper=PAPER, theory=THEORY),
        claim(
            "sampling",
            {
                "": equivalent(
                    Interval(*[np.asarray(control)] * 3), float(law.slope.estimate), MARGIN
                )
                is False
            },
            f"Slope {slope}; ascent along the exact gradient, which samples nothing, has {control:.3f}.",
            on,
        ),
        claim(
            "decrease",
            {"": bool(law.slope.upper < 0)},
            f"Mean gap from {law.means[0]:.4g} to {law.means[-1]:.4g}; slope {slope}.",
            on,
        ),
    ]
    if name != LAKE:
        return made
    off = abs(way.optimum - PRINTED_OPTIMUM) < 5e-5
    return [
        claim(
            "optimum",
            {"": off},
            f"Value iteration gives {way.optimum:.6f}.",
            "exact",
            printed=PRINTED_OPTIMUM,
        ),
        *made,
    ]

"""The rate where the theorem applies: small problems with an optimum inside, by exact gaps."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from occupax.algorithms import Algorithm
from occupax.analysis.charts import Chart, Series
from occupax.experiments import methods, tuning
from occupax.experiments.cells import SEED, Cell, Outcome, described, judged, slug
from occupax.experiments.figures import table
from occupax.experiments.inference import PowerLaw, above, difference, equivalent, power_law
from occupax.experiments.methods import OURS, PLAIN, epoch_episodes
from occupax.experiments.rate import MARGIN, THEORY, sized
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, claim, parts, shown, text
from occupax.experiments.small import GARNET, exact_ascent, small_problems
from occupax.experiments.store import Arrays, Unit
from occupax.experiments.tasks import Task
from occupax.problem import Problem
from occupax.training.setup import make_setup

EPOCHS, SEEDS = 12, 30
STEP_SIZES = tuple(float(f"{0.02 * tuning.FACTOR**k:.3g}") for k in range(5))
"""The step sizes of the pilot."""
PILOT_ROOT, PILOT_SEEDS = 32, 5
"""The step size of a problem is the best for TSIVR-PG at this square root of N, on seeds of another
key."""
NEIGHBOURS_TO = 64
"""The largest square root of N with the neighbours of the step size."""
EARLIER = "100 epochs of 100 steps, eta 0.02"
"""A setting that was looked at before the rules were made, for comparison."""
LEAST_DRAWN = 1e-8
"""Gaps below are rounding errors."""
NO_RADIUS: Any = {"radius": inf}


class Run(NamedTuple):
    """What is trained: a problem, a method, a step size or a setting by name, and the square root of N."""

    problem: str
    method: str
    setting: str
    root: int


@cache
def task_of(name: str, horizon: int | None = None) -> Task:
    """A small problem as a task."""
    it = small_problems()[name].problem
    problem = (
        it
        if horizon is None
        else Problem(it.env, it.utility, it.discount, horizon, features=it.features)
    )
    return Task(
        name if horizon is None else f"{name}, H {horizon}", problem, 0, SEEDS, (), (0.0, 0.0), 0.0
    )


def pilots() -> dict[str, Unit]:
    """The mean gap of TSIVR-PG for each step size, on each problem."""
    made: dict[str, Unit] = {}
    for name in small_problems():
        about = {
            "epochs": EPOCHS,
            "root": PILOT_ROOT,
            "seeds": PILOT_SEEDS,
            "step sizes": list(STEP_SIZES),
        }
        work = partial(_pilot, name)
        made[name] = Unit(f"pilot-{slug(name)}", described(task_of(name)) | about, 15.0, work)
    return made


def _pilot(name: str, logger: Any) -> Arrays:
    algorithms = [_ours(PILOT_ROOT, size) for size in STEP_SIZES]
    episodes = EPOCHS * epoch_episodes(algorithms[0])
    found = judged(task_of(name), algorithms, episodes, range(PILOT_SEEDS), tuning.SEED, 1, logger)
    return {"gaps": np.array([small_problems()[name].optimum - it.final.mean() for it in found])}


def _ours(root: int, step_size: float) -> Algorithm[Any]:
    return sized(methods.make(OURS, 16, step_size=step_size, **NO_RADIUS), root)


def cells(scale: Scale, found: Mapping[str, Arrays]) -> dict[Run, Cell]:
    """The cell of every run: each problem with each method, size and step size."""
    made: dict[Run, Cell] = {}
    for name in small_problems():
        place = int(np.argmin(found[name]["gaps"]))
        size = STEP_SIZES[place]
        around = [float(f"{size * factor:.3g}") for factor in (1 / tuning.FACTOR, tuning.FACTOR)]
        for root in scale.roots:
            for eta in (size, *(around if root <= NEIGHBOURS_TO and scale.whole else ())):
                made |= _run(name, OURS, f"{eta:g}", _ours(root, eta), root, scale)
            ours = _ours(root, size)
            episodes = EPOCHS * epoch_episodes(ours)
            plain = methods.make(PLAIN, episodes // (EPOCHS * root), step_size=size)
            made |= _run(name, PLAIN, f"{size:g}", plain, root, scale)
    for root in (root for root in scale.roots if root <= 32 and scale.whole):
        made |= _run(GARNET, OURS, EARLIER, _ours(root, 0.02), root, scale, 100, 100)
    return made


def _run(
    name: str, method: str, setting: str, algorithm: Any, root: int, scale: Scale, epochs: int = EPOCHS,
    horizon: int | None = None,
) -> dict[Run, Cell]:  # fmt: skip
    episodes = epochs * epoch_episodes(_ours(root, 1.0))
    run = Run(name, method, setting, root)
    cell = Cell(
        slug("small", *map(str, run)),
        task_of(name, horizon),
        algorithm,
        episodes,
        scale.seeds(SEEDS),
        1,
    )
    return {run: cell}


def main_setting(runs: Mapping[Run, Any], name: str) -> str:
    """The setting of the main runs of a problem: that of REINFORCE, which has no other."""
    return next(run.setting for run in runs if (run.problem, run.method) == (name, PLAIN))


def controls(runs: Mapping[Run, Any]) -> dict[str, Unit]:
    """Ascent along the exact gradient with the step size of each problem, for as many steps as the runs have."""
    units: dict[str, Unit] = {}
    for name in small_problems():
        size = float(main_setting(runs, name))
        steps = [EPOCHS * run.root for run in runs if (run.problem, run.method) == (name, PLAIN)]
        about = {"steps": steps, "step size": size}
        units[name] = Unit(
            f"small-{slug(name)}-exact",
            described(task_of(name)) | about,
            20.0,
            partial(_control, name, size, steps),
        )
    return units


def _control(name: str, size: float, steps: Sequence[int], _: Any) -> Arrays:
    task = task_of(name)
    first: Any = make_setup(
        task.problem, [_ours(4, size)], task.policy, 1, SEED, 1, exact=False
    ).policies[0]
    return {"values": exact_ascent(task.problem, first.table, size, inf, steps)}


def gaps_of(name: str, setting: str, final: np.ndarray) -> np.ndarray:
    """Gaps to the best table; with another horizon to the upper bound of that."""
    optimum = task_of(name, 100).optimum if setting == EARLIER else small_problems()[name].optimum
    return np.maximum(optimum - final, 1e-12)


def sections(
    done: Mapping[Run, Outcome], made: Mapping[Run, Cell], exactly: Mapping[str, Arrays]
) -> list[Section]:
    """What the report says of the rate where the theorem applies."""
    rows: list[list[str]] = []
    figures: list[Chart] = []
    claims = []
    for name in small_problems():
        main, laws = main_setting(made, name), {}
        for method, setting in dict.fromkeys(
            (run.method, run.setting) for run in done if run.problem == name
        ):
            mine = {
                run: gaps_of(name, setting, it.final)
                for run, it in done.items()
                if run[:3] == (name, method, setting)
            }
            episodes = [made[run].episodes for run in mine]
            law = power_law(episodes, list(mine.values()), 0.9)
            laws[method, setting] = episodes, list(mine.values()), law
            kind = (
                setting
                if setting == EARLIER
                else f"eta {setting}{'' if setting == main else ' (neighbour)'}"
            )
            largest = max(run.root for run in mine) ** 2
            rows.append(
                [
                    name,
                    method,
                    kind,
                    f"{largest:,}",
                    shown(law.slope),
                    shown(law.curvature),
                    f"{law.means[-1]:.3g}",
                ]
            )
        control = np.maximum(small_problems()[name].optimum - exactly[name]["values"], 1e-12)
        (episodes, ours, law), (_, plain, plain_law) = laws[OURS, main], laws[PLAIN, main]
        without = power_law(episodes, [np.full(2, gap) for gap in control])
        rows.append(
            [
                name,
                "exact gradient",
                f"eta {main}",
                "",
                f"{without.slope.estimate:.3f}",
                "",
                f"{control[-1]:.3g}",
            ]
        )
        figures.append(_chart(name, np.array(episodes, float), law, plain_law, control))
        near = equivalent(law.slope, THEORY, MARGIN)
        curved = above(law.curvature) is not None
        measured = f"Slope {shown(law.slope)}, curvature {shown(law.curvature)}: {'not ' if curved else ''}a straight line."
        claims.append(
            claim(
                "theorem",
                {"slope within -0.5 +- 0.1": near, "straight": not curved},
                measured,
                f"{name}, eta {main}",
            )
        )
        family = len(episodes)
        logs = list(zip(np.log(ours), np.log(plain), strict=True))
        roots = [run.root for run in done if run[:3] == (name, OURS, main)]
        gains = [above(difference(other, mine, family)) for mine, other in logs]
        tests = {f"N = {root**2:,}": test for root, test in zip(roots, gains, strict=True)}
        last = difference(*logs[-1], family)
        ratio = [f"{np.exp(bound):.2f}" for bound in last]
        over = f"{ratio[0]} [{ratio[1]}, {ratio[2]}]"
        measured = f"Gap of TSIVR-PG over that of REINFORCE at the largest N: {over}.{parts(tests)}"
        claims.append(claim("reduction", tests, measured, f"{name}, as many episodes and steps"))
    inside = ", ".join(f"{it.least_probability:.2f}" for it in small_problems().values())
    values = {
        "epochs": EPOCHS,
        "seeds": len(next(iter(done.values())).final),
        "inside": inside,
        "pilot": PILOT_ROOT**2,
    }
    return [
        Section(
            **text("sections", "convergence", **values),
            claims=claims,
            figures=figures,
            tables=[table("convergence", rows)],
        )
    ]


def _chart(name: str, x: np.ndarray, ours: PowerLaw, plain: PowerLaw, control: np.ndarray) -> Chart:
    series = (
        Series(OURS, x, ours.means, style="points"),
        Series(PLAIN, x, plain.means, style="points"),
        Series(
            "exact gradient, as many steps",
            x,
            np.where(control > LEAST_DRAWN, control, np.nan),
            style="points",
        ),
        Series("slope -1/2", x, ours.line[0] * (x / x[0]) ** THEORY, style="dashed"),
    )
    kind = slug("convergence", name)
    numbers = {
        "name": name,
        "slope": float(ours.slope.estimate),
        "ratio": ours.means[-1] / plain.means[-1],
    }
    words = (
        text("titles", "convergence", **numbers),
        text("captions", "convergence"),
        "sampled episodes",
        "gap to the optimum",
    )
    return Chart(kind, *words, series, log=True)

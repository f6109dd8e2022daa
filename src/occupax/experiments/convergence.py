"""Rate where the theorem applies: small problems with an interior optimum, by exact gaps."""

from collections.abc import Mapping
from functools import cache, partial
from math import inf
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax.algorithms import Algorithm
from occupax.analysis.charts import Chart, Series
from occupax.experiments import cells, methods, tuning
from occupax.experiments.cells import ExperimentCell, ExperimentResult, describe_task
from occupax.experiments.inference import (
    PowerLaw,
    Seeds,
    constant_slope,
    difference,
    is_above,
    is_within,
    power_law,
)
from occupax.experiments.methods import OURS, PLAIN, epoch_episodes
from occupax.experiments.rate import MARGIN, THEORY, ascent_job, sized
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, claim, parts, shown, table, text
from occupax.experiments.small import GARNET, small_problems, with_horizon
from occupax.experiments.tasks import Task
from occupax.jobs import Job, JobResult, file_name
from occupax.training.loggers import Logger

EPOCHS = 12
SEEDS = 30
STEP_SIZES = tuple(float(f"{0.02 * tuning.FACTOR**k:.3g}") for k in range(5))
"""Step sizes of the pilot."""
PILOT_ROOT = 32
PILOT_SEEDS = 5
"""Root and seeds of the pilot, which selects the best step size for TSIVR-PG on other seeds."""
MAX_NEIGHBOUR_ROOT = 64
"""Largest square root of N with the neighbours of the step size."""
EARLIER = "100 epochs of 100 steps, eta 0.02"
"""Setting that was seen before the rules were made, for comparison."""
EARLIER_HORIZON = 100
MIN_DRAWN_GAP = 1e-8
"""Gap below which rounding errors dominate."""
MIN_GAP = 1e-12
CONFIDENCE = 0.9


class Run(NamedTuple):
    """Key of a run: problem, method, step size or setting by name, and square root of N."""

    problem: str
    method: str
    setting: str
    root: int


@cache
def task_of(name: str, horizon: int | None = None) -> Task:
    """Return a small problem as a task, with another horizon if one is set."""
    problem = small_problems()[name].problem
    if horizon is not None:
        problem = with_horizon(problem, horizon)
        name = f"{name}, H {horizon}"
    return Task(name, problem, seeds=SEEDS, fixed_threshold=0.0)


def pilot_jobs() -> dict[str, Job]:
    """Return the jobs that measure the mean gap of TSIVR-PG for each step size."""
    jobs: dict[str, Job] = {}
    for name in small_problems():
        description = {
            **describe_task(task_of(name)),
            "epochs": EPOCHS,
            "root": PILOT_ROOT,
            "seeds": PILOT_SEEDS,
            "step sizes": list(STEP_SIZES),
        }
        jobs[name] = Job(f"pilot-{file_name(name)}", description, 15.0, partial(_pilot, name))
    return jobs


def _pilot(name: str, logger: Logger) -> JobResult:
    algorithms = [_ours(PILOT_ROOT, step_size) for step_size in STEP_SIZES]
    episodes = EPOCHS * epoch_episodes(algorithms[0])
    results = cells.train_and_evaluate(
        task_of(name), algorithms, episodes, range(PILOT_SEEDS), tuning.SEED, 1, logger
    )
    optimum = small_problems()[name].optimum
    gaps = [optimum - result.final.mean() for result in results]
    return JobResult({"gaps": np.array(gaps)})


def _ours(root: int, step_size: float) -> Algorithm[Any]:
    return sized(methods.make(OURS, 16, step_size=step_size, radius=inf), root)


def make_cells(scale: Scale, pilots: Mapping[str, JobResult]) -> dict[Run, ExperimentCell]:
    """Return the cell of every run: each problem with each method, size and step size."""
    by_run: dict[Run, ExperimentCell] = {}

    def add(run: Run, algorithm: Any, epochs: int = EPOCHS, horizon: int | None = None) -> None:
        by_run[run] = ExperimentCell(
            file_name("small", *map(str, run)),
            task_of(run.problem, horizon),
            algorithm,
            epochs * epoch_episodes(_ours(run.root, 1.0)),
            scale.seeds(SEEDS),
            records=1,
        )

    for name in small_problems():
        step_size = STEP_SIZES[int(np.argmin(pilots[name].arrays["gaps"]))]
        for root in scale.roots:
            step_sizes = [step_size]
            if root <= MAX_NEIGHBOUR_ROOT and scale.whole:
                neighbours = (step_size / tuning.FACTOR, step_size * tuning.FACTOR)
                step_sizes += [float(f"{neighbour:.3g}") for neighbour in neighbours]
            for eta in step_sizes:
                add(Run(name, OURS, f"{eta:g}", root), _ours(root, eta))
            episodes = EPOCHS * epoch_episodes(_ours(root, step_size))
            plain = methods.make(PLAIN, episodes // (EPOCHS * root), step_size=step_size)
            add(Run(name, PLAIN, f"{step_size:g}", root), plain)
    for root in scale.roots:
        if root <= 32 and scale.whole:
            add(
                Run(GARNET, OURS, EARLIER, root),
                _ours(root, 0.02),
                epochs=100,
                horizon=EARLIER_HORIZON,
            )
    return by_run


def main_setting(runs: Mapping[Run, Any], name: str) -> str:
    """Return the setting of the main runs of a problem, the only one of REINFORCE."""
    return next(run.setting for run in runs if (run.problem, run.method) == (name, PLAIN))


def control_jobs(runs: Mapping[Run, Any]) -> dict[str, Job]:
    """Return the controls: exact ascent with the step size and the steps of the runs."""
    jobs: dict[str, Job] = {}
    for name in small_problems():
        step_size = float(main_setting(runs, name))
        roots = [run.root for run in runs if (run.problem, run.method) == (name, PLAIN)]
        steps = [EPOCHS * root for root in roots]
        job_name = f"small-{file_name(name)}-exact"
        jobs[name] = ascent_job(job_name, task_of(name), _ours(4, step_size), steps, 20.0)
    return jobs


class SmallCurve(NamedTuple):
    """Gaps of a method on a small problem with one setting, for each N."""

    roots: list[int]
    episodes: list[int]
    gaps: list[Seeds]
    law: PowerLaw


def small_curve(
    name: str,
    method: str,
    setting: str,
    results: Mapping[Run, ExperimentResult],
    cells_by_run: Mapping[Run, ExperimentCell],
) -> SmallCurve:
    """Return the gaps to the best table. The earlier setting uses the bound for 100 steps."""
    optimum = small_problems()[name].optimum
    if setting == EARLIER:
        optimum = task_of(name, EARLIER_HORIZON).optimum
    runs = [run for run in results if run[:3] == (name, method, setting)]
    gaps = [np.maximum(optimum - results[run].final, MIN_GAP) for run in runs]
    episodes = [cells_by_run[run].episodes for run in runs]
    law = power_law(episodes, gaps, CONFIDENCE)
    return SmallCurve([run.root for run in runs], episodes, gaps, law)


def gap_ratio(ours: Seeds, plain: Seeds, family: int = 1) -> str:
    """Return the ratio of two gaps with its interval as text."""
    bounds = difference(np.log(ours), np.log(plain), family)
    estimate, lower, upper = (f"{np.exp(bound):.2f}" for bound in bounds)
    return f"{estimate} [{lower}, {upper}]"


def sections(
    results: Mapping[Run, ExperimentResult],
    cells_by_run: Mapping[Run, ExperimentCell],
    controls: Mapping[str, JobResult],
) -> list[Section]:
    """Return the section of the report about the rate where the theorem applies."""
    rows: list[list[str]] = []
    figures: list[Chart] = []
    claims: list[Claim] = []
    for name, problem in small_problems().items():
        main = main_setting(cells_by_run, name)
        curves: dict[tuple[str, str], SmallCurve] = {}
        for run in results:
            if run.problem == name and (run.method, run.setting) not in curves:
                curve = small_curve(name, run.method, run.setting, results, cells_by_run)
                curves[run.method, run.setting] = curve
                rows.append(_row(run, main, curve))
        ours = curves[OURS, main]
        plain = curves[PLAIN, main]
        control = np.maximum(problem.optimum - controls[name].arrays["values"], MIN_GAP)
        slope, _ = constant_slope(ours.episodes, control)
        control_row = [name, "exact gradient", f"eta {main}", ""]
        rows.append([*control_row, f"{slope:.3f}", "", f"{control[-1]:.3g}"])
        figures.append(_chart(name, ours, plain, control))
        claims.append(_theorem_claim(f"{name}, eta {main}", ours.law))
        claims.append(_reduction_claim(name, ours, plain))
    probabilities = [f"{problem.min_probability:.2f}" for problem in small_problems().values()]
    words = text(
        "sections",
        "convergence",
        epochs=EPOCHS,
        seeds=len(next(iter(results.values())).final),
        inside=", ".join(probabilities),
        pilot=PILOT_ROOT**2,
    )
    return [Section(**words, claims=claims, figures=figures, tables=[table("convergence", rows)])]


def _row(run: Run, main: str, curve: SmallCurve) -> list[str]:
    setting = run.setting
    if setting != EARLIER:
        setting = f"eta {setting}"
        if run.setting != main:
            setting += " (neighbour)"
    law = curve.law
    words = [run.problem, run.method, setting, f"{max(curve.roots) ** 2:,}"]
    return [*words, shown(law.slope), shown(law.curvature), f"{law.means[-1]:.3g}"]


def _theorem_claim(on: str, law: PowerLaw) -> Claim:
    is_near = is_within(law.slope, THEORY, MARGIN)
    is_straight = is_above(law.curvature) is None
    line = "a straight line"
    if not is_straight:
        line = "not a straight line"
    measured = f"Slope {shown(law.slope)}, curvature {shown(law.curvature)}: {line}."
    tests = {"slope within -0.5 +- 0.1": is_near, "straight": is_straight}
    return claim("theorem", tests, measured, on)


def _reduction_claim(name: str, ours: SmallCurve, plain: SmallCurve) -> Claim:
    family = len(ours.episodes)
    tests: dict[str, bool | None] = {}
    for root, our_gaps, plain_gaps in zip(ours.roots, ours.gaps, plain.gaps, strict=True):
        gain = difference(np.log(plain_gaps), np.log(our_gaps), family)
        tests[f"N = {root**2:,}"] = is_above(gain)
    ratio = gap_ratio(ours.gaps[-1], plain.gaps[-1], family)
    measured = f"Gap of TSIVR-PG over that of REINFORCE at the largest N: {ratio}.{parts(tests)}"
    return claim("reduction", tests, measured, f"{name}, as many episodes and steps")


def _chart(
    name: str, ours: SmallCurve, plain: SmallCurve, control: Float[np.ndarray, " root"]
) -> Chart:
    x = np.array(ours.episodes, float)
    law = ours.law
    exact_gaps = np.where(control > MIN_DRAWN_GAP, control, np.nan)
    theory = law.line[0] * (x / x[0]) ** THEORY
    ratio = law.means[-1] / plain.law.means[-1]
    slope = float(law.slope.estimate)
    return Chart(
        file_name("convergence", name),
        text("titles", "convergence", name=name, slope=slope, ratio=ratio),
        text("captions", "convergence"),
        "sampled episodes",
        "gap to the optimum",
        (
            Series(OURS, x, law.means, style="points"),
            Series(PLAIN, x, plain.law.means, style="points"),
            Series("exact gradient, as many steps", x, exact_gaps, style="points"),
            Series("slope -1/2", x, theory, style="dashed"),
        ),
        log=True,
    )

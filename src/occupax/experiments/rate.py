"""Section 6.2: the paper's curve of gaps to the optimum as snapshots grow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occupax import exact
from occupax.algorithms import Algorithm
from occupax.analysis.charts import Chart, Series
from occupax.experiments import methods, small, tuning
from occupax.experiments.cells import SEED, ExperimentCell, ExperimentResult, describe_task
from occupax.experiments.inference import (
    PowerLaw,
    constant_slope,
    is_within,
    power_law,
)
from occupax.experiments.methods import OURS, epoch_episodes
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, claim, shown, table, text
from occupax.experiments.tasks import COVERAGE, LAKE, Task, tasks
from occupax.experiments.tuning import HyperparameterSearch, Trial
from occupax.jobs import Job, JobResult, file_name
from occupax.problem import Problem
from occupax.training.loggers import Logger
from occupax.training.setup import make_setup

MAX_ROOTS = {LAKE: 64, COVERAGE: 32}
"""Largest square root of N of each task."""
GIVEN = f"{LAKE}, eta 1, delta 0.2"
GIVEN_SETTING: Any = {"step_size": 1.0, "radius": 0.2}
"""Setting of an earlier search on the lake, with which the control has the slope of the curve."""
CURVES = (LAKE, GIVEN, COVERAGE)
EPOCHS = 100
"""E, which the paper does not print."""
SEEDS = 10
THEORY = -0.5
PAPER = -0.496
"""Slopes of the theory and of the paper."""
MARGIN = 0.1
"""Largest difference from the slope of the theory that counts as equal."""
PRINTED_OPTIMUM = 0.4146
SEARCHED = 1024
"""N of the search for hyperparameters, by the end."""
MIN_GAP = 1e-9

Key = tuple[str, int]
"""Name of a curve and square root of N."""


def sized(algorithm: Any, root: int) -> Algorithm[Any]:
    """Return an algorithm with N = root^2 and B = m = root."""
    return replace(algorithm, snapshot_batch=root * root, batch=root, epoch_length=root)


def searches(scale: Scale) -> dict[str, HyperparameterSearch]:
    """Return the search for a step size and a radius of each task, the same for all N."""
    episodes = EPOCHS * epoch_episodes(sized(methods.make(OURS, SEARCHED), 32))
    extensions = 0
    if scale.whole:
        extensions = tuning.MAX_EXTENSIONS
    by_task: dict[str, HyperparameterSearch] = {}
    for name in MAX_ROOTS:
        by_task[name] = HyperparameterSearch(
            replace(tasks()[name], name=f"{name} rate", snapshots=(SEARCHED,)),
            OURS,
            scale.episodes(episodes),
            rounds=("end", "end"),
            extensions=extensions,
        )
    return by_task


def make_cells(scale: Scale, trials: Mapping[str, Sequence[Trial]]) -> dict[Key, ExperimentCell]:
    """Return every run of this section."""
    cells: dict[Key, ExperimentCell] = {}
    for curve in CURVES:
        task = task_of(curve)
        point = tuning.winner(trials[task.name], "end").point
        tuned: Any = searches(scale)[task.name].algorithm(point)
        if curve == GIVEN:
            tuned = replace(tuned, **GIVEN_SETTING)
        for root in scale.lake_roots:
            if root > MAX_ROOTS[task.name]:
                continue
            algorithm = sized(tuned, root)
            cells[curve, root] = ExperimentCell(
                f"rate-{file_name(curve)}-{root**2}",
                task,
                algorithm,
                EPOCHS * epoch_episodes(algorithm),
                scale.seeds(SEEDS),
                records=1,
            )
    return cells


def task_of(curve: str) -> Task:
    """Return the task of a curve."""
    if curve == GIVEN:
        return tasks()[LAKE]
    return tasks()[curve]


def ascent_job(name: str, task: Task, algorithm: Any, steps: Sequence[int], seconds: float) -> Job:
    """Return the job of ascent along the exact gradient from the initial policy of a run."""
    description = {
        **describe_task(task),
        "steps": list(steps),
        "step size": algorithm.step_size,
        "radius": str(algorithm.radius),
    }
    return Job(name, description, seconds, partial(_ascend, task, algorithm, steps))


def _ascend(task: Task, algorithm: Any, steps: Sequence[int], _: Logger) -> JobResult:
    setup = make_setup(task.problem, [algorithm], task.policy, 1, SEED, 1, exact=False)
    initial: Any = setup.policies[0]
    values = small.exact_ascent(
        task.problem, initial.table, algorithm.step_size, algorithm.radius, steps=steps
    )
    return JobResult({"values": values})


def control_jobs(cells: Mapping[Key, ExperimentCell]) -> dict[str, Job]:
    """Return the controls: exact ascent with the settings and the steps of the runs."""
    jobs: dict[str, Job] = {}
    for curve in CURVES:
        roots = [root for name, root in cells if name == curve]
        steps = [EPOCHS * root for root in roots]
        algorithm = cells[curve, roots[0]].algorithm
        name = f"rate-{file_name(curve)}-exact"
        jobs[curve] = ascent_job(name, task_of(curve), algorithm, steps, 40.0)
    return jobs


class GapMeasure(NamedTuple):
    """Measure of the distance of policies from the optimum."""

    label: str
    optimum: float
    evaluator: exact.Evaluator

    def gaps(self, tables: np.ndarray) -> Float[np.ndarray, " table"]:
        """Return the gap of each table, at least `MIN_GAP`."""
        utilities = self.evaluator.utilities(self.evaluator.occupancies(tables))
        return np.maximum(self.optimum - utilities, MIN_GAP)


@cache
def gap_measures(name: str) -> list[GapMeasure]:
    """Return the paper's mixed measure, that of the infinite horizon, and that of H steps."""
    task = tasks()[name]
    finite = task.problem
    infinite = Problem(finite.env, finite.utility, finite.discount, None, finite.termination)
    optimum = exact.solve(infinite, progress=False).value
    evaluator = exact.Evaluator(finite)
    return [
        GapMeasure(f"{finite.horizon} steps, infinite optimum", optimum, evaluator),
        GapMeasure("infinite horizon", optimum, exact.Evaluator(infinite)),
        GapMeasure(f"horizon of {finite.horizon}", task.optimum, evaluator),
    ]


class PaperCurve(NamedTuple):
    """Curve of the paper with its power law and that of the control, by the paper's measure."""

    name: str
    measure: GapMeasure
    episodes: list[int]
    gaps: list[np.ndarray]
    law: PowerLaw
    control: Float[np.ndarray, " root"]
    control_slope: float
    control_curvature: float


def paper_curve(
    name: str,
    results: Mapping[Key, ExperimentResult],
    cells: Mapping[Key, ExperimentCell],
    controls: Mapping[str, JobResult],
) -> PaperCurve:
    """Return a curve of the paper."""
    keys = [key for key in results if key[0] == name]
    episodes = [cells[key].episodes for key in keys]
    measure = gap_measures(task_of(name).name)[0]
    gaps = [measure.gaps(results[key].tables) for key in keys]
    control = np.maximum(measure.optimum - controls[name].arrays["values"], MIN_GAP)
    law = power_law(episodes, gaps)
    return PaperCurve(
        name, measure, episodes, gaps, law, control, *constant_slope(episodes, control)
    )


def sections(
    results: Mapping[Key, ExperimentResult],
    cells: Mapping[Key, ExperimentCell],
    controls: Mapping[str, JobResult],
) -> list[Section]:
    """Return the section of the report about the paper's curve."""
    rows: list[list[str]] = []
    figures: list[Chart] = []
    claims: list[Claim] = []
    for name in CURVES:
        curve = paper_curve(name, results, cells, controls)
        rows.append(_row(name, curve.measure.label, curve.law))
        control_row = [name, "exact gradient"]
        control_row += [f"{curve.control_slope:.3f}", f"{curve.control_curvature:.3f}"]
        control_row += [f"{curve.control[0]:.4g}", f"{curve.control[-1]:.4g}"]
        rows.append(control_row)
        for measure in gap_measures(task_of(name).name)[1:]:
            gaps = [
                measure.gaps(result.tables) for key, result in results.items() if key[0] == name
            ]
            rows.append(_row(name, measure.label, power_law(curve.episodes, gaps)))
        figures.append(_chart(curve))
        claims += _claims(curve)
    first = next(iter(cells.values()))
    claims.append(_episodes_claim(first))
    words = text(
        "sections",
        "rate",
        epochs=EPOCHS,
        seeds=first.seeds,
        algorithm=first.algorithm,
        searched=SEARCHED,
    )
    return [Section(**words, claims=claims, figures=figures, tables=[table("rate", rows)])]


def _row(name: str, label: str, law: PowerLaw) -> list[str]:
    ends = [f"{law.means[0]:.4g}", f"{law.means[-1]:.4g}"]
    return [name, label, shown(law.slope), shown(law.curvature), *ends]


def _episodes_claim(cell: ExperimentCell) -> Claim:
    sampled = epoch_episodes(sized(cell.algorithm, 32))
    expected = 32 * 32 * 2
    measured = text("measured", "episodes", drawn=sampled, expected=expected)
    return claim("episodes", {"": sampled == expected}, measured, "counted")


def _chart(curve: PaperCurve) -> Chart:
    law = curve.law
    x = np.array(curve.episodes, float)
    deviations = np.array([np.log(gaps).std(ddof=1) for gaps in curve.gaps])
    below = law.means * np.exp(-deviations)
    above = law.means * np.exp(deviations)
    theory = law.line[-1] * (x / x[-1]) ** THEORY
    slope = float(law.slope.estimate)
    return Chart(
        file_name("rate", curve.name).replace(".", "-"),
        text("titles", "rate", name=curve.name, slope=slope, control=curve.control_slope),
        text("captions", "rate"),
        "sampled episodes",
        "gap to the optimum",
        (
            Series("TSIVR-PG", x, law.means, below, above, "points"),
            Series("exact gradient, as many steps", x, curve.control, style="points"),
            Series(f"fit, slope {slope:.3f}", x, law.line, style="dashed"),
            Series("slope -1/2", x, theory, style="dashed"),
        ),
        log=True,
    )


def _claims(curve: PaperCurve) -> list[Claim]:
    measure = curve.measure
    law = curve.law
    slope = shown(law.slope)
    on = f"{curve.name}, {measure.label}"
    claims: list[Claim] = []
    if curve.name == LAKE:
        is_printed = abs(measure.optimum - PRINTED_OPTIMUM) < 5e-5
        measured = f"Value iteration gives {measure.optimum:.6f}."
        claims.append(
            claim("optimum", {"": is_printed}, measured, "exact", printed=PRINTED_OPTIMUM)
        )
    is_near = is_within(law.slope, THEORY, MARGIN)
    measured = f"Slope {slope}, curvature {shown(law.curvature)}."
    claims.append(claim("slope", {"": is_near}, measured, on, paper=PAPER, theory=THEORY))
    is_apart = abs(curve.control_slope - float(law.slope.estimate)) > MARGIN
    measured = (
        f"Slope {slope}; ascent along the exact gradient, which samples nothing, "
        f"has {curve.control_slope:.3f}."
    )
    claims.append(claim("sampling", {"": is_apart}, measured, on))
    first, *_, last = law.means
    measured = f"Mean gap from {first:.4g} to {last:.4g}; slope {slope}."
    claims.append(claim("decrease", {"": bool(law.slope.upper < 0)}, measured, on))
    return claims

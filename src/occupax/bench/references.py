"""Best known value of each problem, certified on tables with a concave utility."""

import json
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from occupax import exact
from occupax.algorithms import REINFORCE
from occupax.bench.families import BenchProblem, problems
from occupax.bench.measure import train
from occupax.envs.lqr import LQR
from occupax.io.files import write_text
from occupax.jobs import Job, JobResult, file_name
from occupax.policies import Tabular
from occupax.problem import Problem
from occupax.training.loggers import Logger

STORED = files("occupax.bench") / "references.json"
"""References of the problems that are the same for everybody."""
TOLERANCE = 1e-6
"""Gap of a certified optimum, relative to the improvement on the uniform policy."""
LOOSE_TOLERANCE = 1e-4
"""Gap where `TOLERANCE` is out of reach."""
BOUNDS = {"cartpole/return": (1 - 0.99**500) / (1 - 0.99), "cartpole/constraint": 0.0}
"""Bounds that a good policy attains: all 500 steps, and a distance of zero."""
STARTS = 5
"""Number of initial tables of exact ascent, for utilities that are not concave."""
MAX_STEPS = 300
"""Number of steps of exact ascent."""
LONG_RUNS = tuple(REINFORCE(batch=10, step_size=step_size) for step_size in (0.003, 0.01))
"""Algorithms of long runs: plain hyperparameters that no choice of a default changes."""
LONG_BUDGETS = 4
"""Length of long runs, in budgets of the problem."""
SEEDS = range(5)
SEED = 2
"""Seed of long runs, which share no random number with scored runs."""
SOLVING_SECONDS = 10.0
"""Rough time to compute a reference."""

ReferenceSource = Literal["certified", "bound", "exact ascent", "long runs"]


class Reference(NamedTuple):
    """Best known value of a problem."""

    best: float
    source: ReferenceSource
    """Evidence: "certified" within the gap, an upper "bound", or the best value of "exact ascent"
    or "long runs", which algorithms may exceed."""
    gap: float | None = None


def stored_reference(problem: BenchProblem) -> Reference | None:
    """Return the reference of a problem in the package, or None."""
    stored = _stored().get(problem.name, {})
    if stored.get("fingerprint") != problem.fingerprint:
        return None
    return Reference(stored["best"], stored["source"], stored["gap"])


def reference_job(problem: BenchProblem) -> Job:
    """Return the job that computes the reference of a problem."""
    return Job(
        file_name("optimum", problem.name),
        {"problem": problem.name, "fingerprint": problem.fingerprint},
        SOLVING_SECONDS,
        partial(_reference_facts, problem),
        f"the optimum of {problem.name}",
    )


def _reference_facts(problem: BenchProblem, _: Logger) -> JobResult:
    return JobResult(facts=compute_reference(problem)._asdict())


def read_reference(result: JobResult) -> Reference:
    """Return the reference of a finished job."""
    return Reference(*(result.facts[name] for name in Reference._fields))


def store_references(names: Sequence[str]) -> None:
    """Compute the references of some problems, or of all, and store them in the package."""
    stored = dict(_stored())
    for problem in problems():
        if problem.name in names or not names:
            reference = compute_reference(problem)
            stored[problem.name] = {"fingerprint": problem.fingerprint, **reference._asdict()}
            write_text(str(STORED), json.dumps(stored, indent=1) + "\n")


def compute_reference(problem: BenchProblem) -> Reference:
    """Return the best value of a problem that the strongest applicable method finds."""
    if isinstance(problem.problem.env, LQR):
        return Reference(exact.lqr.optimum(problem.problem).value, "certified", 0.0)
    if problem.tabular and problem.problem.utility.concave:
        return certified_optimum(problem.problem)
    if problem.tabular:
        return Reference(exact_ascent(problem.problem), "exact ascent")
    if problem.name in BOUNDS:
        return Reference(BOUNDS[problem.name], "bound")
    return Reference(_best_long_run(problem), "long runs")


def _best_long_run(problem: BenchProblem) -> float:
    """Return the best mean of the last quarter of a run, because a single record may be lucky."""
    episodes = LONG_BUDGETS * problem.entry.episodes
    curves = train(problem.problem, LONG_RUNS, episodes, SEEDS, SEED)
    values = np.concatenate([curve.values for curve in curves])
    quarter = values[:, -values.shape[1] // 4 :]
    return float(np.nanmax(quarter.mean(1)))


def certified_optimum(problem: Problem) -> Reference:
    """Return the optimum of a concave utility, with a gap relative to the possible improvement."""
    env: Any = problem.env
    uniform = np.full((env.num_states, env.num_actions), 1 / env.num_actions)
    certificate = exact.certificate(problem, uniform)
    # a rough optimum tells how large the improvement is at least
    size = max(1.0, abs(certificate.value))
    best = exact.solve(problem, tolerance=0.1 * certificate.gap / size, progress=False)
    for tolerance in (TOLERANCE, LOOSE_TOLERANCE):
        gap = tolerance * (best.value - certificate.value)
        size = max(1.0, abs(best.value))
        best = exact.solve(problem, tolerance=gap / size, progress=False)
        if best.status == "optimal":
            break
    return Reference(best.value, "certified", best.gap)


def exact_ascent(problem: Problem, starts: int = STARTS, max_steps: int = MAX_STEPS) -> float:
    """Return the best local maximum over stationary policies, by exact gradients."""
    from scipy.optimize import minimize

    env: Any = problem.env
    shape = (env.num_states, env.num_actions)

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        table = logits.reshape(shape)
        gradient = exact.gradient(problem, Tabular(jnp.asarray(table)))
        value = exact.value(problem, softmax(table, axis=1))
        return -value, -np.asarray(gradient.table, float).ravel()

    random = np.random.default_rng(0)
    tables = [np.zeros(shape), *(2.0 * random.standard_normal((starts - 1, *shape)))]
    options: Any = {"maxiter": max_steps}
    values: list[float] = []
    for table in tables:
        result = minimize(loss, table.ravel(), jac=True, method="L-BFGS-B", options=options)
        values.append(-float(result.fun))
    return max(values)


@cache
def _stored() -> dict[str, Any]:
    if not STORED.is_file():
        return {}
    return json.loads(STORED.read_text(encoding="utf-8"))

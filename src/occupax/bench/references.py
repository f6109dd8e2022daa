"""The best value of each problem: certified on a table with a concave utility, and otherwise the best that is known."""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from occupax import exact
from occupax.algorithms import REINFORCE
from occupax.bench.families import BenchProblem, problems
from occupax.bench.measure import train
from occupax.envs.lqr import LQR
from occupax.io import codec
from occupax.policies import Tabular
from occupax.problem import Problem

STORED = files("occupax.bench") / "references.json"
"""The references of the problems that are the same for everybody."""
TOLERANCE = 1e-6
"""The gap of a certified optimum, as a share of the way from the uniform policy."""
BOUNDS = {"cartpole/return": (1 - 0.99**500) / (1 - 0.99), "cartpole/constraint": 0.0}
"""What no policy can exceed, and a good one attains: all 500 steps, and a distance of zero."""
STARTS = 5
"""From how many tables exact ascent starts, where the utility is not concave."""
MOST_STEPS = 300
"""How many steps it takes at most."""
LONG_RUNS = tuple(REINFORCE(batch=10, step_size=step_size) for step_size in (0.003, 0.01))
"""What long runs are made with: plain settings that no choice of a default changes."""
LONGER = 4
"""How many times the budget they have."""
SEEDS, SEED = range(5), 2
"""The seeds of these runs, which share no random number with those that are scored."""

Source = Literal["certified", "bound", "exact ascent", "long runs"]


class Reference(NamedTuple):
    """The best value of a problem that is known, and how it is known."""

    best: float
    source: Source
    """"certified": no policy is better by more than the gap. "bound": no policy can be better. The
    others are the best that was found, by exact gradients or in long runs, and may be exceeded."""
    gap: float | None = None


def known_reference(it: BenchProblem, folder: Path) -> Reference | None:
    """The reference of a problem if it is stored, or if a folder has it; None if it is to be worked out."""
    file = _file(it, folder)
    kept = json.loads(file.read_text()) if file.exists() else {}
    for known in (_stored().get(it.name, {}), kept):
        if known.get("fingerprint") == it.fingerprint:
            return Reference(known["best"], known["source"], known["gap"])
    return None


def keep_reference(it: BenchProblem, folder: Path) -> Reference:
    """Work out the reference of a problem, and keep it in a folder."""
    found = work_out(it)
    codec.write_text(
        _file(it, folder), json.dumps({"fingerprint": it.fingerprint, **found._asdict()}, indent=1)
    )
    return found


def store(names: Sequence[str]) -> None:
    """Work out the references of problems anew, all of them if no names are given, and store them in the package."""
    known = dict(_stored())
    for it in problems():
        if it.name in names or not names:
            known[it.name] = {"fingerprint": it.fingerprint, **work_out(it)._asdict()}
            codec.write_text(str(STORED), json.dumps(known, indent=1) + "\n")


def work_out(it: BenchProblem) -> Reference:
    """Find out what the best value of a problem is."""
    if isinstance(it.problem.env, LQR):
        return Reference(exact.lqr.optimum(it.problem).value, "certified", 0.0)
    if it.tabular:
        return (
            certify(it.problem)
            if it.problem.utility.concave
            else Reference(ascend(it.problem), "exact ascent")
        )
    if it.name in BOUNDS:
        return Reference(BOUNDS[it.name], "bound")
    values = np.concatenate(
        [
            curve.values
            for curve in train(it.problem, LONG_RUNS, LONGER * it.row.episodes, SEEDS, SEED)
        ]
    )
    # of each run the mean of the last quarter: a single record would be the luckiest one
    return Reference(float(np.nanmax(values[:, -values.shape[1] // 4 :].mean(1))), "long runs")


def certify(problem: Problem) -> Reference:
    """The optimum of a concave utility, with a gap that is small against the way from the uniform policy."""
    env: Any = problem.env
    uniform = np.full((env.num_states, env.num_actions), 1 / env.num_actions)
    first = exact.certificate(problem, uniform)
    best = exact.solve(
        problem, tolerance=0.1 * first.gap
    )  # which tells how long the way is at least
    for tolerance in (TOLERANCE, 1e-4):
        with suppress(
            RuntimeError
        ):  # it is not reached within the iterations: the gap says what was
            best = exact.solve(problem, tolerance=tolerance * (best.value - first.value))
            break
    return Reference(best.value, "certified", best.gap)


def ascend(problem: Problem) -> float:
    """The best local maximum over stationary policies that exact gradients lead to from several starts."""
    from scipy.optimize import minimize

    env: Any = problem.env
    shape, random = (env.num_states, env.num_actions), np.random.default_rng(0)

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        table = logits.reshape(shape)
        slope = exact.gradient(problem, Tabular(jnp.asarray(table)))
        return -exact.value(problem, softmax(table, axis=1)), -np.asarray(
            slope.table, float
        ).ravel()

    starts = [np.zeros(shape), *(2.0 * random.standard_normal((STARTS - 1, *shape)))]
    settings: Any = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": MOST_STEPS}}
    return max(-float(minimize(loss, start.ravel(), **settings).fun) for start in starts)


def _file(it: BenchProblem, folder: Path) -> Path:
    return folder / f"{it.name.replace('/', '-')}.json"


@cache
def _stored() -> dict[str, Any]:
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {}

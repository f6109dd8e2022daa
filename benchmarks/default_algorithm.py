"""Compare PPO with REINFORCE as the default algorithm for networks.

python benchmarks/default_algorithm.py FOLDER [PROBLEMS]

The rule, written before any figure: the problems are those of OccupancyBench that have no table and
the tasks of `actor_critic.py`. Kinds of problems are returns and all others (utilities that are not
linear, and constraints), each with discrete and with continuous actions. PPO is the default of a
kind if the mean over its problems of both measures is higher than that of `ox.REINFORCE` (with the
linear baseline for returns of continuous actions) by more than 0.02, and on no problem of the kind
lower by more than 0.1. A kind without a problem follows the kind with the same utilities. Measures
of the benchmark are the scores "mean" and "end", and of a task its score. Seeds were not used
before.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from actor_critic import Task, score_of_task, tasks

import occupax as ox
from occupax.bench import measure
from occupax.bench.families import BenchProblem, problems
from occupax.bench.references import stored_reference
from occupax.envs.actions import BoxActions

SEEDS = (200, 201, 202, 203, 204)
SEED = 3
"""Seed of everything in runs of the benchmark."""


def is_continuous(problem: ox.Problem) -> bool:
    """Return whether actions are vectors of real numbers."""
    return isinstance(problem.env.action_space, BoxActions)


def is_return(problem: ox.Problem) -> bool:
    """Return whether the objective is linear, without constraints."""
    return problem.utility.linear and not problem.constraints


def algorithms_for(problem: ox.Problem) -> dict[str, Any]:
    """Return the algorithms by name."""
    baseline = "mean"
    if is_continuous(problem) and is_return(problem):
        baseline = "linear"
    return {"PPO": ox.PPO(), "REINFORCE": ox.REINFORCE(baseline=baseline)}


def bench_measures(entry: BenchProblem, algorithm: Any) -> list[float]:
    """Return the measures of an algorithm on a problem of the benchmark."""
    budget = entry.entry.episodes
    policy = measure.policy_source(entry.problem)
    setup = measure.make_setup(entry.problem, [None], policy, 1, SEED, 1, exact=False)
    resolved = algorithm.resolve(entry.problem, setup.policies[0])
    [curve] = measure.train(entry.problem, [resolved], budget, SEEDS, SEED)
    reference = stored_reference(entry)
    if reference is None:
        raise ValueError(f"no reference is stored for {entry.name}.")
    scores = curve.scores(reference.best, budget)
    return [float(scores["mean"].mean()), float(scores["end"].mean())]


def task_measures(task: Task, algorithm: Any) -> list[float]:
    """Return the measure of an algorithm on a development task of PPO."""
    return [float(np.mean(score_of_task(task, algorithm, SEEDS)["score"]))]


def main(folder: Path, names: list[str]) -> None:
    """Print the measures of both algorithms, problem by problem."""
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {entry.name: entry for entry in problems() if not entry.tabular}
    entries |= tasks()
    for name in names or list(entries):
        entry = entries[name]
        for label, algorithm in algorithms_for(entry.problem).items():
            file = folder / f"{name}, {label}.json".replace("/", "_").replace(" ", "_")
            if not file.exists():
                start = time.process_time()
                if isinstance(entry, Task):
                    measures = task_measures(entry, algorithm)
                else:
                    measures = bench_measures(entry, algorithm)
                seconds = time.process_time() - start
                file.write_text(json.dumps({"measures": measures, "seconds": seconds}))
            cell = json.loads(file.read_text())
            numbers = " ".join(f"{number:6.3f}" for number in cell["measures"])
            kind = ["other", "return"][is_return(entry.problem)]
            actions = ["discrete", "continuous"][is_continuous(entry.problem)]
            print(f"{name:28} {kind:6} {actions:10} {label:9} {numbers}", flush=True)


if __name__ == "__main__":
    chosen: list[str] = []
    if len(sys.argv) > 2:
        chosen = sys.argv[2].split(",")
    main(Path(sys.argv[1]), chosen)

"""Choose the defaults of PPO on development problems, and confirm them on other seeds.

python benchmarks/actor_critic.py choose FOLDER [TASKS] [CANDIDATES]     seeds 0 to 4
python benchmarks/actor_critic.py confirm FOLDER [TASKS]                 the defaults, seeds 100 on

The rule, written before any figure: a candidate changes one setting of the base. The score of a
seed on a problem is (last - first) / (goal - first), where "last" is the mean of the metric over
the batches of the last tenth of the budget in environment steps, or of the last batch if it is
longer, and "first" and "goal" are the numbers in `tasks`. It is at most 1 and at least -1. A
candidate replaces the base if its mean score over the problems that it concerns is higher by more
than 0.02, and on no problem lower by more than 0.1. Several replacements are combined and compared
with the base once more by the same rule. Ties stay with the base, so kappa with 1, the heads with
one for each of up to 8 features, and observations normalised where a box of Gymnasium is unbounded.
A setting may depend on whether the actions are continuous and on whether the utility is linear:
then the rule holds for each kind of problem. Confirmed defaults are printed with other seeds and
are not changed after that. The budgets of CartPole and Acrobot are parts of those in which every
seed of the base solved the task, so that candidates differ.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import occupax as ox
from occupax.algorithms import advantages
from occupax.envs.actions import BoxActions

DEVELOPMENT = (0, 1, 2, 3, 4)
CONFIRMATION = (100, 101, 102, 103, 104)

Settings = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A problem with its budget in environment steps, and the numbers that scale its score."""

    problem: ox.Problem
    steps: int
    first: float
    goal: float
    metric: str = "return"
    seeds: int = 5


def tasks() -> dict[str, Task]:
    """Return the development problems by name."""
    lake = ox.Problem("FrozenLake8x8-v1", ox.utilities.LogCoverage(0.125), horizon=200)
    pendulum = ox.Problem("InvertedPendulum-v5")
    return {
        "CartPole": Task(ox.Problem("CartPole-v1"), 15_000, 20.0, 500.0),
        "Acrobot": Task(ox.Problem("Acrobot-v1"), 50_000, -500.0, -80.0),
        "Pendulum": Task(ox.Problem("Pendulum-v1"), 100_000, -1200.0, -150.0),
        "CarContinuous": Task(ox.Problem("MountainCarContinuous-v0"), 200_000, -30.0, 93.0),
        "lake coverage": Task(lake, 400_000, -79.03, -23.02, "utility"),
        "InvertedPendulum": Task(pendulum, 60_000, 20.0, 1000.0, seeds=3),
        "Hopper": Task(ox.Problem("Hopper-v5"), 150_000, 20.0, 2000.0, seeds=2),
    }


BASE: Settings = {"minibatch": 64, "max_kl": 0.03}
"""Settings of the base that are no defaults any more."""
CHOSEN: Settings = {"minibatch": 32, "max_kl": 0.015}
"""Settings that replaced those of the base, for candidates of the second round."""
CANDIDATES: dict[str, Settings] = {
    "base": {},
    "kappa = gamma": {"step_discount": 0.99},
    "gamma_c = 0.95": {"critic_discount": 0.95},
    "gamma_c = 0.98": {"critic_discount": 0.98},
    "lambda = 0.9": {"trace": 0.9},
    "a head for each feature": {"heads": 100},
    "one head": {"heads": 0},
    "batch 10": {"batch": 10},
    "batch 20": {"batch": 20},
    "batch 40": {"batch": 40},
    "batch 64": {"batch": 64},
    "step 0.0003": {"step_size": 0.0003},
    "step 0.003": {"step_size": 0.003},
    "no decay": {"decay_steps": np.inf, "decay_episodes": np.inf},
    "normalised observations": {"normalise": True},
    "raw observations": {"normalise": False},
    "KL unlimited": {"max_kl": np.inf},
    "KL 0.015": {"max_kl": 0.015},
    "minibatch 256": {"minibatch": 256},
    "horizon ends": {"horizon_ends": True},
    "epochs 5": {"epochs": 5},
    "epochs 20": {"epochs": 20},
    "minibatch 32": {"minibatch": 32},
    "deviation 1": {"deviation": 1.0},
    "step 0.003, KL 0.015": {"step_size": 0.003, "max_kl": 0.015},
    "step 0.003, minibatch 32": {"step_size": 0.003, "minibatch": 32},
    "KL 0.015, minibatch 32": {"max_kl": 0.015, "minibatch": 32},
    "all three": {"step_size": 0.003, "max_kl": 0.015, "minibatch": 32},
    "chosen, batch 20": {**CHOSEN, "batch": 20},
    "chosen, batch 64": {**CHOSEN, "batch": 64},
    "chosen, deviation 1": {**CHOSEN, "deviation": 1.0},
    "chosen, step 0.0003": {**CHOSEN, "step_size": 0.0003},
    "chosen, horizon ends": {**CHOSEN, "horizon_ends": True},
    "chosen, batch 64, mixing 1": {**CHOSEN, "batch": 64, "mixing": 1.0},
    "mixing 0.2": {"mixing": 0.2},
    "mixing 1": {"mixing": 1.0},
}
LINEAR_SKIPS = ("a head for each feature", "one head", "mixing 0.2", "mixing 1")
"""Candidates that change nothing for a return."""


def scores(name: str, settings: Settings, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return the score of each seed on a task, and the processor time."""
    task = tasks()[name]
    settings = dict(settings)
    advantages.MAX_VECTOR = settings.pop("heads", 8)
    arguments: Settings = {"normalise": settings.pop("normalise", None)}
    initialiser = ox.policies.mlp
    if isinstance(task.problem.env.action_space, BoxActions):
        initialiser = ox.policies.gaussian
        arguments["deviation"] = settings.pop("deviation", 0.5)
    algorithm = ox.PPO(**{**BASE, **settings})
    return score_of_task(task, algorithm, seeds, initialiser(**arguments))


def score_of_task(
    task: Task, algorithm: Any, seeds: tuple[int, ...], policy: Any = None
) -> dict[str, Any]:
    """Return the scores of an algorithm on a task, the processor time, and the learning curves."""
    start = time.process_time()
    result = ox.train(
        task.problem,
        algorithm,
        steps=task.steps,
        seeds=seeds[: task.seeds],
        policy=policy,
        progress=False,
    )
    values = result.metrics[task.metric]
    last: list[float] = []
    for row, steps in zip(values, result.steps, strict=True):
        finished = np.isfinite(row)
        late = row[finished & (steps > 0.9 * task.steps)]
        if len(late) == 0:
            late = row[finished][-1:]
        last.append(float(np.mean(late)))
    score = (np.array(last) - task.first) / (task.goal - task.first)
    seconds = time.process_time() - start
    return {
        "last": last,
        "score": np.clip(score, -1, 1).tolist(),
        "seconds": seconds,
        "values": values.tolist(),
        "steps": result.steps.tolist(),
        "batch": int(result.episodes[1] - result.episodes[0]),
    }


def cell(folder: Path, name: str, candidate: str, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return the scores of a candidate on a task, from the folder if it has them."""
    file = folder / f"{name}, {candidate}, {seeds[0]}.json".replace(" ", "_")
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        settings = CANDIDATES[candidate]
        if seeds == CONFIRMATION:
            settings = CHOSEN
        file.write_text(json.dumps(scores(name, settings, seeds)))
    return json.loads(file.read_text())


def main(folder: Path, names: list[str], candidates: list[str], seeds: tuple[int, ...]) -> None:
    """Print the scores of candidates, task by task."""
    linear = {name: task.problem.utility.linear for name, task in tasks().items()}
    for candidate in candidates:
        for name in names:
            if linear[name] and candidate in LINEAR_SKIPS:
                continue
            result = cell(folder, name, candidate, seeds)
            last = " ".join(f"{value:.4g}" for value in result["last"])
            mean = np.mean(result["score"])
            seconds = result["seconds"]
            print(f"{name:18} {candidate:24} {mean:6.3f}  {seconds:5.0f} s  {last}", flush=True)


if __name__ == "__main__":
    chosen_seeds = CONFIRMATION if sys.argv[1] == "confirm" else DEVELOPMENT
    wanted = list(tasks())
    if len(sys.argv) > 3:
        wanted = sys.argv[3].split(",")
    listed = list(CANDIDATES) if chosen_seeds == DEVELOPMENT else ["base"]
    if len(sys.argv) > 4:
        listed = sys.argv[4].split(";")
    main(Path(sys.argv[2]), wanted, listed, chosen_seeds)

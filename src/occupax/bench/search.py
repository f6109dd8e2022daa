"""Search of the tuned track: multiples of the step size and half the batches, on other seeds."""

from dataclasses import replace
from typing import Any

import numpy as np

from occupax.algorithms import Algorithm
from occupax.bench.families import BenchProblem
from occupax.bench.measure import Curve, train
from occupax.training.schedule import Schedule

SEED = 1
"""Seed of the search, which shares no random number with scored runs."""
SEEDS = range(2)
SETTINGS = 16
"""Number of settings."""
RANGE = 20.0
"""Largest factor between the tuned hyperparameter and the algorithm's own value."""
SIZES = ("snapshot_batch", "batch")
"""Hyperparameters that are halved."""
TUNED = {"PlugIn": "prior"}
"""Hyperparameter that is multiplied, by class name. All other algorithms tune the `step_size`."""


def candidates(algorithm: Algorithm[Any]) -> list[list[Algorithm[Any]]]:
    """Return the settings to try, in groups that differ in numbers only."""
    sizes = {name: getattr(algorithm, name) for name in SIZES if hasattr(algorithm, name)}
    variants = [algorithm]
    if sizes:
        halves = {name: -(-size // 2) for name, size in sizes.items()}
        variants.append(replace(algorithm, **halves))
    count = SETTINGS // len(variants)
    powers = np.arange(-count // 2, count // 2) * 2 / count
    name = TUNED.get(type(algorithm).__name__, "step_size")
    groups: list[list[Algorithm[Any]]] = []
    for variant in variants:
        values = [float(f"{getattr(algorithm, name) * RANGE**power:.3g}") for power in powers]
        groups.append([replace(variant, **{name: value}) for value in values])
    return groups


def best_setting(problem: BenchProblem, algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the setting with the highest mean utility over the training."""
    best = algorithm
    best_score = -np.inf
    episodes = problem.entry.episodes
    for group in candidates(algorithm):
        if Schedule(group[0]).iterations(episodes) == 0:
            continue
        curves = train(problem.problem, group, episodes, SEEDS, SEED)
        for setting, curve in zip(group, curves, strict=True):
            score = _mean_utility(curve)
            if score > best_score:  # False for NaN
                best = setting
                best_score = score
    return best


def _mean_utility(curve: Curve) -> float:
    """Return the mean over seeds and training, which ranks settings as the score does."""
    weights = np.diff(curve.episodes) / curve.episodes[-1]
    return float(np.mean(curve.values[:, 1:] @ weights))

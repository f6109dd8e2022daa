"""Steps until a task is solved, with the default of Occupax and with Stable-Baselines3.

What a user would pick instead: A2C with 16 environments and PPO with 8, with their default
settings. Counted are the steps of the environment until the task is solved for good: the first time
that the mean return of 20 episodes of training in a row is at least 475 on CartPole-v1, or -100 on
Acrobot-v1, and that of the next 20 as well. On Acrobot seeds differ by a factor of ten, and the
median of five of them by a factor of two, so that each has fifteen but PPO, which takes long and
comes far behind; those of Occupax are 100 to 114, on which nothing was chosen. A seed that does not
get there within its budget (150,000 steps; 2,000 episodes of Occupax) counts as infinitely many.
Steps are counted, not seconds, so the seeds of Stable-Baselines3 run side by side, and end where
they are solved.
"""

import importlib
import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from published import SKIPPED

import occupax as ox
from tables import Table, at_most, show

TASKS = {"CartPole-v1": 475.0, "Acrobot-v1": -100.0}
WINDOW, STEPS, EPISODES = 20, 150_000, 2_000
SEEDS = range(100, 115)
THEIRS = {"A2C": 16, "PPO": 8}
"""How many environments each has."""
QUARTERS = (0.25, 0.5, 0.75)
THEIR_SEEDS = {"A2C": range(15), "PPO": range(5)}


def solved(returns: np.ndarray, steps: np.ndarray, threshold: float, window: int) -> float:
    """Return the steps until two successive windows of returns average at least the threshold."""
    if len(returns) < 2 * window:
        return np.inf
    means = np.convolve(returns, np.ones(window) / window, "valid")
    (found,) = np.nonzero((means[:-window] >= threshold) & (means[window:] >= threshold))
    return float(steps[found[0] + window - 1]) if len(found) else np.inf


def ours(name: str, algorithm: Any = None, seeds: range = SEEDS) -> list[float]:
    """An algorithm or the default, of which each record is the mean over a batch."""
    result = ox.train(ox.Problem(ox.make(name)), algorithm, EPISODES, seeds=seeds, progress=False)
    batch = int(result.episodes[1] - result.episodes[0])
    runs = zip(result.metrics["return"], result.steps, strict=True)
    return [solved(returns, steps, TASKS[name], WINDOW // batch) for returns, steps in runs]


def theirs(algorithm: str, name: str, seed: int) -> float:
    """Train a Stable-Baselines3 algorithm with its defaults and return the steps until solved.

    The monitors record the return of each episode, in the order of their ends.
    """
    baselines = importlib.import_module("stable_baselines3")
    make: Any = importlib.import_module("stable_baselines3.common.env_util").make_vec_env
    base: Any = importlib.import_module("stable_baselines3.common.callbacks").BaseCallback
    returns, steps = list[float](), list[int]()
    recent = (
        2 * WINDOW + THEIRS[algorithm]
    )  # a step of all environments ends no more episodes than there are of them

    class Watch(base):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    returns.append(info["episode"]["r"])
                    steps.append(self.num_timesteps)
            last = np.array(returns[-recent:]), np.array(steps[-recent:])
            return bool(np.isinf(solved(*last, TASKS[name], WINDOW)))

    importlib.import_module("torch").set_num_threads(1)
    model = getattr(baselines, algorithm)(
        "MlpPolicy", make(name, THEIRS[algorithm], seed=seed), seed=seed, device="cpu"
    )
    model.learn(STEPS, Watch())
    return solved(np.array(returns), np.array(steps), TASKS[name], WINDOW)


def measure() -> list[Table]:
    """Every seed of everyone on both tasks."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "stable_baselines3")):
        return [Table("CartPole-v1 and Acrobot-v1", [], [], remarks=[SKIPPED])]
    jobs = [(it, name, seed) for it, name in product(THEIRS, TASKS) for seed in THEIR_SEEDS[it]]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        counts = dict(zip(jobs, processes.map(theirs, *zip(*jobs, strict=True)), strict=True))
    tables: list[Table] = []
    for name in TASKS:
        found = {"Occupax, the default": ours(name)}
        found |= {
            f"{it}, {n} environments": [counts[it, name, seed] for seed in THEIR_SEEDS[it]]
            for it, n in THEIRS.items()
        }
        quarters = {
            who: np.quantile(steps, QUARTERS, method="nearest") for who, steps in found.items()
        }
        rows = [[who, str(len(found[who])), *(f"{n:,.0f}" for n in quarters[who])] for who in found]
        mine, *others = (float(steps[1]) for steps in quarters.values())
        target = at_most(0.5, mine / min(others), "of the steps of the better one of the others")
        columns = [
            "",
            "seeds",
            "a quarter has solved it",
            "half has (the median)",
            "three quarters have",
        ]
        tables.append(Table(name, columns, rows, [target]))
    return tables


if __name__ == "__main__":
    show(measure())

"""Returns of PPO with its defaults on classic control and MuJoCo, on seeds that chose nothing.

python benchmarks/control.py FOLDER [TASKS]        trains what FOLDER lacks, and prints all tables

The figure of a seed is the mean return of its training batches in the last tenth of the budget, or
of the last batch if it is longer. Policies sample their actions. On CartPole and Acrobot it is the
number of environment steps until the task is solved for good: the first time that the mean return
of 20 episodes of training in a row reaches the threshold, and that of the next 20 as well.
Stable-Baselines3's PPO has its default settings and one environment, and "normalised" is the same
with `VecNormalize`. It counts the episodes that end in the last tenth of the budget. It is skipped
if it is not installed.
"""

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from actor_critic import Task, score_of_task
from solving import WINDOW, solved

import occupax as ox
from tables import Table, Target, show


@dataclass(frozen=True)
class Goal:
    """An environment with a budget of steps, and the return that seeds should reach."""

    name: str
    steps: int
    seeds: int
    wanted: float
    least: int
    """Number of seeds that should reach it."""
    until_solved: bool = False
    """Whether the figure is the number of steps until the return is reached for good."""

    @property
    def title(self) -> str:
        """Name with the budget."""
        return f"{self.name}, {self.steps:,} steps"


GOALS = {
    goal.name: goal
    for goal in (
        Goal("CartPole-v1", 150_000, 15, 475.0, 15, until_solved=True),
        Goal("Acrobot-v1", 150_000, 15, -100.0, 15, until_solved=True),
        Goal("Pendulum-v1", 100_000, 30, -200.0, 28),
        Goal("MountainCarContinuous-v0", 200_000, 10, 90.0, 9),
        Goal("InvertedPendulum-v5", 100_000, 10, 999.0, 10),
        Goal("InvertedDoublePendulum-v5", 300_000, 10, 9_000.0, 10),
        Goal("Hopper-v5", 300_000, 3, 2_000.0, 3),
        Goal("HalfCheetah-v5", 300_000, 3, 1_000.0, 3),
        Goal("Walker2d-v5", 300_000, 3, 1_000.0, 3),
    )
}
FIRST_SEED = 300
METHODS = ("PPO", "SB3", "SB3 normalised")
LABELS = {
    "PPO": "Occupax, PPO",
    "SB3": "Stable-Baselines3, PPO",
    "SB3 normalised": "Stable-Baselines3, PPO, normalised",
}


def ours(goal: Goal) -> list[float]:
    """Return the figure of each seed of PPO with its defaults."""
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + goal.seeds))
    task = Task(ox.Problem(goal.name), goal.steps, 0.0, goal.wanted, seeds=goal.seeds)
    trained = score_of_task(task, ox.PPO(), seeds)
    if not goal.until_solved:
        return trained["last"]
    figures: list[float] = []
    for returns, steps in zip(trained["values"], trained["steps"], strict=True):
        batch = trained["batch"]
        figures.append(solved(np.array(returns), np.array(steps), goal.wanted, WINDOW // batch))
    return figures


def theirs(goal: Goal, seed: int, normalised: bool) -> float:
    """Return the figure of a seed of Stable-Baselines3's PPO."""
    baselines = importlib.import_module("stable_baselines3")
    environments: Any = importlib.import_module("stable_baselines3.common.env_util")
    vectors: Any = importlib.import_module("stable_baselines3.common.vec_env")
    base: Any = importlib.import_module("stable_baselines3.common.callbacks").BaseCallback
    returns: list[float] = []
    steps: list[int] = []

    class Watch(base):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    returns.append(info["episode"]["r"])
                    steps.append(self.num_timesteps)
            if not goal.until_solved:
                return True
            recent = slice(-2 * WINDOW - 1, None)
            reached = solved(
                np.array(returns[recent]), np.array(steps[recent]), goal.wanted, WINDOW
            )
            return bool(np.isinf(reached))

    importlib.import_module("torch").set_num_threads(1)
    env = environments.make_vec_env(goal.name, 1, seed=seed)
    if normalised:
        env = vectors.VecNormalize(env)
    model = baselines.PPO("MlpPolicy", env, seed=seed, device="cpu")
    model.learn(goal.steps, Watch())
    if goal.until_solved:
        return solved(np.array(returns), np.array(steps), goal.wanted, WINDOW)
    is_late = np.array(steps) > 0.9 * goal.steps
    return float(np.mean(np.array(returns)[is_late]))


def figures_of(folder: Path, method: str, goal: Goal) -> dict[str, Any] | None:
    """Return the figures of a method, trained unless the folder has them; None if not installed."""
    file = folder / f"{goal.name}, {method}.json".replace(" ", "_")
    if not file.exists():
        if method != "PPO" and importlib.util.find_spec("stable_baselines3") is None:
            return None
        start = time.process_time()
        if method == "PPO":
            figures = ours(goal)
        else:
            seeds = range(min(goal.seeds, 5))
            figures = [theirs(goal, seed, method != "SB3") for seed in seeds]
        seconds = time.process_time() - start
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"figures": figures, "seconds": seconds}))
    return json.loads(file.read_text())


def table_of(folder: Path, goal: Goal) -> Table:
    """Return the table of a task."""
    rows: list[list[str]] = []
    targets: list[Target] = []
    is_reached: Callable[[float], bool] = lambda figure: figure >= goal.wanted  # noqa: E731
    if goal.until_solved:
        is_reached = lambda figure: figure <= goal.steps  # noqa: E731
    for method in METHODS:
        cell = figures_of(folder, method, goal)
        if cell is None:
            continue
        figures = cell["figures"]
        count = sum(map(is_reached, figures))
        if method == "PPO":
            wanted = f"{goal.wanted:g} by at least {goal.least} of {goal.seeds} seeds"
            targets.append(Target(wanted, str(count), count >= goal.least))
        low, middle, high = np.quantile(figures, (0, 0.5, 1), method="nearest")
        rows.append([LABELS[method], str(len(figures)), f"{middle:,.0f}", f"{low:,.0f}"])
        rows[-1] += [f"{high:,.0f}", str(count), f"{cell['seconds'] / len(figures):,.1f}"]
    figure = "return"
    if goal.until_solved:
        figure = f"steps until {goal.wanted:g}"
    columns = ["", "seeds", f"{figure}: median", "lowest", "highest", "seeds that reached it"]
    return Table(goal.title, [*columns, "processor seconds a seed"], rows, targets)


if __name__ == "__main__":
    chosen = list(GOALS)
    if len(sys.argv) > 2:
        chosen = sys.argv[2].split(",")
    for chosen_name in chosen:
        show([table_of(Path(sys.argv[1]), GOALS[chosen_name])])

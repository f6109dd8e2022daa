"""Learning curves of the default of `occupax.train` on MuJoCo, five seeds, against random actions.

python examples/mujoco_curves.py    takes some minutes

The figures go to docs/figures. The numbers of docs/actions.md are printed.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np

import occupax as ox
from occupax.analysis.charts import Chart, Level, seeds_series
from occupax.analysis.plots import draw, svg_text

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
SEEDS, LAST = 5, 100
"""How many seeds, and of how many episodes at the end the mean is shown."""
TASKS = {"Swimmer-v5": (200, 400), "Reacher-v5": (50, 1_500)}
"""Horizon, and episodes of each seed."""


def random_return(name: str, horizon: int, episodes: int = 100) -> float:
    """The mean return of actions that are uniform in their bounds, within the horizon."""
    env = gym.make(name)
    env.action_space.seed(0)
    total = 0.0
    for seed in range(episodes):
        env.reset(seed=seed)
        for _ in range(horizon):
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            if terminated or truncated:
                break
    env.close()
    return total / episodes


def learn(name: str, horizon: int, episodes: int) -> str:
    """Train, draw the curve, and say what was reached."""
    problem = ox.Problem(name, horizon=horizon)
    algorithm = ox.REINFORCE(baseline="linear")
    result = ox.train(problem, algorithm, episodes=episodes, seeds=SEEDS, progress=False)
    returns, chance = result.metrics["return"], random_return(name, horizon)
    short = name.partition("-")[0].lower()
    chart = Chart(
        f"mujoco-{short}",
        f"{name}, horizon {horizon}",
        "Mean return of the batches of each iteration: median and quartiles of five seeds.",
        "episodes",
        "return",
        (seeds_series("REINFORCE", result.episodes, returns),),
        (Level("random actions", chance),),
    )
    (FIGURES / f"{chart.name}.svg").write_text(svg_text(draw(chart), chart.name))
    last = returns[:, result.episodes > episodes - LAST].mean(1)
    first = returns[:, result.episodes <= LAST].mean(1)
    found = f"median {np.median(last):.1f}, worst {last.min():.1f}, best {last.max():.1f}"
    return (
        f"{name}: first {LAST} episodes {np.median(first):.1f}, last {LAST} {found}; "
        f"random {chance:.1f}; {result.steps[:, -1].sum():,} steps in {result.seconds:.0f} s"
    )


if __name__ == "__main__":
    for name, (horizon, episodes) in TASKS.items():
        print(learn(name, horizon, episodes), flush=True)

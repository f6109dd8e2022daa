"""The picture of the documentation's first page: where a learned policy goes on the ice, beside the best possible one.

python examples/pictures.py        writes docs/figures/lake.svg, in half a minute
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import occupax as ox
from occupax.analysis.plots import svg_text

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SIDE = 8
OPTIMAL = "optimal for 200 steps"
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])  # columns and rows of left, down, right, up


def draw(axes: Any, problem: ox.Problem, occupancy: np.ndarray, title: str, most: float) -> Any:
    """Draw a map of visits, with an arrow for the action that is taken most often, where one is preferred."""
    totals = occupancy.sum(1, keepdims=True)
    shares = occupancy / np.maximum(totals, np.finfo(float).tiny)
    visits = totals.reshape(SIDE, SIDE)
    image = axes.imshow(visits, vmin=0, vmax=most, cmap="viridis")
    env: Any = problem.env
    for state in range(env.num_states):
        row, column = divmod(state, SIDE)
        ink = "#ffffff" if visits[row, column] < 0.6 * most else "#101010"
        if env.terminal[state]:
            name = "G" if state == env.num_states - 1 else "H"
            axes.text(column, row, name, color=ink, ha="center", va="center", fontsize=9, alpha=0.8)
        elif shares[state].max() > 1 / 3:
            x, y = 0.3 * MOVES[shares[state].argmax()]
            arrow = {"arrowstyle": "-|>", "color": ink, "linewidth": 1.1, "mutation_scale": 7}
            axes.annotate("", (column + x, row + y), (column - x, row - y), arrowprops=arrow)
    axes.set_title(title, fontsize=10)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return image


def lake() -> Figure:
    """Draw the uniform policy, the one that the first page trains, and the optimum, which depends on time."""
    coverage = ox.utilities.LogCoverage(sigma=0.125)
    problem = ox.Problem("FrozenLake8x8-v1", coverage, discount=0.99, horizon=200)
    result = ox.train(problem, episodes=10_000, seeds=5, progress=False)
    states = jnp.arange(SIDE * SIDE)
    trained: Any = result.best_policy
    learned = np.asarray(jax.vmap(trained.probs)(states), float)
    best = ox.solve(problem, tolerance=1e-3).policy
    policies = {
        "uniform": np.full_like(learned, 0.25),
        "learned, 10,000 episodes": learned,
        "optimal for 200 steps": best,
    }
    values = {name: ox.exact.value(problem, probs) for name, probs in policies.items()}
    maps = {name: ox.exact.occupancy(problem, probs) for name, probs in policies.items()}
    assert max(values.values()) == values[OPTIMAL]  # noqa: S101
    most = max(
        float(occupancy.sum(1)[1:].max()) for name, occupancy in maps.items() if name != "uniform"
    )
    figure = Figure(figsize=(7.0, 2.6), layout="constrained")
    panels = list(figure.subplots(1, 3))
    image = None
    for axes, (name, occupancy) in zip(panels, maps.items(), strict=True):
        image = draw(axes, problem, occupancy, f"{name}\nlog coverage {values[name]:.1f}", most)
    assert image is not None  # noqa: S101
    figure.colorbar(
        image, ax=panels, label="discounted visits", shrink=0.75, aspect=22, extend="max"
    )
    return figure


if __name__ == "__main__":
    (FIGURES / "lake.svg").write_text(svg_text(lake(), "lake"), "utf-8")

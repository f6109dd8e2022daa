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
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])  # columns and rows of left, down, right, up


def draw(axes: Any, problem: ox.Problem, probs: np.ndarray, title: str, most: float) -> Any:
    """A map of the visits of a policy, with an arrow for its most probable action where it prefers one."""
    visits = ox.exact.occupancy(problem, probs).sum(1).reshape(SIDE, SIDE)
    image = axes.imshow(visits, vmin=0, vmax=most, cmap="viridis")
    env: Any = problem.env
    for state in range(env.num_states):
        row, column = divmod(state, SIDE)
        ink = "#ffffff" if visits[row, column] < 0.6 * most else "#101010"
        if env.terminal[state]:
            name = "G" if state == env.num_states - 1 else "H"
            axes.text(column, row, name, color=ink, ha="center", va="center", fontsize=9, alpha=0.8)
        elif probs[state].max() > 1 / 3:
            x, y = 0.3 * MOVES[probs[state].argmax()]
            arrow = {"arrowstyle": "-|>", "color": ink, "linewidth": 1.1, "mutation_scale": 7}
            axes.annotate("", (column + x, row + y), (column - x, row - y), arrowprops=arrow)
    axes.set_title(f"{title}\nlog coverage {ox.exact.value(problem, probs):.1f}", fontsize=10)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return image


def lake() -> Figure:
    """Maps of the uniform policy, of the one that the first page trains, and of the best stationary one."""
    coverage = ox.utilities.LogCoverage(sigma=0.125)
    problem = ox.Problem("FrozenLake8x8-v1", coverage, discount=0.99, horizon=200)
    result = ox.train(problem, episodes=10_000, seeds=5, progress=False)
    states = jnp.arange(SIDE * SIDE)
    trained: Any = result.best_policy
    learned = np.asarray(jax.vmap(trained.probs)(states), float)
    best = ox.solve(ox.Problem("FrozenLake8x8-v1", coverage, discount=0.99), tolerance=1e-3).policy
    shown = {"uniform": np.full_like(learned, 0.25), "learned, 10,000 episodes": learned, "optimal": best}
    most = max(float(ox.exact.occupancy(problem, probs).sum(1)[1:].max()) for probs in (learned, best))
    figure = Figure(figsize=(7.0, 2.6), layout="constrained")
    panels = list(figure.subplots(1, 3))
    image = None
    for axes, (title, probs) in zip(panels, shown.items(), strict=True):
        image = draw(axes, problem, probs, title, most)
    assert image is not None  # noqa: S101
    figure.colorbar(image, ax=panels, label="discounted visits", shrink=0.75, aspect=22, extend="max")
    return figure


if __name__ == "__main__":
    (FIGURES / "lake.svg").write_text(svg_text(lake(), "lake"), "utf-8")

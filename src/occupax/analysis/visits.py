"""Maps of visits, over the layouts of tabular environments and over grids of observations."""

from dataclasses import replace
from itertools import compress
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float

from occupax import exact
from occupax.analysis.charts import HeatMap, Maps
from occupax.analysis.plots import MOVES
from occupax.envs.layout import Layout
from occupax.envs.tabular import TabularMDP
from occupax.exact.dynamics import StateActionArray
from occupax.features import Grid
from occupax.io import codec
from occupax.io.codec import class_name
from occupax.problem import Problem
from occupax.training.assessment import quick_optimum

AS_GOOD = 0.99
"""Actions of this share of the largest probability have an arrow too."""
ARROWS = {(right, down)[::-1]: arrow for arrow, (right, down) in MOVES.items()}
"""Arrow of each change of row and column."""
LETTERS = {"S": "start", "G": "goal", "H": "hole", "C": "cliff"}


def visits(name: str, problem: Problem, best: StateActionArray, title: str) -> Maps | None:
    """Return maps of the visits of a policy, the optimum and the uniform policy.

    The result is None without a layout.
    """
    env = cast("TabularMDP", problem.env)
    layout = env.layout
    if layout is None:
        return None
    occupancy = exact.occupancy(problem, best)
    policy_map = visits_map(name, title, occupancy.sum(1), layout)
    caption = policy_map.caption
    terminal = np.asarray(env.terminal)
    grids = [_grid(title, occupancy, layout, terminal)]
    if layout.moves:
        caption += " Arrows: the most probable action, and those within 1% of it."
    caption += _legend(layout)
    optimum = quick_optimum(problem)
    if optimum is not None:
        grids.append(_grid("optimal policy", optimum.occupancy, layout, terminal))
        if problem.horizon is not None:
            caption += f" The optimal policy for {problem.horizon:,} steps depends on time."
            if layout.moves:
                caption += " Its arrows are the actions taken most often in each cell."
    uniform = exact.occupancy(problem, np.full(best.shape, 1 / env.num_actions))
    grids.append(_state_map("uniform policy", uniform.sum(1), layout))
    return replace(policy_map, caption=caption, grids=tuple(grids))


def _legend(layout: Layout) -> str:
    """Return a sentence on the letters of a map. Empty for a map without known letters."""
    used = set("".join(layout.rows))
    meanings = [f"{letter}: {name}" for letter, name in LETTERS.items() if letter in used]
    return f" {'; '.join(meanings)}." if meanings else ""


def occupancy_map(
    title: str, problem: Problem, occupancy: Float[np.ndarray, "S A"], *, arrows: bool = True
) -> HeatMap:
    """Return a map of an occupancy measure on the layout of a table.

    Args:
        title: Title of the map.
        problem: Problem on a table.
        occupancy: Discounted visits of each state and action.
        arrows: Whether to draw the most probable moves of each cell.

    Raises:
        ValueError: If the table has no layout.
    """
    env = cast("TabularMDP", problem.env)
    layout = env.layout
    if layout is None:
        raise ValueError(
            "the environment must have a layout to be drawn: TabularMDP(..., "
            "layout=ox.envs.Layout(rows))."
        )
    if not arrows:
        layout = Layout(layout.rows, (), layout.states_per_cell)
    return _grid(title, occupancy, layout, np.asarray(env.terminal))


def saved_layout(setup: dict[str, Any]) -> Layout | None:
    """Return the layout of the environment of a saved problem that may not be restorable."""
    env = setup["problem"].get("fields", {}).get("env")
    if class_name(env) != "TabularMDP":
        return None
    return codec.unpack(env["fields"]["layout"], {})


def grid_map(name: str, title: str, grid: Grid, visited: Float[np.ndarray, " cells"]) -> Maps:
    """Return a map of the visits of the cells of a grid, along its first two coordinates."""
    cells = visited.reshape(grid.bins)
    plane = cells.reshape(len(cells), -1)
    if cells.ndim > 2:
        plane = cells.sum(tuple(range(2, cells.ndim)))
    names = [_coordinate(coordinate) for coordinate in grid.coordinates]
    names += [f"action[{entry}]" for entry in grid.actions]
    labels: list[str] = []
    for coordinate, low, high in zip(names, grid.low, grid.high, strict=True):
        labels.append(f"{coordinate}, {low:g} to {high:g}")
    caption = "Discounted visits of each cell per episode, estimated. "
    if len(names) > 2:
        caption += f"Summed over {', '.join(names[2:])}. "
    caption += "Brighter is more often; hatched is never."
    return Maps(name, "Visits", caption, (HeatMap(title, plane.T[::-1]),), *labels[:2])


def _coordinate(coordinate: int | tuple[str, int]) -> str:
    """Return an entry of the observation as an expression of Python."""
    if isinstance(coordinate, int):
        return f"observation[{coordinate}]"
    name, entry = coordinate
    return f'observation["{name}"][{entry}]'


def visits_map(name: str, title: str, visited: Float[np.ndarray, " S"], layout: Layout) -> Maps:
    """Return a map of the exact discounted visits of each state."""
    caption = (
        "How often each cell is visited in an episode, discounted and exact. "
        "Brighter is more often; hatched is never."
    )
    return Maps(name, "Visits", caption, (_state_map(title, visited, layout),))


def _state_map(title: str, visited: Float[np.ndarray, " S"], layout: Layout) -> HeatMap:
    return HeatMap(title, layout.to_map(visited), marks=layout.marks, walls=layout.walls)


def _grid(
    title: str, occupancy: StateActionArray, layout: Layout, terminal: Bool[np.ndarray, " S"]
) -> HeatMap:
    """Return a map of visits, with an arrow for each likely move if actions are moves."""
    visited = occupancy.sum(1)
    values = layout.to_map(visited)
    if not layout.moves:
        return _state_map(title, visited, layout)
    likely = occupancy >= AS_GOOD * occupancy.max(1, keepdims=True)
    arrows = [[""] * layout.shape[1] for _ in range(layout.shape[0])]
    for state, cell in enumerate(layout.cells):
        if visited[state] > 0 and not terminal[state]:
            row, column = divmod(cell, layout.shape[1])
            moves = compress(layout.moves, likely[state])
            arrows[row][column] = "".join(ARROWS.get(move, "") for move in moves)
    return HeatMap(title, values, arrows, layout.marks, layout.walls)

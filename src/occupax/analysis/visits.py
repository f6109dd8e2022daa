"""Maps of where policies go: over the states of a process that are the cells of a square, and over grids."""

from dataclasses import replace
from itertools import compress
from math import isqrt
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float

from occupax import exact
from occupax.analysis.charts import HeatMap, Maps
from occupax.analysis.plots import MOVES
from occupax.envs.tables import MOVES as CELL_MOVES
from occupax.envs.tabular import TabularMDP
from occupax.exact.dynamics import StateActionArray
from occupax.features import Grid
from occupax.problem import Problem
from occupax.training.assessment import quick_optimum

AS_GOOD = 0.99
"""Actions of this share of the largest probability have an arrow too."""


def visits(name: str, problem: Problem, best: StateActionArray, title: str) -> Maps | None:
    """Maps of the visits of a policy, the optimal and the uniform one; None if the states are not those of a square."""
    alone, env = (
        visits_map(name, title, exact.occupancy(problem, best).sum(1)),
        cast("TabularMDP", problem.env),
    )
    if alone is None:
        return None
    grid, nowhere = is_grid(env, isqrt(env.num_states)), np.zeros(env.num_states, bool)
    moving = ~np.asarray(env.terminal) if grid else nowhere
    optimum, caption = quick_optimum(problem), alone.caption
    grids = [_grid(title, exact.occupancy(problem, best), moving)]
    if grid:
        caption += " Arrows: the most probable action, and those within 1% of it. S: start; G: an end that is rewarded; "
        caption += "H: any other end, such as a hole."
    if optimum is not None:
        grids.append(_grid("optimal policy", optimum.occupancy, moving))
        if problem.horizon is not None:
            caption += f" The optimal policy for {problem.horizon:,} steps depends on time."
            if grid:
                caption += " Its arrows are the actions taken most often in each cell."
    uniform = np.full(best.shape, 1 / env.num_actions)
    grids.append(_grid("uniform policy", exact.occupancy(problem, uniform), nowhere))
    if grid:
        letters = _marks(env)
        grids = [replace(one, marks=letters) for one in grids]
    return replace(alone, caption=caption, grids=tuple(grids))


def _marks(env: TabularMDP) -> list[list[str]]:
    """The letters of the cells of a square: where episodes start, and where they end, with a reward or without."""
    side, ends = isqrt(env.num_states), np.asarray(env.terminal)
    paid = np.zeros(env.num_states)
    entered = np.asarray(env.probabilities) > 0
    np.maximum.at(paid, env.successors[entered], env.outcome_rewards[entered])
    letters = np.where(
        ends, np.where(paid > 0, "G", "H"), np.where(np.asarray(env.initial) > 0, "S", "")
    )
    return letters.reshape(side, side).tolist()


def grid_map(name: str, title: str, grid: Grid, visited: Float[np.ndarray, " cells"]) -> Maps:
    """A map of the visits of the cells of a grid over observations, along its first two coordinates."""
    cells = visited.reshape(grid.bins)
    plane = (
        cells.sum(tuple(range(2, cells.ndim))) if cells.ndim > 2 else cells.reshape(len(cells), -1)
    )
    names = [_coordinate(it) for it in (*grid.coordinates, *(f"action {i}" for i in grid.actions))]
    along = [
        f"{it} from {low:g} to {high:g}"
        for it, low, high in zip(names, grid.low, grid.high, strict=True)
    ]
    caption = f"How often each cell is visited in an episode, discounted and estimated. From left to right: {along[0]}"
    caption += f"; upwards: {along[1]}" if len(along) > 1 else ""
    caption += f"; summed over {', '.join(names[2:])}" if len(names) > 2 else ""
    caption += ". Brighter is more often; hatched is never."
    return Maps(name, "Visits", caption, (HeatMap(title, plane.T[::-1]),))


def _coordinate(it: Any) -> str:
    if isinstance(it, str):
        return it
    return f"entry {it} of the observation" if isinstance(it, int) else f"entry {it[1]} of {it[0]}"


def visits_map(name: str, title: str, visited: Float[np.ndarray, " S"]) -> Maps | None:
    """A map of the exact discounted visits of each state; None if they are not as many as the cells of a square."""
    side = isqrt(len(visited))
    if side < 2 or side * side != len(visited):
        return None
    caption = (
        f"How often each state is visited in an episode, discounted and exact. State s is in row s // {side} and "
        f"column s % {side}, a map if the states are the cells of a grid. Brighter is more often; hatched is never."
    )
    return Maps(name, "Visits", caption, (HeatMap(title, visited.reshape(side, side)),))


def is_grid(env: TabularMDP, side: int) -> bool:
    """Whether the actions are left, down, right, up on a square: they can lead there, to the sides, and not back."""
    if env.num_actions != len(CELL_MOVES):
        return False
    state, action, _ = np.indices(env.successors.shape)
    live = ~np.asarray(env.terminal)
    possible = (np.asarray(env.probabilities) > 0) & live[state]
    across, along = np.array(CELL_MOVES)[action].transpose(3, 0, 1, 2)
    row, column = state // side, state % side
    down, right = env.successors // side - row, env.successors % side - column
    ahead = down * across + right * along
    stopped = (np.clip(row + across, 0, side - 1) == row) & (
        np.clip(column + along, 0, side - 1) == column
    )
    reaches = ((ahead == np.where(stopped, 0, 1)) & possible).any(-1)
    return bool(
        (abs(down) + abs(right) <= 1)[possible].all()
        and (ahead >= 0)[possible].all()
        and reaches[live].all()
    )


def _grid(title: str, occupancy: StateActionArray, moving: Bool[np.ndarray, " S"]) -> HeatMap:
    visited = occupancy.sum(1)
    square = (isqrt(len(visited)), -1)
    if not moving.any():
        return HeatMap(title, visited.reshape(square))
    likely = (occupancy >= AS_GOOD * occupancy.max(1, keepdims=True)) & (moving & (visited > 0))[
        :, None
    ]
    cells = likely.reshape(*square, len(MOVES))
    texts = [["".join(compress(MOVES, cell)) for cell in row] for row in cells]
    return HeatMap(title, visited.reshape(square), texts)

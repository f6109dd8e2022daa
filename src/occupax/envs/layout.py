"""Layouts: positions of the states of a tabular MDP on a map."""

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

WALL = "#"
FREE = ".F "
"""Letters of cells that need no mark."""

Move = tuple[int, int]
"""Change of row and column."""


class Layout(eqx.Module):
    """Map on which the states of a tabular MDP are drawn.

    States are numbered row by row over the cells that are not walls, `states_per_cell` consecutive
    states to a cell. States beyond the last cell are not on the map.

    Args:
        rows: one string per row and one letter per cell: `#` is a wall, `.` or `F` a free cell, and
            any other letter a mark to draw, such as S (start), G (goal), H (hole) and C (cliff).
        moves: change of row and column of each action; empty (default) if actions are not moves.
        states_per_cell: number of states that share a cell, by default 1.
    """

    rows: tuple[str, ...] = eqx.field(static=True, converter=tuple[str, ...])
    moves: tuple[Move, ...] = eqx.field(static=True, converter=tuple[Move, ...], default=())
    states_per_cell: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        lengths = {len(row) for row in self.rows}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"rows must be strings of one length, got lengths {sorted(lengths)}.")
        if self.states_per_cell < 1:
            raise ValueError(f"states_per_cell must be at least 1, got {self.states_per_cell}.")

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self.rows), len(self.rows[0])

    @property
    def letters(self) -> np.ndarray:
        """Letter of each cell, [rows, columns]."""
        return np.array([list(row) for row in self.rows])

    @property
    def marks(self) -> list[list[str]]:
        """Letters of the marked cells. Empty strings for walls and free cells."""
        is_plain = np.isin(self.letters, [WALL, *FREE])
        return np.where(is_plain, "", self.letters).tolist()

    @property
    def walls(self) -> Bool[np.ndarray, "rows columns"]:
        """Whether each cell is a wall."""
        return self.letters == WALL

    @property
    def cells(self) -> Int[np.ndarray, " states"]:
        """Cell of each state on the map, row * columns + column."""
        return np.repeat(np.flatnonzero(~self.walls), self.states_per_cell)

    def to_map(self, values: Float[np.ndarray, " S"]) -> Float[np.ndarray, "rows columns"]:
        """Return the sum over the states of each cell, and 0 for walls."""
        cells = self.cells
        sums = np.bincount(cells, values[: len(cells)], minlength=self.walls.size)
        return sums.reshape(self.shape)


def check_layout(layout: object, num_states: int, num_actions: int) -> None:
    """Raise ValueError unless a layout fits a tabular MDP."""
    if layout is None:
        return
    if not isinstance(layout, Layout):
        raise ValueError(f"layout must be an occupax.envs.Layout or None, got {layout!r:.60}.")
    if len(layout.cells) > num_states:
        count = len(layout.cells)
        raise ValueError(f"layout must have at most {num_states} states, the table's, got {count}.")
    if layout.moves and len(layout.moves) != num_actions:
        count = len(layout.moves)
        raise ValueError(f"layout must have {num_actions} moves, one per action, got {count}.")

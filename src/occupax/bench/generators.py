"""Random environments: lakes, cliffs, taxis, grids, chains, garnets and linear systems."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from occupax.envs import LQR, Layout, TabularMDP, make
from occupax.envs.tables import MOVES, cliff_rows

Random = np.random.Generator
ICE = 2 / 3
"""Probability that a step on ice slips to a side."""
TAXI_STARTS = 30


def linear(random: Random, states: int, actions: int) -> LQR:
    """Return a linear system with quadratic costs."""
    seed = int(random.integers(2**31))
    return LQR.random(states, actions, seed)


def lake(random: Random, size: int) -> TabularMDP:
    """Return a frozen lake of size x size cells, a fifth of which are holes."""
    return TabularMDP.gridworld(_random_map(random, size, 0.2), ICE)


def grid(random: Random, size: int) -> TabularMDP:
    """Return a grid with some slipping, a quarter of whose cells are holes."""
    cells = _random_map(random, size, 0.25)
    return TabularMDP.gridworld(cells, random.uniform(0.05, 0.2))


def _random_map(random: Random, size: int, holes: float) -> str:
    """Return a square map with a path from the upper left to the lower right corner."""
    while True:
        cells = np.where(random.random((size, size)) < holes, "H", ".")
        cells[0, 0] = "S"
        cells[-1, -1] = "G"
        if _has_path(cells):
            return "\n".join(map("".join, cells))


def _has_path(cells: np.ndarray) -> bool:
    last = len(cells) - 1
    reached = {(0, 0)}
    frontier = [(0, 0)]
    while frontier:
        i, j = frontier.pop()
        for di, dj in MOVES:
            cell = (i + di, j + dj)
            is_inside = min(cell) >= 0 and max(cell) <= last
            if is_inside and cell not in reached and cells[cell] != "H":
                reached.add(cell)
                frontier.append(cell)
    return (last, last) in reached


def cliff(random: Random, slip: float | None = None) -> TabularMDP:
    """Return a walk along a cliff of random height and width, on ice unless `slip` is set."""
    if slip is None:
        slip = ICE
    height = int(random.integers(3, 6))
    width = int(random.integers(6, 13))
    return cliff_walk(height, width, slip)


def cliff_walk(height: int, width: int, slip: float) -> TabularMDP:
    """Return a walk along a cliff. A step costs 1, and a fall costs 100 and leads to the start."""
    shape = (height, width, 4, height, width)
    transition = np.zeros(shape)
    reward = np.zeros(shape)
    turns = ((0, 1 - slip), (-1, slip / 2), (1, slip / 2))
    for i, j, action in np.ndindex(height, width, 4):
        for turn, probability in turns:
            di, dj = MOVES[(action + turn) % 4]
            row = min(max(i + di, 0), height - 1)
            column = min(max(j + dj, 0), width - 1)
            cost = 1.0
            if row == height - 1 and 0 < column < width - 1:
                column = 0
                cost = 100.0
            transition[i, j, action, row, column] += probability
            reward[i, j, action, row, column] -= probability * cost
    np.divide(reward, transition, out=reward, where=transition > 0)
    S = height * width
    states = np.arange(S)
    return TabularMDP(
        transition.reshape(S, 4, S),
        reward.reshape(S, 4, S),
        initial=states == S - width,
        terminal=states == S - 1,
        layout=Layout(cliff_rows(height, width), MOVES),
    )


def taxi(random: Random) -> TabularMDP:
    """Return Gymnasium's taxi with thirty random initial states."""
    env: Any = make("Taxi-v4")
    starts = random.choice(np.flatnonzero(env.initial), TAXI_STARTS, replace=False)
    initial = np.isin(np.arange(env.num_states), starts) / TAXI_STARTS
    return TabularMDP(env.transition, env.reward, initial, env.terminal, env.layout)


def chain(random: Random, length: int) -> TabularMDP:
    """Return a corridor with the reward at its far end and random slipping."""
    corridor = TabularMDP.chain(length)
    slip = random.uniform(0.0, 0.1)
    transition = corridor.transition.toarray().reshape(length, 2, length)
    slipping = (1 - slip) * transition + slip * transition[:, ::-1]
    return TabularMDP(slipping, corridor.reward, corridor.initial)


def deep_sea(random: Random, size: int) -> TabularMDP:
    """Return a deep sea, in which only a dive to the right at every step reaches the treasure.

    A step to the right has a small cost. The action that goes right is random for every cell, as in
    the behaviour suite of Osband et al. (2020).
    """
    end = size * size
    transition = np.zeros((end + 1, 2, end + 1))
    reward = np.zeros((end + 1, 2))
    for i, j in np.ndindex(size, size):
        right = int(random.integers(2))
        cell = i * size + j
        columns = {right: min(j + 1, size - 1), 1 - right: max(j - 1, 0)}
        for action, column in columns.items():
            below = (i + 1) * size + column
            transition[cell, action, min(below, end)] = 1.0
        reward[cell, right] = -0.01 / size
        if cell == end - 1:
            reward[cell, right] += 1.0
    transition[end, :, end] = 1.0
    states = np.arange(end + 1)
    row = "." * size
    rows = ["S" + row[1:], *[row] * (size - 2), row[1:] + "G"]
    return TabularMDP(transition, reward, states == 0, states == end, layout=Layout(rows))


def garnet(random: Random, states: int, actions: int) -> TabularMDP:
    """Return a random process in which every action leads to one of two states."""
    key = jax.random.key(int(random.integers(2**31)))
    return TabularMDP.garnet(states, actions, 2, key)


GENERATORS: dict[str, Callable[..., TabularMDP | LQR]] = {
    "linear": linear,
    "lake": lake,
    "grid": grid,
    "cliff": cliff,
    "taxi": taxi,
    "chain": chain,
    "deep-sea": deep_sea,
    "garnet": garnet,
}
"""Generators by the names of `families.toml`."""

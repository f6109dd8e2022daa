"""Environments that are drawn at random: lakes, cliffs, taxis, grids, chains, deep seas, garnets, linear systems."""

from typing import Any

import jax
import numpy as np

from occupax.envs import LQR, Layout, TabularMDP, make
from occupax.envs.tables import MOVES, cliff_rows

Random = np.random.Generator
ICE = 2 / 3
"""How often a step on ice goes astray."""


def linear(random: Random, states: int, actions: int) -> LQR:
    """A linear system with quadratic costs."""
    return LQR.random(states, actions, int(random.integers(2**31)))


def lake(random: Random, size: int) -> TabularMDP:
    """A frozen lake of size x size, in which a fifth of the cells are holes."""
    return TabularMDP.gridworld(_map(random, size, 0.2), ICE)


def grid(random: Random, size: int) -> TabularMDP:
    """A grid in which a quarter of the cells are holes, and a step goes astray now and then."""
    return TabularMDP.gridworld(_map(random, size, 0.25), random.uniform(0.05, 0.2))


def _map(random: Random, size: int, holes: float) -> str:
    """A square from the upper left to the lower right corner of which a way leads around the holes."""
    while True:
        cells = np.where(random.random((size, size)) < holes, "H", ".")
        cells[0, 0], cells[-1, -1] = "S", "G"
        if _leads(cells):
            return "\n".join(map("".join, cells))


def _leads(cells: np.ndarray) -> bool:
    found, left = {(0, 0)}, [(0, 0)]
    while left:
        i, j = left.pop()
        for place in [(i + di, j + dj) for di, dj in MOVES]:
            if (
                place not in found
                and min(place) >= 0
                and max(place) < len(cells)
                and cells[place] != "H"
            ):
                found.add(place)
                left.append(place)
    return (len(cells) - 1, len(cells) - 1) in found


def cliff(random: Random, slip: float) -> TabularMDP:
    """A walk along a cliff of some height and width."""
    return walk(int(random.integers(3, 6)), int(random.integers(6, 13)), slip)


def walk(height: int, width: int, slip: float) -> TabularMDP:
    """A walk along a cliff: a step costs 1, a fall costs 100 and leads back to the start."""
    transition, reward = np.zeros((2, height, width, 4, height, width))
    for i, j, action in np.ndindex(height, width, 4):
        for turn, probability in ((0, 1 - slip), (-1, slip / 2), (1, slip / 2)):
            di, dj = MOVES[(action + turn) % 4]
            to = min(max(i + di, 0), height - 1), min(max(j + dj, 0), width - 1)
            falls = to[0] == height - 1 and 0 < to[1] < width - 1
            to = (height - 1, 0) if falls else to
            transition[i, j, action][to] += probability
            reward[i, j, action][to] += probability * (-100.0 if falls else -1.0)
    reward = np.divide(reward, transition, out=np.zeros_like(reward), where=transition > 0)
    states, corner = height * width, (height - 1) * width
    shape = (states, 4, states)
    return TabularMDP(
        transition.reshape(shape),
        reward.reshape(shape),
        initial=np.arange(states) == corner,
        terminal=np.arange(states) == states - 1,
        layout=Layout(cliff_rows(height, width), MOVES),
    )


def taxi(random: Random) -> TabularMDP:
    """The taxi of Gymnasium, which starts in one of thirty situations."""
    env: Any = make("Taxi-v4")
    starts = random.choice(np.flatnonzero(env.initial), 30, replace=False)
    initial = np.isin(np.arange(env.num_states), starts) / 30
    return TabularMDP(env.transition, env.reward, initial, env.terminal, env.layout)


def chain(random: Random, n: int) -> TabularMDP:
    """A corridor that pays at its far end, and in which a step goes the other way now and then."""
    corridor, slip = TabularMDP.chain(n), random.uniform(0.0, 0.1)
    there = corridor.transition.toarray().reshape(n, 2, n)
    return TabularMDP((1 - slip) * there + slip * there[:, ::-1], corridor.reward, corridor.initial)


def deep_sea(random: Random, size: int) -> TabularMDP:
    """A diver sinks by a row with every step, and finds the treasure only by going right each time, at a small cost.

    Which of the two actions goes right is drawn for every cell, as in the behaviour suite of Osband
    et al. (2020).
    """
    states = size * size + 1
    transition, reward = np.zeros((states, 2, states)), np.zeros((states, 2))
    for i, j in np.ndindex(size, size):
        right = int(random.integers(2))
        for action, column in ((right, min(j + 1, size - 1)), (1 - right, max(j - 1, 0))):
            transition[
                i * size + j, action, (i + 1) * size + column if i + 1 < size else states - 1
            ] = 1.0
        reward[i * size + j, right] = -0.01 / size
        if (i, j) == (size - 1, size - 1):
            reward[i * size + j, right] += 1.0
    transition[-1, :, -1] = 1.0
    number = np.arange(states)
    rows = ["S" + "." * (size - 1), *["." * size] * (size - 2), "." * (size - 1) + "G"]
    return TabularMDP(transition, reward, number == 0, number == states - 1, layout=Layout(rows))


def garnet(random: Random, num_states: int, num_actions: int) -> TabularMDP:
    """A random process in which every action leads to one of two states."""
    return TabularMDP.garnet(
        num_states, num_actions, 2, jax.random.key(int(random.integers(2**31)))
    )

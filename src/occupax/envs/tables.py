"""Sources of tabular MDPs: Gymnasium's published tables, text maps, chains and random processes."""

from itertools import product
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Key
from scipy import sparse

from occupax.envs.layout import Layout, Move
from occupax.errors import check_integer, check_key

LEFT: Move = (0, -1)
DOWN: Move = (1, 0)
RIGHT: Move = (0, 1)
UP: Move = (-1, 0)
MOVES = (LEFT, DOWN, RIGHT, UP)
CELLS = "SGH#.F"


class Tables(NamedTuple):
    """Arguments of `TabularMDP`."""

    transition: Any
    reward: Any
    initial: Any
    terminal: Any
    layout: Layout | None = None


class NoTableError(ValueError):
    """A Gymnasium environment that is not tabular, or does not publish its table."""


def read_gymnasium(env: Any) -> Tables:
    """Read the table `P[state][action] = [(probability, next state, reward, terminated), ...]`."""
    import gymnasium as gym

    plain = env.unwrapped
    name = env.spec.id if env.spec is not None else type(plain).__name__
    for kind, space in (("action", env.action_space), ("observation", env.observation_space)):
        if not isinstance(space, gym.spaces.Discrete):
            raise NoTableError(
                f"{name} must have a Discrete {kind} space to be a table, got {space}."
            )
    table = getattr(plain, "P", None)
    initial = getattr(plain, "initial_state_distrib", None)
    if table is None or initial is None:
        raise NoTableError(
            f"{name} does not publish its transition table `P` and `initial_state_distrib`."
        )
    if getattr(plain, "fickle_passenger", False):
        raise NoTableError(
            f"{name} with fickle_passenger=True does what its table `P` leaves out; "
            "set it to False."
        )
    tables = _read_outcomes(name, table, np.asarray(initial, float))
    return tables._replace(layout=_gymnasium_layout(plain))


def _gymnasium_layout(env: Any) -> Layout | None:
    """Return the layout of FrozenLake, CliffWalking and Taxi. None for other environments."""
    from gymnasium.envs.toy_text import CliffWalkingEnv, FrozenLakeEnv, TaxiEnv

    if isinstance(env, FrozenLakeEnv):
        rows = ["".join(row) for row in env.desc.astype(str)]
        return Layout(rows, MOVES)
    if isinstance(env, CliffWalkingEnv):
        return Layout(cliff_rows(*env.shape), (UP, RIGHT, DOWN, LEFT))
    if isinstance(env, TaxiEnv):
        height = env.max_row + 1
        width = env.max_col + 1
        return Layout(["." * width] * height, states_per_cell=len(env.P) // (height * width))
    return None


def cliff_rows(height: int, width: int) -> list[str]:
    """Return the map of a cliff along the bottom row, from the start to the goal."""
    cliff = "S" + "C" * (width - 2) + "G"
    return ["." * width] * (height - 1) + [cliff]


def _read_outcomes(name: str, table: Any, initial: np.ndarray) -> Tables:
    S = len(table)
    A = len(table[0])
    transition = np.zeros((S, A, S))
    expected = np.zeros((S, A, S))
    ends = np.zeros((S, A, S), bool)
    continues = np.zeros((S, A, S), bool)
    for state, action in np.ndindex(S, A):
        for probability, next_state, reward, terminated in table[state][action]:
            index = state, action, next_state
            transition[index] += probability
            expected[index] += probability * reward
            flags = ends if terminated else continues
            flags[index] |= probability > 0
    reachable = _reachable_states(initial > 0, continues)
    terminal = np.any(ends[reachable], axis=(0, 1))
    ambiguous = np.flatnonzero(np.any(continues[reachable], axis=(0, 1)) & terminal)
    if ambiguous.size:
        raise NoTableError(
            f"{name} ends some episodes but not others on entering state {ambiguous[0]}: "
            "it is not a table."
        )
    reward = np.divide(expected, transition, out=np.zeros_like(expected), where=transition > 0)
    reward[terminal] = 0.0
    return Tables(transition, reward, initial, terminal)


def _reachable_states(
    initial: Bool[np.ndarray, " S"], continues: Bool[np.ndarray, "S A S"]
) -> Bool[np.ndarray, " S"]:
    """Return the states in which an episode can still be running."""
    reachable = initial
    while True:
        extended = reachable | continues[reachable].any(axis=(0, 1))
        if (extended == reachable).all():
            return reachable
        reachable = extended


def read_gridworld(text: str, slip: float) -> Tables:
    """Read a map. See `TabularMDP.gridworld`."""
    if not isinstance(slip, Real) or not 0 <= slip <= 1:
        raise ValueError(f"slip must be a probability in [0, 1], got {slip!r}.")
    rows = _read_map(text)
    states: dict[Move, int] = {}
    letters: list[str] = []
    for i, row in enumerate(rows):
        for j, letter in enumerate(row):
            if letter != "#":
                states[i, j] = len(states)
                letters.append(letter)
    kinds = np.array(letters)
    if not (kinds == "S").any():
        raise ValueError("text must hold at least one start cell S, got none.")

    A = len(MOVES)
    shape = (len(states) * A, len(states))
    pairs: list[int] = []
    next_states: list[int] = []
    probabilities: list[float] = []
    for ((i, j), state), action in product(states.items(), range(A)):
        for turn, probability in ((0, 1 - slip), (-1, slip / 2), (1, slip / 2)):
            down, right = MOVES[(action + turn) % A]
            pairs.append(state * A + action)
            next_states.append(states.get((i + down, j + right), state))
            probabilities.append(probability)
    transition = sparse.csr_array((probabilities, (pairs, next_states)), shape=shape)
    terminal = (kinds == "G") | (kinds == "H")
    is_rewarded = (kinds[next_states] == "G") & ~terminal[np.array(pairs) // A]
    reward = sparse.csr_array((is_rewarded.astype(float), (pairs, next_states)), shape=shape).sign()
    initial = (kinds == "S") / (kinds == "S").sum()
    return Tables(transition, reward, initial, terminal, Layout(rows, MOVES))


def _read_map(text: str) -> list[str]:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"text must be a map, one row a line, got {text!r:.60}.")
    rows = [line.strip() for line in text.strip().splitlines()]
    lengths = [len(row) for row in rows]
    if len(set(lengths)) != 1:
        raise ValueError(f"text must be a map with rows of one length, got lengths {lengths}.")
    invalid = sorted(set("".join(rows)) - set(CELLS))
    if invalid:
        names = ", ".join(map(repr, invalid))
        raise ValueError(f"text may hold the cells {', '.join(CELLS)} only, got {names}.")
    return rows


def make_chain(n: int) -> Tables:
    """Return the chain of `TabularMDP.chain`."""
    n = check_integer("n", n)
    states = np.arange(n)
    pairs = np.concatenate([2 * states, 2 * states + 1])
    next_states = np.concatenate([np.maximum(states - 1, 0), np.minimum(states + 1, n - 1)])
    transition = sparse.csr_array((np.ones(2 * n), (pairs, next_states)), shape=(2 * n, n))
    reward = np.zeros((n, 2))
    reward[-1, 1] = 1.0
    return Tables(transition, reward, (states == 0).astype(float), None)


def make_garnet(num_states: int, num_actions: int, branching: int, key: Key[Array, ""]) -> Tables:
    """Return the random process of `TabularMDP.garnet`."""
    S = check_integer("num_states", num_states)
    A = check_integer("num_actions", num_actions)
    if check_integer("branching", branching) > S:
        raise ValueError(f"branching must be at most num_states = {S}, got {branching!r}.")
    check_key(key)
    random = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), "uint32")))
    next_states = [random.choice(S, branching, replace=False, shuffle=False) for _ in range(S * A)]
    probabilities = random.dirichlet(np.ones(branching), S * A)
    pairs = np.repeat(np.arange(S * A), branching)
    entries = (probabilities.ravel(), (pairs, np.concatenate(next_states)))
    transition = sparse.csr_array(entries, shape=(S * A, S))
    return Tables(transition, random.random((S, A)), np.full(S, 1 / S), None)

"""Sources of tabular MDPs: Gymnasium's published tables, text maps, chains and random processes."""

from itertools import product
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key
from scipy import sparse

from occupax.envs.layout import Layout, Move
from occupax.errors import check_integer, check_key, read_array

LEFT: Move = (0, -1)
DOWN: Move = (1, 0)
RIGHT: Move = (0, 1)
UP: Move = (-1, 0)
MOVES = (LEFT, DOWN, RIGHT, UP)
TURNS = (0, -1, 1)
"""Turns of a move: straight on, and to each side when it slips."""
CELLS = "SGH#.F"
MAX_ROWS_DRAWN_SINGLY = 20_000
"""Largest number of rows of a random process whose next states are drawn row by row."""
MAX_SIZE = 2**31


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
    letters = np.array([list(row) for row in rows])
    is_free = letters != "#"
    kinds = letters[is_free]
    if not (kinds == "S").any():
        raise ValueError("text must hold at least one start cell S, got none.")

    A = len(MOVES)
    S = kinds.size
    numbers = np.full((letters.shape[0] + 2, letters.shape[1] + 2), -1)
    numbers[1:-1, 1:-1][is_free] = np.arange(S)
    row, column = np.nonzero(is_free)
    states = np.arange(S)
    targets = np.empty((S, A, len(TURNS)), np.int64)
    for action, (k, turn) in product(range(A), enumerate(TURNS)):
        down, right = MOVES[(action + turn) % A]
        target = numbers[row + 1 + down, column + 1 + right]
        targets[:, action, k] = np.where(target < 0, states, target)
    shape = (S * A, S)
    next_states = targets.ravel()
    pairs = np.repeat(np.arange(S * A), len(TURNS))
    probabilities = np.tile([1 - slip, slip / 2, slip / 2], S * A)
    transition = sparse.csr_array((probabilities, (pairs, next_states)), shape=shape)
    terminal = (kinds == "G") | (kinds == "H")
    is_rewarded = (kinds[next_states] == "G") & ~terminal[pairs // A]
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
    next_states = _draw_successors(random, S, S * A, branching)
    probabilities = random.dirichlet(np.ones(branching), S * A)
    row_starts = np.arange(0, S * A * branching + 1, branching)
    entries = (probabilities.ravel(), next_states.ravel(), row_starts)
    transition = sparse.csr_array(entries, shape=(S * A, S))
    return Tables(transition, random.random((S, A)), np.full(S, 1 / S), None)


def _draw_successors(
    random: np.random.Generator, num_states: int, rows: int, branching: int
) -> Int[np.ndarray, "rows branching"]:
    """Draw distinct next states for each row.

    Large tables draw all rows together and repeat the rows with duplicates. Small ones draw row by
    row, so that a key means the same table as in earlier versions.
    """
    is_sparse = branching**2 < num_states
    if rows <= MAX_ROWS_DRAWN_SINGLY or not is_sparse:
        draws = [random.choice(num_states, branching, False, shuffle=False) for _ in range(rows)]
        return np.array(draws)
    next_states = random.integers(0, num_states, (rows, branching), np.int32)
    repeated = np.arange(rows)
    while repeated.size:
        ordered = np.sort(next_states[repeated], 1)
        has_duplicates = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        repeated = repeated[has_duplicates]
        shape = (repeated.size, branching)
        next_states[repeated] = random.integers(0, num_states, shape, np.int32)
    return next_states


def read_arrays(
    state: Any,
    action: Any,
    next_state: Any,
    probability: Any,
    reward: Any,
    initial: Any,
    terminal: Any,
) -> Tables:
    """Read one row per outcome. See `TabularMDP.from_arrays`."""
    first = read_array("initial", initial)
    S = first.size
    states = _read_numbers("state", state, S)
    actions = _read_numbers("action", action, MAX_SIZE)
    next_states = _read_numbers("next_state", next_state, S)
    probabilities = read_array("probability", probability)
    lengths = [states.size, actions.size, next_states.size, probabilities.size]
    if len(set(lengths)) != 1 or probabilities.ndim != 1 or not states.size:
        raise ValueError(
            "state, action, next_state and probability must be vectors of one length, "
            f"got lengths {lengths}."
        )
    if (probabilities < 0).any():
        row = int(probabilities.argmin())
        raise ValueError(
            f"probability must not be negative, got {probabilities[row]:g} in row {row}."
        )
    A = int(actions.max()) + 1
    rewards = read_array("reward", reward)
    if rewards.shape != (S, A) and rewards.shape != states.shape:
        raise ValueError(
            f"reward must have one entry per row, [{states.size}], or shape [S, A] = {(S, A)}, "
            f"got {rewards.shape}."
        )
    rows = states * A + actions
    shape = (S * A, S)
    transition = sparse.coo_array((probabilities, (rows, next_states)), shape=shape).tocsr()
    if rewards.shape == states.shape:
        expected = np.bincount(rows, probabilities * rewards, S * A)
        total = np.bincount(rows, probabilities, S * A)
        rewards = np.divide(expected, total, out=np.zeros(S * A), where=total > 0).reshape(S, A)
    return Tables(transition, rewards, first, terminal)


def _read_numbers(name: str, value: Any, limit: int) -> Int[np.ndarray, " n"]:
    """Return a vector of integers in 0..limit - 1."""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be a vector of integers, got shape {array.shape} of dtype {array.dtype}."
        )
    outside = np.flatnonzero((array < 0) | (array >= limit))
    if outside.size:
        row = int(outside[0])
        raise ValueError(
            f"{name} must be in 0..{limit - 1}, got {array[row]} in row {row} of the arrays."
        )
    return array.astype(np.int64)

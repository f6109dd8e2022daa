"""Where tabular processes come from: Gymnasium's published tables, maps drawn as text, chains and random ones.

Each function returns (transition, reward, initial, terminal) as `TabularMDP` takes them.
"""

from itertools import product
from numbers import Real
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key
from scipy import sparse

from occupax.errors import check_integer, check_key

Tables = tuple[Any, Any, Any, Any]

LEFT, DOWN, RIGHT, UP = (0, -1), (1, 0), (0, 1), (-1, 0)
MOVES = (LEFT, DOWN, RIGHT, UP)
CELLS = "SGH#.F"


class NoTableError(ValueError):
    """An environment of Gymnasium that is not a table, or does not publish it."""


def gymnasium(made: Any) -> Tables:
    """Read the table `P[state][action] = [(probability, next state, reward, terminated), ...]`."""
    import gymnasium as gym

    name = made.spec.id if made.spec is not None else type(made.unwrapped).__name__
    for kind, space in (("action", made.action_space), ("observation", made.observation_space)):
        if not isinstance(space, gym.spaces.Discrete):
            raise NoTableError(
                f"{name} must have a Discrete {kind} space to be a table, got {space}."
            )
    table = getattr(made.unwrapped, "P", None)
    initial = getattr(made.unwrapped, "initial_state_distrib", None)
    if table is None or initial is None:
        raise NoTableError(
            f"{name} does not publish its transition table `P` and `initial_state_distrib`."
        )
    if getattr(made.unwrapped, "fickle_passenger", False):
        raise NoTableError(
            f"{name} with fickle_passenger=True does what its table `P` leaves out; set it to False."
        )
    return _from_outcomes(name, table, np.asarray(initial, float))


def _from_outcomes(name: str, table: Any, initial: np.ndarray) -> Tables:
    S, A = len(table), len(table[0])
    transition, total = np.zeros((2, S, A, S))
    ends, goes_on = np.zeros((2, S, A, S), bool)
    for state, action in np.ndindex(S, A):
        for probability, following, reward, terminated in table[state][action]:
            at = state, action, following
            transition[at] += probability
            total[at] += probability * reward
            (ends if terminated else goes_on)[at] |= probability > 0
    reachable, before = initial > 0, None  # the states in which an episode can still be running
    while before is None or (reachable != before).any():
        reachable, before = reachable | goes_on[reachable].any(axis=(0, 1)), reachable
    terminal = np.any(ends[reachable], axis=(0, 1))
    ambiguous = np.flatnonzero(np.any(goes_on[reachable], axis=(0, 1)) & terminal)
    if ambiguous.size:
        state = int(ambiguous[0])
        raise NoTableError(
            f"{name} ends some episodes but not others on entering state {state}: it is not a table."
        )
    reward = np.divide(total, transition, out=np.zeros_like(total), where=transition > 0)
    reward[terminal] = 0.0
    return transition, reward, initial, terminal


def gridworld(text: str, slip: float) -> Tables:
    """Read a map; see `TabularMDP.gridworld`."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"text must be a map, one row a line, got {text!r:.60}.")
    if not isinstance(slip, Real) or not 0 <= slip <= 1:
        raise ValueError(f"slip must be a probability in [0, 1], got {slip!r}.")
    rows = [line.strip() for line in text.strip().splitlines()]
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError(
            f"text must be a map with rows of one length, got lengths {[len(row) for row in rows]}."
        )
    if strange := sorted(set("".join(rows)) - set(CELLS)):
        raise ValueError(
            f"text may hold the cells {', '.join(CELLS)} only, got {', '.join(map(repr, strange))}."
        )
    cells = {
        (i, j): cell for i, row in enumerate(rows) for j, cell in enumerate(row) if cell != "#"
    }
    number = {position: state for state, position in enumerate(cells)}
    kinds = np.array(list(cells.values()))
    if not (kinds == "S").any():
        raise ValueError("text must hold at least one start cell S, got none.")
    S, A = len(cells), len(MOVES)
    moves: list[tuple[int, int, float]] = []
    for ((i, j), state), action in product(number.items(), range(A)):
        for turn, probability in ((0, 1 - slip), (-1, slip / 2), (1, slip / 2)):
            di, dj = MOVES[(action + turn) % A]
            moves.append((state * A + action, number.get((i + di, j + dj), state), probability))
    rows, following, probabilities = map(np.array, zip(*moves, strict=True))
    transition = sparse.csr_array((probabilities, (rows, following)), shape=(S * A, S))
    terminal = (kinds == "G") | (kinds == "H")
    pays = (kinds[following] == "G") & ~terminal[rows // A]
    entered = sparse.csr_array((pays.astype(float), (rows, following)), shape=(S * A, S))
    return transition, entered.sign(), (kinds == "S") / (kinds == "S").sum(), terminal


def chain(n: int) -> Tables:
    """Make the chain that `TabularMDP.chain` describes."""
    n = check_integer("n", n)
    states = np.arange(n)
    rows = np.concatenate([2 * states, 2 * states + 1])
    following = np.concatenate([np.maximum(states - 1, 0), np.minimum(states + 1, n - 1)])
    transition = sparse.csr_array((np.ones(2 * n), (rows, following)), shape=(2 * n, n))
    reward = np.zeros((n, 2))
    reward[-1, 1] = 1.0
    return transition, reward, (states == 0).astype(float), None


def garnet(num_states: int, num_actions: int, branching: int, key: Key[Array, ""]) -> Tables:
    """Make the random process that `TabularMDP.garnet` describes."""
    S, A = check_integer("num_states", num_states), check_integer("num_actions", num_actions)
    if check_integer("branching", branching) > S:
        raise ValueError(f"branching must be at most num_states = {S}, got {branching!r}.")
    check_key(key)
    random = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), "uint32")))
    following = np.stack(
        [random.choice(S, branching, replace=False, shuffle=False) for _ in range(S * A)]
    )
    probabilities = random.dirichlet(np.ones(branching), S * A)
    rows = np.repeat(np.arange(S * A), branching)
    transition = sparse.csr_array(
        (probabilities.ravel(), (rows, following.ravel())), shape=(S * A, S)
    )
    return transition, random.random((S, A)), np.full(S, 1 / S), None

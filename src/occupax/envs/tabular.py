"""Finite Markov decision processes, stored as padded lists of successors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key
from scipy import sparse

from occupax.envs import tables
from occupax.envs.actions import DiscreteActions
from occupax.envs.base import Environment
from occupax.envs.lookup import make_gymnasium
from occupax.errors import read_array, refuse_infinite

SUM_TOLERANCE = 1e-6

Outcomes = tuple[Int[np.ndarray, "S A K"], Float[np.ndarray, "S A K"], Float[np.ndarray, "S A K"]]


class TabularMDP(Environment):
    """A Markov decision process with finitely many states and actions.

    Only outcomes of positive probability are kept, in lists padded to the longest one (K), so that
    a sparse problem stays small and drawing a next state costs K, not S. Arrays are float64, for
    the exact methods; sampling converts them to JAX's default precision.

    A terminal state ends its episode: what `transition` says about it is ignored, it repeats for
    ever. Its reward is collected under the "absorbing" convention only.
    """

    successors: Int[np.ndarray, "S A K"]
    probabilities: Float[np.ndarray, "S A K"]
    outcome_rewards: Float[np.ndarray, "S A K"]
    thresholds: Float[np.ndarray, "S A K"]
    initial: Float[np.ndarray, " S"]
    initial_thresholds: Float[np.ndarray, " S"]
    terminal: Bool[np.ndarray, " S"]
    time_limit: int | None = eqx.field(static=True, default=None)

    def __init__(self, transition: Any, reward: Any, initial: Any, terminal: Any = None):
        """Check and store a process.

        Args:
            transition: probabilities, dense [S, A, S], or SciPy sparse [S * A, S] (row s * A + a)
                or [S, A, S].
            reward: [S, A], or, when it depends on the next state, [S, A, S], dense or sparse like
                the transitions.
            initial: distribution of the first state, [S].
            terminal: which states end an episode, [S] booleans; none by default.
        """
        self.initial = _read_distribution("initial", initial)
        self.terminal = _read_terminal(terminal, self.initial.size)
        self.successors, self.probabilities, self.outcome_rewards = _read_outcomes(
            transition, reward, self.terminal
        )
        self.thresholds = _thresholds(self.probabilities)
        self.initial_thresholds = _thresholds(self.initial)
        self.time_limit = None
        for array in jax.tree.leaves(self):
            array.setflags(write=False)

    def __repr__(self) -> str:
        states, actions = self.successors.shape[:2]
        return f"TabularMDP({states:,} states, {actions:,} actions)"

    def __check_init__(self) -> None:
        S = len(self.successors)
        low, high = self.successors.min(), self.successors.max()
        if low < 0 or high >= S:
            raise ValueError(
                f"successors must lie in 0..{S - 1}, the states, got {low if low < 0 else high}."
            )
        refuse_infinite("outcome_rewards", self.outcome_rewards)
        for name, given, thresholds in (
            ("probabilities", self.probabilities, self.thresholds),
            ("initial", self.initial, self.initial_thresholds),
        ):
            refuse_infinite(name, given)
            if (given < 0).any() or (abs(given.sum(-1) - 1) > SUM_TOLERANCE).any():
                raise ValueError(f"{name} must not be negative, and sum to 1.")
            if not np.array_equal(thresholds, _thresholds(given)):
                raise ValueError(f"the thresholds of {name} must be those of its sums.")
        ended = np.flatnonzero(self.terminal)
        if (
            (self.successors[ended] != ended[:, None, None]) & (self.probabilities[ended] > 0)
        ).any():
            raise ValueError("successors of a terminal state must be the state itself.")
        if self.time_limit is not None:
            raise ValueError(f"a table has no time limit, got {self.time_limit!r}.")

    @classmethod
    def from_gymnasium(cls, env: Any, **options: Any) -> "TabularMDP":
        """The table that a Gymnasium environment publishes as `P`: FrozenLake, CliffWalking, Taxi and their like.

        It is given by its id, with options for `gymnasium.make` such as `is_slippery=False`, or
        made already.
        """
        return cls(*tables.gymnasium(make_gymnasium(env, options)))

    @classmethod
    def gridworld(cls, text: str, slip: float = 0.0) -> "TabularMDP":
        """A grid drawn as text: S start, G goal, H hole, # wall, and . or F for free cells.

        States are the cells that are not walls, row by row. Actions are left, down, right, up; a
        move into a wall or over the edge stays. Entering a goal pays 1; goals and holes are
        terminal. Several S share the start evenly.

        Args:
            text: the map, one row a line.
            slip: probability of moving at a right angle instead, half of it to each side; 2/3 is
                FrozenLake's ice.
        """
        return cls(*tables.gridworld(text, slip))

    @classmethod
    def chain(cls, n: int) -> "TabularMDP":
        """A corridor of n states: action 0 goes back, action 1 forward, from state 0.

        Going forward in the last state stays there and pays 1, so the best return is discount^(n-1)
        / (1 - discount).
        """
        return cls(*tables.chain(n))

    @classmethod
    def garnet(
        cls, num_states: int, num_actions: int, branching: int, key: Key[Array, ""]
    ) -> "TabularMDP":
        """A random process: each action leads to `branching` random states; rewards are uniform on [0, 1]."""
        return cls(*tables.garnet(num_states, num_actions, branching, key))

    @property
    def num_states(self) -> int:
        """How many states there are, S."""
        return self.successors.shape[0]

    @property
    def action_space(self) -> DiscreteActions:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The numbers of the actions, of which there are A."""
        return DiscreteActions(self.successors.shape[1])

    @property
    def reward(self) -> Float[np.ndarray | Array, "S A"]:
        """The expected reward of each state and action."""
        return (self.probabilities * self.outcome_rewards).sum(-1)

    @property
    def transition(self) -> sparse.csr_array:
        """The transition probabilities as a sparse matrix [S * A, S]; row s * A + a."""
        S, A, K = self.successors.shape
        entries = (
            self.probabilities.flatten(),
            self.successors.flatten(),
            np.arange(0, S * A * K + 1, K),
        )
        matrix = sparse.csr_array(entries, shape=(S * A, S))
        matrix.eliminate_zeros()
        return matrix

    def reset(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Draw the first state."""
        return _draw(key, jnp.asarray(self.initial_thresholds))

    def step(
        self, state: Int[ArrayLike, ""], action: Int[ArrayLike, ""], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Draw the next state."""
        outcome = _draw(key, jnp.asarray(self.thresholds)[state, action])
        next_state = jnp.asarray(self.successors, jnp.int32)[state, action, outcome]
        return next_state, jnp.asarray(self.outcome_rewards)[state, action, outcome]

    def observe(self, state: Int[ArrayLike, ""]) -> Int[Array, ""]:
        """The number of the state."""
        return jnp.asarray(state)

    def terminated(self, state: Int[ArrayLike, ""]) -> Bool[Array, ""]:
        """Whether the state is terminal."""
        return jnp.asarray(self.terminal)[state]

    def truncated(self, state: Int[ArrayLike, ""]) -> Bool[Array, ""]:
        """Never: a table has no clock; the horizon of the problem cuts its trajectories."""
        return jnp.zeros_like(jnp.asarray(state), bool)


def _thresholds(probabilities: Float[np.ndarray, "*rows K"]) -> Float[np.ndarray, "*rows K"]:
    """Cumulative probabilities with the last possible outcome raised above 1, so that rounding cannot pass it."""
    still_possible = np.cumsum(probabilities[..., ::-1], -1)[..., ::-1] > 0
    more_to_come = np.concatenate(
        [still_possible[..., 1:], np.zeros_like(still_possible[..., :1])], -1
    )
    return np.where(more_to_come, np.cumsum(probabilities, -1), 2.0)


def _draw(key: Key[Array, ""], thresholds: Float[Array, " K"]) -> Int[Array, ""]:
    return jnp.sum(jax.random.uniform(key, (), thresholds.dtype) >= thresholds, dtype=jnp.int32)


def _read_distribution(name: str, value: Any) -> Float[np.ndarray, " S"]:
    array = read_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a vector with one probability a state, got shape {array.shape}."
        )
    if (array < 0).any():
        raise ValueError(
            f"{name} must not be negative, got {array.min():g} for state {int(array.argmin())}."
        )
    if abs(array.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"{name} must sum to 1, got {array.sum():.9g}.")
    return array / array.sum()


def _read_terminal(value: Any, num_states: int) -> Bool[np.ndarray, " S"]:
    if value is None:
        return np.zeros(num_states, bool)
    expected = f"terminal must be {num_states} booleans, one a state"
    try:
        mask = np.array(value)
    except ValueError:
        raise ValueError(f"{expected}, got {value!r:.60}.") from None
    if mask.dtype != bool or mask.shape != (num_states,):
        raise ValueError(f"{expected}, got shape {mask.shape} of dtype {mask.dtype}.")
    return mask


def _read_outcomes(transition: Any, reward: Any, terminal: Bool[np.ndarray, " S"]) -> Outcomes:
    """Return successors, probabilities and rewards [S, A, K] of the outcomes that are possible."""
    S = terminal.size
    A, rewards = _read_rewards(reward, S)
    matrix = _with_self_loops(_read_matrix(transition, S, A), terminal, A)
    _check_rows(matrix, A)

    outcomes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(S * A), outcomes)
    slots = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], outcomes)

    def padded(values: Any, dtype: Any = float) -> Any:
        array = np.zeros((S * A, int(outcomes.max())), dtype)
        array[rows, slots] = values
        return array.reshape(S, A, -1)

    outcome_rewards = rewards[
        rows, matrix.indices % rewards.shape[1]
    ]  # a single column serves them all
    probabilities = matrix.data / matrix.sum(axis=1)[rows]
    return padded(matrix.indices, np.int32), padded(probabilities), padded(outcome_rewards)


def _read(name: str, value: Any) -> Any:
    """Return a dense array, or a sparse one of any format, as float64 without NaN or infinities."""
    if not hasattr(value, "tocoo"):
        return read_array(name, value)
    if value.dtype.kind == "c":
        raise ValueError(f"{name} must be an array of real numbers, got {value.dtype}.")
    array = sparse.coo_array(value).astype(np.float64)
    refuse_infinite(name, array.data, array.coords)
    return array


def _read_rewards(reward: Any, S: int) -> tuple[int, Any]:
    """Return the number of actions, and the rewards [S * A, S] or, if the next state does not matter, [S * A, 1]."""
    is_sparse, rewards = hasattr(reward, "tocoo"), _read("reward", reward)
    shape = rewards.shape
    if is_sparse and len(shape) == 2:
        shape = (S if shape[0] % S == 0 else shape[0], shape[0] // S, shape[1])
    if len(shape) not in (2, 3) or 0 in shape or shape[0] != S or shape[2:] not in ((), (S,)):
        allowed = "[S, A] or [S, A, S], or when sparse [S * A, S] or [S, A, S]"
        sizes = f"S = {S} states (the length of initial) and at least one action"
        raise ValueError(f"reward must have shape {allowed}, with {sizes}, got {rewards.shape}.")
    flat = rewards.reshape((S * shape[1], -1))
    return shape[1], sparse.csr_array(flat) if is_sparse else flat


def _read_matrix(transition: Any, S: int, A: int) -> sparse.csr_array:
    is_sparse, read = hasattr(transition, "tocoo"), _read("transition", transition)
    if read.shape != (S, A, S) and not (is_sparse and read.shape == (S * A, S)):
        either, when = (f"[S * A, S] = {(S * A, S)} or ", " when sparse") if is_sparse else ("", "")
        raise ValueError(
            f"transition must have shape {either}[S, A, S] = {(S, A, S)}{when}, got {read.shape}."
        )
    matrix = sparse.csr_array(read.reshape((S * A, S)))
    matrix.sum_duplicates()
    return matrix


def _with_self_loops(
    matrix: sparse.csr_array, terminal: Bool[np.ndarray, " S"], A: int
) -> sparse.csr_array:
    """Make every terminal state repeat for ever, whatever was said about it, and drop impossible outcomes."""
    keep = sparse.diags_array(np.repeat(~terminal, A).astype(float))
    ended = np.flatnonzero(terminal)
    rows = (ended[:, None] * A + np.arange(A)).ravel()
    loops = sparse.csr_array((np.ones(rows.size), (rows, np.repeat(ended, A))), shape=matrix.shape)
    looped = sparse.csr_array(keep @ matrix + loops)
    looped.eliminate_zeros()
    return looped


def _check_rows(matrix: sparse.csr_array, A: int) -> None:
    if (matrix.data < 0).any():
        entry = int(matrix.data.argmin())
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        where = f"from state {row // A} with action {row % A} to state {matrix.indices[entry]}"
        raise ValueError(f"transition must not be negative, got {matrix.data[entry]:g} {where}.")
    sums = matrix.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        where = f"for state {worst // A} with action {worst % A}"
        raise ValueError(
            f"transition must sum to 1 over next states, got {sums[worst]:.9g} {where}."
        )

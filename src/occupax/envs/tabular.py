"""Tabular MDPs, stored as padded lists of successors."""

import os
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
from occupax.envs.layout import Layout, check_layout
from occupax.envs.lookup import make_gymnasium
from occupax.errors import check_finite, read_array

SUM_TOLERANCE = 1e-6
OUTCOME_BYTES = 28
"""Memory of an outcome: next state, probability, reward and threshold."""

Outcomes = tuple[Int[np.ndarray, "S A K"], Float[np.ndarray, "S A K"], Float[np.ndarray, "S A K"]]


class TabularMDP(Environment):
    """Markov decision process with finitely many states and actions.

    Only outcomes of positive probability are stored, in lists padded to the longest one (K), so
    that a sparse problem stays small and drawing a next state costs K, not S. Arrays are float64,
    for the exact methods; sampling converts them to JAX's default precision.

    A terminal state ends its episode: its row of `transition` is ignored, and the state repeats
    permanently. Its reward is collected under the "absorbing" convention only.
    """

    successors: Int[np.ndarray, "S A K"]
    probabilities: Float[np.ndarray, "S A K"]
    outcome_rewards: Float[np.ndarray, "S A K"]
    thresholds: Float[np.ndarray, "S A K"]
    initial: Float[np.ndarray, " S"]
    initial_thresholds: Float[np.ndarray, " S"]
    terminal: Bool[np.ndarray, " S"]
    layout: Layout | None = eqx.field(static=True, default=None)
    """Map of the states; None if the states are no cells of a map."""
    time_limit: int | None = eqx.field(static=True, default=None)

    def __init__(
        self,
        transition: Any,
        reward: Any,
        initial: Any,
        terminal: Any = None,
        layout: Layout | None = None,
    ):
        """Check and store a process.

        Args:
            transition: probabilities, dense [S, A, S], or SciPy sparse [S * A, S] (row s * A + a)
                or [S, A, S].
            reward: [S, A], or, when it depends on the next state, [S, A, S], dense or sparse like
                the transitions.
            initial: distribution of the first state, [S].
            terminal: whether each state ends an episode, [S] booleans; none by default.
            layout: map of the states, for pictures; none by default.

        Raises:
            ValueError: if an array has a wrong shape or is no distribution, or if the layout does
                not fit.
        """
        self.initial = _read_distribution("initial", initial)
        self.terminal = _read_terminal(terminal, self.initial.size)
        self.successors, self.probabilities, self.outcome_rewards = _read_outcomes(
            transition, reward, self.terminal
        )
        self.thresholds = _thresholds(self.probabilities)
        self.initial_thresholds = _thresholds(self.initial)
        self.layout = layout
        self.time_limit = None
        for array in jax.tree.leaves(self):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return f"TabularMDP({self.num_states:,} states, {self.num_actions:,} actions)"

    def __check_init__(self) -> None:
        S = self.num_states
        low = self.successors.min()
        high = self.successors.max()
        if low < 0 or high >= S:
            raise ValueError(f"successors must be states 0..{S - 1}, got {low} to {high}.")
        check_finite("outcome_rewards", self.outcome_rewards)
        _check_distributions("probabilities", self.probabilities, self.thresholds)
        _check_distributions("initial", self.initial, self.initial_thresholds)
        ended = np.flatnonzero(self.terminal)
        leaves = self.successors[ended] != ended[:, None, None]
        if (leaves & (self.probabilities[ended] > 0)).any():
            raise ValueError("successors of a terminal state must be the state itself.")
        check_layout(self.layout, S, self.num_actions)
        if self.time_limit is not None:
            raise ValueError(f"time_limit must be None for a table, got {self.time_limit!r}.")

    @classmethod
    def from_gymnasium(cls, env: Any, **options: Any) -> "TabularMDP":
        """Return the table that a Gymnasium environment publishes as `P`.

        FrozenLake, CliffWalking and Taxi publish one.

        Args:
            env: Gymnasium id, or an environment.
            **options: options of `gymnasium.make` for an id, such as `is_slippery=False`.

        Returns:
            The tabular MDP, with a layout for the three environments above.

        Raises:
            ValueError: if the environment publishes no table.
        """
        return cls(*tables.read_gymnasium(make_gymnasium(env, options)))

    @classmethod
    def from_arrays(
        cls,
        state: Any,
        action: Any,
        next_state: Any,
        probability: Any,
        reward: Any,
        initial: Any,
        terminal: Any = None,
    ) -> "TabularMDP":
        """Return the table of a list of outcomes. No dense array of states by states is built.

        Args:
            state: state s of each outcome, integers [n].
            action: action a of each outcome, integers [n]. The number of actions is the largest one
                plus 1.
            next_state: next state of each outcome, integers [n].
            probability: probability of each outcome, [n]. Outcomes with the same state, action and
                next state are added up.
            reward: reward of each outcome, [n], which is averaged over the outcomes of a state and
                action, or reward of each state and action, [S, A].
            initial: distribution of the first state, [S].
            terminal: whether each state ends an episode, [S] booleans; none by default.

        Returns:
            The tabular MDP.

        Raises:
            ValueError: if an array has a wrong length, a number is out of range, or the
                probabilities of a state and action do not sum to 1.
        """
        return cls(
            *tables.read_arrays(state, action, next_state, probability, reward, initial, terminal)
        )

    @classmethod
    def gridworld(cls, text: str, slip: float = 0.0) -> "TabularMDP":
        """Return the environment of a grid: S start, G goal, H hole, # wall, . or F free cell.

        States are the cells that are not walls, row by row. Actions are left, down, right, up; a
        move into a wall or over the edge stays. Entering a goal has reward 1; goals and holes are
        terminal. Several S share the start evenly.

        Args:
            text: the map, one row a line.
            slip: probability of moving at a right angle instead, half of it to each side; 2/3 is
                FrozenLake's ice.

        Returns:
            The tabular MDP, with the map as its layout.

        Raises:
            ValueError: if the map has other letters, rows of different lengths or no start.
        """
        return cls(*tables.read_gridworld(text, slip))

    @classmethod
    def chain(cls, n: int) -> "TabularMDP":
        """Return a corridor of n states: action 0 moves back, action 1 forward, from state 0.

        Action 1 in the last state stays there with reward 1, so the best return is
        discount^(n-1) / (1 - discount).

        Args:
            n: number of states.

        Returns:
            The tabular MDP.
        """
        return cls(*tables.make_chain(n))

    @classmethod
    def garnet(
        cls, num_states: int, num_actions: int, branching: int, key: Key[Array, ""]
    ) -> "TabularMDP":
        """Return a random process whose actions lead to `branching` random states each.

        Args:
            num_states: number of states, S.
            num_actions: number of actions, A.
            branching: number of possible next states of each action.
            key: random key.

        Returns:
            The tabular MDP. Rewards are uniform on [0, 1].
        """
        return cls(*tables.make_garnet(num_states, num_actions, branching, key))

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return self.successors.shape[0]

    @property
    def action_space(self) -> DiscreteActions:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Space of the A actions."""
        return DiscreteActions(self.successors.shape[1])

    @property
    def reward(self) -> Float[np.ndarray | Array, "S A"]:
        """Expected reward of each state and action."""
        return (self.probabilities * self.outcome_rewards).sum(-1)

    @property
    def transition(self) -> sparse.csr_array:
        """Transition probabilities as a sparse matrix [S * A, S]. Row s * A + a."""
        S, A, K = self.successors.shape
        row_starts = np.arange(0, S * A * K + 1, K)
        entries = (self.probabilities.flatten(), self.successors.flatten(), row_starts)
        matrix = sparse.csr_array(entries, shape=(S * A, S))
        matrix.eliminate_zeros()
        return matrix

    def reset(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Draw the first state."""
        return _draw(key, jnp.asarray(self.initial_thresholds))

    def step(
        self, state: Int[ArrayLike, ""], action: Int[ArrayLike, ""], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Draw the next state. Return the next state and the reward."""
        outcome = _draw(key, jnp.asarray(self.thresholds)[state, action])
        next_state = jnp.asarray(self.successors, jnp.int32)[state, action, outcome]
        return next_state, jnp.asarray(self.outcome_rewards)[state, action, outcome]

    def observe(self, state: Int[ArrayLike, ""]) -> Int[Array, ""]:
        """Return the number of the state."""
        return jnp.asarray(state)

    def terminated(self, state: Int[ArrayLike, ""]) -> Bool[Array, ""]:
        """Return whether the state is terminal."""
        return jnp.asarray(self.terminal)[state]

    def truncated(self, state: Int[ArrayLike, ""]) -> Bool[Array, ""]:
        """Return False: a table has no clock, and the problem's horizon truncates its episodes."""
        return jnp.zeros_like(jnp.asarray(state), bool)


def _thresholds(probabilities: Float[np.ndarray, "*rows K"]) -> Float[np.ndarray, "*rows K"]:
    """Return cumulative probabilities that exceed 1 from the last possible outcome on."""
    is_followed = np.cumsum(probabilities[..., :0:-1], -1)[..., ::-1] > 0
    never = np.zeros_like(probabilities[..., :1], bool)
    is_followed = np.concatenate([is_followed, never], -1)
    return np.where(is_followed, np.cumsum(probabilities, -1), 2.0)


def _draw(key: Key[Array, ""], thresholds: Float[Array, " K"]) -> Int[Array, ""]:
    return jnp.sum(jax.random.uniform(key, (), thresholds.dtype) >= thresholds, dtype=jnp.int32)


def _check_distributions(
    name: str,
    probabilities: Float[np.ndarray, "*rows K"],
    thresholds: Float[np.ndarray, "*rows K"],
) -> None:
    """Raise ValueError unless each row is a distribution, with thresholds to match."""
    check_finite(name, probabilities)
    if (probabilities < 0).any():
        raise ValueError(f"{name} must not be negative.")
    errors = np.abs(probabilities.sum(-1) - 1)
    if errors.max() > SUM_TOLERANCE:
        raise ValueError(f"{name} must sum to 1, got a sum that differs by {errors.max():.3g}.")
    if not np.array_equal(thresholds, _thresholds(probabilities)):
        raise ValueError(f"the thresholds of {name} must be the cumulative sums.")


def _read_distribution(name: str, value: Any) -> Float[np.ndarray, " S"]:
    array = read_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a vector with one probability per state, got shape {array.shape}."
        )
    if (array < 0).any():
        state = int(array.argmin())
        raise ValueError(f"{name}[{state}] must not be negative, got {array[state]:g}.")
    if abs(array.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"{name} must sum to 1, got {array.sum():.9g}.")
    return array / array.sum()


def _read_terminal(value: Any, num_states: int) -> Bool[np.ndarray, " S"]:
    if value is None:
        return np.zeros(num_states, bool)
    allowed = f"terminal must be {num_states} booleans, one per state"
    try:
        mask = np.array(value)
    except ValueError:
        raise ValueError(f"{allowed}, got {value!r:.60}.") from None
    if mask.dtype != bool or mask.shape != (num_states,):
        raise ValueError(f"{allowed}, got shape {mask.shape} of dtype {mask.dtype}.")
    return mask


def _read_outcomes(transition: Any, reward: Any, terminal: Bool[np.ndarray, " S"]) -> Outcomes:
    """Return successors, probabilities and rewards [S, A, K] of the possible outcomes."""
    S = terminal.size
    A, rewards = _read_rewards(reward, S)
    matrix = _with_self_loops(_read_matrix(transition, S, A), terminal, A)
    _check_rows(matrix, A)

    counts = np.diff(matrix.indptr)
    _check_memory(counts, A)
    rows = np.repeat(np.arange(S * A), counts)
    slots = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], counts)

    def padded(values: Any, dtype: Any = float) -> Any:
        array = np.zeros((S * A, int(counts.max())), dtype)
        array[rows, slots] = values
        return array.reshape(S, A, -1)

    columns = matrix.indices % rewards.shape[1]  # 0 if rewards do not depend on the next state
    probabilities = matrix.data / matrix.sum(axis=1)[rows]
    successors = padded(matrix.indices, np.int32)
    return successors, padded(probabilities), padded(rewards[rows, columns])


def _read(name: str, value: Any) -> Any:
    """Return a dense array, or a sparse one of any format, as float64 without NaN or infinities."""
    if not hasattr(value, "tocoo"):
        return read_array(name, value)
    if value.dtype.kind == "c":
        raise ValueError(f"{name} must be an array of real numbers, got {value.dtype}.")
    array = sparse.coo_array(value).astype(np.float64)
    check_finite(name, array.data, array.coords)
    return array


def _read_rewards(reward: Any, S: int) -> tuple[int, Any]:
    """Return the number of actions and rewards [S * A, S], or [S * A, 1] without next states."""
    is_sparse = hasattr(reward, "tocoo")
    rewards = _read("reward", reward)
    shape = rewards.shape
    if is_sparse and len(shape) == 2 and shape[0] % S == 0:
        shape = (S, shape[0] // S, shape[1])
    is_valid = len(shape) in (2, 3) and 0 not in shape and shape[0] == S and shape[2:] in ((), (S,))
    if not is_valid or (is_sparse and len(shape) == 2):
        allowed = "[S, A] or [S, A, S], or when sparse [S * A, S] or [S, A, S]"
        sizes = f"S = {S} states (the length of initial) and at least one action"
        raise ValueError(f"reward must have shape {allowed}, with {sizes}, got {rewards.shape}.")
    flat = rewards.reshape((S * shape[1], -1))
    if is_sparse:
        flat = sparse.csr_array(flat)
    return shape[1], flat


def _read_matrix(transition: Any, S: int, A: int) -> sparse.csr_array:
    matrix = _read("transition", transition)
    allowed = f"[S, A, S] = {(S, A, S)}"
    shapes: list[tuple[int, ...]] = [(S, A, S)]
    if hasattr(transition, "tocoo"):
        allowed = f"[S * A, S] = {(S * A, S)} or {allowed} when sparse"
        shapes.append((S * A, S))
    if matrix.shape not in shapes:
        raise ValueError(f"transition must have shape {allowed}, got {matrix.shape}.")
    rows = sparse.csr_array(matrix.reshape((S * A, S)))
    rows.sum_duplicates()
    return rows


def _with_self_loops(
    matrix: sparse.csr_array, terminal: Bool[np.ndarray, " S"], A: int
) -> sparse.csr_array:
    """Replace the rows of terminal states by self-loops, and drop impossible outcomes."""
    is_live = sparse.diags_array(np.repeat(~terminal, A).astype(float))
    ended = np.flatnonzero(terminal)
    rows = (ended[:, None] * A + np.arange(A)).ravel()
    loops = sparse.csr_array((np.ones(rows.size), (rows, np.repeat(ended, A))), shape=matrix.shape)
    looped = sparse.csr_array(is_live @ matrix + loops)
    looped.eliminate_zeros()
    return looped


def _check_memory(counts: Int[np.ndarray, " rows"], A: int) -> None:
    """Raise ValueError if lists of the longest length for each row exceed the memory."""
    longest = int(counts.argmax())
    size = OUTCOME_BYTES * counts.size * int(counts[longest])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        index = f"{longest // A}, {longest % A}"
        raise ValueError(
            f"transition[{index}] must have fewer next states, got {counts[longest]:,}: lists of "
            f"this length for each state and action need {size / 1e9:.3g} GB, more than the memory."
        )


def _check_rows(matrix: sparse.csr_array, A: int) -> None:
    """Raise ValueError unless each row of the transitions is a distribution."""
    if (matrix.data < 0).any():
        entry = int(matrix.data.argmin())
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        index = f"{row // A}, {row % A}, {matrix.indices[entry]}"
        value = matrix.data[entry]
        raise ValueError(f"transition[{index}] must not be negative, got {value:g}.")
    sums = matrix.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        index = f"{worst // A}, {worst % A}"
        raise ValueError(f"transition[{index}] must sum to 1, got {sums[worst]:.9g}.")

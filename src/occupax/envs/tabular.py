"""Finite Markov decision processes, stored as padded lists of successors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key
from scipy import sparse

from occupax.envs import tables
from occupax.envs.base import Environment
from occupax.envs.lookup import make_gymnasium
from occupax.envs.tabular_input import read_distribution, read_outcomes, read_terminal


class TabularMDP(Environment):
    """A Markov decision process with finitely many states and actions.

    Only outcomes of positive probability are kept, in lists padded to the longest one (K), so that a sparse problem
    stays small and drawing a next state costs K, not S. Arrays are float64, for the exact methods; sampling converts
    them to JAX's default precision.

    A terminal state ends its episode: what `transition` says about it is ignored, it repeats for ever. Its reward is
    collected under the "absorbing" convention only.
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
            transition: probabilities, dense [S, A, S], or SciPy sparse [S * A, S] (row s * A + a) or [S, A, S].
            reward: [S, A], or, when it depends on the next state, [S, A, S], dense or sparse like the transitions.
            initial: distribution of the first state, [S].
            terminal: which states end an episode, [S] booleans; none by default.
        """
        self.initial = read_distribution("initial", initial)
        self.terminal = read_terminal(terminal, self.initial.size)
        self.successors, self.probabilities, self.outcome_rewards = read_outcomes(transition, reward, self.terminal)
        self.thresholds = _thresholds(self.probabilities)
        self.initial_thresholds = _thresholds(self.initial)
        self.time_limit = None
        for array in jax.tree.leaves(self):
            array.setflags(write=False)

    @classmethod
    def from_gymnasium(cls, env: Any, **options: Any) -> "TabularMDP":
        """The table that a Gymnasium environment publishes as `P`: FrozenLake, CliffWalking, Taxi and their like.

        Args:
            env: a Gymnasium id, or an environment.
            **options: passed to `gymnasium.make` with an id, for example `is_slippery=False`.
        """
        return cls(*tables.gymnasium(make_gymnasium(env, options)))

    @classmethod
    def gridworld(cls, text: str, slip: float = 0.0) -> "TabularMDP":
        """A grid drawn as text: S start, G goal, H hole, # wall, and . or F for free cells.

        States are the cells that are not walls, row by row. Actions are left, down, right, up; a move into a wall or
        over the edge stays. Entering a goal pays 1; goals and holes are terminal. Several S share the start evenly.

        Args:
            text: the map, one row a line.
            slip: probability of moving at a right angle instead, half of it to each side; 2/3 is FrozenLake's ice.
        """
        return cls(*tables.gridworld(text, slip))

    @classmethod
    def chain(cls, n: int) -> "TabularMDP":
        """A corridor of n states: action 0 goes back, action 1 forward, from state 0.

        Going forward in the last state stays there and pays 1, so the best return is discount^(n-1) / (1 - discount).
        """
        return cls(*tables.chain(n))

    @classmethod
    def garnet(cls, num_states: int, num_actions: int, branching: int, key: Key[Array, ""]) -> "TabularMDP":
        """A random process: each action leads to `branching` random states; rewards are uniform on [0, 1]."""
        return cls(*tables.garnet(num_states, num_actions, branching, key))

    @property
    def num_states(self) -> int:
        """How many states there are, S."""
        return self.successors.shape[0]

    @property
    def num_actions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many actions there are, A."""
        return self.successors.shape[1]

    @property
    def reward(self) -> Float[np.ndarray | Array, "S A"]:
        """The expected reward of each state and action."""
        return (self.probabilities * self.outcome_rewards).sum(-1)

    @property
    def transition(self) -> sparse.csr_array:
        """The transition probabilities as a sparse matrix [S * A, S]; row s * A + a."""
        S, A, K = self.successors.shape
        entries = (self.probabilities.flatten(), self.successors.flatten(), np.arange(0, S * A * K + 1, K))
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
    more_to_come = np.concatenate([still_possible[..., 1:], np.zeros_like(still_possible[..., :1])], -1)
    return np.where(more_to_come, np.cumsum(probabilities, -1), 2.0)


def _draw(key: Key[Array, ""], thresholds: Float[Array, " K"]) -> Int[Array, ""]:
    """Draw an outcome by inversion."""
    return jnp.sum(jax.random.uniform(key, (), thresholds.dtype) >= thresholds, dtype=jnp.int32)

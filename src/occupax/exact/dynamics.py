"""Linear dynamics of a tabular problem."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse import linalg

from occupax.envs.tabular import TabularMDP
from occupax.errors import real_array
from occupax.problem import Problem

DENSE_STATES = 1000
SOLVE_TOLERANCE = 1e-12

StateActionArray = Float[np.ndarray, "S A"]


class Dynamics(NamedTuple):
    """Transition probabilities and features of each state and action.

    Under "episodic", mass that enters a terminal state is gone: rows and columns of terminal states
    are zero. Under "absorbing", terminal states lead to themselves.
    """

    transition: sparse.csr_array
    """Transition probabilities [S * A, S]. Row s * A + a belongs to action a in state s."""
    initial: Float[np.ndarray, " S"]
    features: sparse.csr_array
    """Features phi of each state and action, [S * A, d]."""
    counting: Float[np.ndarray, " S"]
    """1 for states whose steps count, 0 for terminal states."""
    discount: float
    horizon: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions, (S, A)."""
        states = self.initial.size
        return states, self.transition.shape[0] // states

    def under(self, probs: StateActionArray) -> sparse.csr_array:
        """The transitions [S, S] under a table of action probabilities."""
        S, A = self.shape
        choice = sparse.csr_array(
            (probs.ravel(), np.arange(S * A), np.arange(0, S * A + 1, A)), shape=(S, S * A)
        )
        return sparse.csr_array(choice @ self.transition)

    def following(self, values: Float[np.ndarray, " S"]) -> StateActionArray:
        """Return the expected value of the next state for each state and action."""
        return (self.transition @ values).reshape(self.shape)

    def discounted_solve(
        self, matrix: sparse.csr_array, right: Float[np.ndarray, " S"]
    ) -> Float[np.ndarray, " S"]:
        """Solve (I - discount * matrix) x = right.

        Small systems are dense. Larger ones use GMRES, and sparse factors where GMRES fails.
        """
        S = right.size
        if S <= DENSE_STATES:
            return np.linalg.solve(np.eye(S) - self.discount * matrix.toarray(), right)
        system = sparse.csr_array(sparse.eye_array(S) - self.discount * matrix)
        solution, failed = linalg.gmres(
            system, right, rtol=SOLVE_TOLERANCE, atol=0.0, restart=60, maxiter=5
        )
        return linalg.splu(system.tocsc()).solve(right) if failed else solution


def dynamics(problem: Problem) -> Dynamics:
    """Read the dynamics off a tabular problem."""
    env = problem.env
    if not isinstance(env, TabularMDP):
        raise ValueError(f"exact methods need a tabular environment, got {type(env).__name__}.")
    S = env.num_states
    A = env.num_actions
    counting = np.ones(S)
    if problem.termination == "episodic":
        counting[env.terminal] = 0.0
    transition = env.transition
    if not counting.all():
        successors = np.diff(transition.indptr)
        transition.data *= np.repeat(np.repeat(counting, A), successors)
        transition.data *= counting[transition.indices]
        transition.eliminate_zeros()
    initial = env.initial * counting
    features = _feature_matrix(problem, env)
    return Dynamics(transition, initial, features, counting, problem.discount, problem.horizon)


def _feature_matrix(problem: Problem, env: TabularMDP) -> sparse.csr_array:
    """Return the features of each state and action, [S * A, d]."""
    pairs = np.arange(env.num_states * env.num_actions)
    states, actions = np.divmod(pairs, env.num_actions)
    with jax.enable_x64(True):
        counts = jax.vmap(problem.count)(states, actions, env.reward.ravel())
    index = np.asarray(counts.index)
    entries = np.asarray(counts.value)
    row_starts = np.arange(0, index.size + 1, index.shape[1])
    shape = (pairs.size, problem.size)
    features = sparse.csr_array((entries.ravel(), index.ravel(), row_starts), shape=shape)
    features.sum_duplicates()
    return features


def read_probs(probs: Any, model: Dynamics) -> Float[np.ndarray, "*H S A"]:
    """Return a checked, normalised table of action probabilities, [S, A] or [H, S, A]."""
    table = real_array("probs [S, A]", probs).astype(np.float64)
    if table.shape not in (model.shape, (model.horizon, *model.shape)):
        raise ValueError(f"probs must have shape [S, A] = {model.shape}, got {table.shape}.")
    sums = table.sum(-1)
    wrong = ~(np.abs(sums - 1) <= 1e-4) | ~(table >= 0).all(-1)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        value = f"{table[where]} in state {where[-1]}"
        raise ValueError(f"probs must be a distribution over actions in each state, got {value}.")
    return table / sums[..., None]

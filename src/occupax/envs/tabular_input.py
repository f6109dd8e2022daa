"""Reads and checks the arrays a `TabularMDP` is made of."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from occupax._errors import read_array, refuse_infinite

SUM_TOLERANCE = 1e-6

Outcomes = tuple[Int[np.ndarray, "S A K"], Float[np.ndarray, "S A K"], Float[np.ndarray, "S A K"]]


def read_distribution(name: str, value: Any) -> Float[np.ndarray, " S"]:
    """Return a probability vector, normalised exactly."""
    array = read_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector with one probability a state, got shape {array.shape}.")
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, got {array.min():g} for state {int(array.argmin())}.")
    if abs(array.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"{name} must sum to 1, got {array.sum():.9g}.")
    return array / array.sum()


def read_terminal(value: Any, num_states: int) -> Bool[np.ndarray, " S"]:
    """Return the terminal mask."""
    if value is None:
        return np.zeros(num_states, bool)
    try:
        mask = np.asarray(value)
    except ValueError:
        raise ValueError(f"terminal must be {num_states} booleans, one a state, got {value!r:.60}.") from None
    if mask.dtype != bool or mask.shape != (num_states,):
        raise ValueError(
            f"terminal must be {num_states} booleans, one a state, got shape {mask.shape} of dtype {mask.dtype}."
        )
    return mask.copy()


def read_outcomes(transition: Any, reward: Any, terminal: Bool[np.ndarray, " S"]) -> Outcomes:
    """Return successors, probabilities and rewards [S, A, K] of the outcomes that are possible."""
    S = terminal.size
    A, rewards = _read_rewards(reward, S)
    matrix = _with_self_loops(_read_matrix(transition, S, A), terminal, A)
    _check_rows(matrix, A)

    outcomes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(S * A), outcomes)
    slots = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], outcomes)
    K = int(outcomes.max())
    successors = np.zeros((S * A, K), np.int32)
    probabilities = np.zeros((S * A, K))
    outcome_rewards = np.zeros((S * A, K))
    successors[rows, slots] = matrix.indices
    probabilities[rows, slots] = matrix.data / matrix.sum(axis=1)[rows]
    outcome_rewards[rows, slots] = rewards[rows, matrix.indices % rewards.shape[1]]  # a single column serves them all
    return successors.reshape(S, A, K), probabilities.reshape(S, A, K), outcome_rewards.reshape(S, A, K)


def _read_sparse(name: str, value: Any) -> sparse.coo_array:
    """Return a sparse `value` of any format as float64 without NaN or infinities."""
    array = sparse.coo_array(value).astype(np.float64)
    refuse_infinite(name, array.data, array.coords)
    return array


def _read_rewards(reward: Any, S: int) -> tuple[int, Any]:
    """Return the number of actions, and the rewards [S * A, S] or, if the next state does not matter, [S * A, 1]."""
    sparse_input = hasattr(reward, "tocoo")
    rewards: Any = _read_sparse("reward", reward) if sparse_input else read_array("reward", reward)
    shape = rewards.shape
    if sparse_input and len(shape) == 2:
        shape = (S if shape[0] % S == 0 else shape[0], shape[0] // S, shape[1])
    if len(shape) not in (2, 3) or 0 in shape or shape[0] != S or shape[2:] not in ((), (S,)):
        raise ValueError(
            f"reward must have shape [S, A] or [S, A, S], or when sparse [S * A, S] or [S, A, S], with S = {S} states "
            f"(the length of initial) and at least one action, got {rewards.shape}."
        )
    A = shape[1]
    if sparse_input:
        return A, sparse.csr_array(rewards.reshape((S * A, S)))
    return A, rewards.reshape(S * A, -1)


def _read_matrix(transition: Any, S: int, A: int) -> sparse.csr_array:
    """Return the transitions as a sparse [S * A, S] matrix of finite numbers."""
    if hasattr(transition, "tocoo"):
        if transition.shape not in ((S * A, S), (S, A, S)):
            raise ValueError(
                f"transition must have shape [S * A, S] = {(S * A, S)} or [S, A, S] = {(S, A, S)} when sparse, "
                f"got {transition.shape}."
            )
        matrix = sparse.csr_array(_read_sparse("transition", transition).reshape((S * A, S)))
    else:
        dense = read_array("transition", transition)
        if dense.shape != (S, A, S):
            raise ValueError(f"transition must have shape [S, A, S] = {(S, A, S)}, got {dense.shape}.")
        matrix = sparse.csr_array(dense.reshape(S * A, S))
    matrix.sum_duplicates()
    return matrix


def _with_self_loops(matrix: sparse.csr_array, terminal: Bool[np.ndarray, " S"], A: int) -> sparse.csr_array:
    """Make every terminal state repeat for ever, whatever was said about it, and drop impossible outcomes."""
    keep = sparse.diags_array(np.repeat(~terminal, A).astype(float))
    ended = np.flatnonzero(terminal)
    rows = (ended[:, None] * A + np.arange(A)).ravel()
    loops = sparse.csr_array((np.ones(rows.size), (rows, np.repeat(ended, A))), shape=matrix.shape)
    looped = sparse.csr_array(keep @ matrix + loops)
    looped.eliminate_zeros()
    return looped


def _check_rows(matrix: sparse.csr_array, A: int) -> None:
    """Refuse negative probabilities and rows that do not sum to 1."""
    if (matrix.data < 0).any():
        entry = int(matrix.data.argmin())
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        raise ValueError(
            f"transition must not be negative, got {matrix.data[entry]:g} from state {row // A} with action {row % A} "
            f"to state {matrix.indices[entry]}."
        )
    sums = matrix.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"transition must sum to 1 over next states, got {sums[worst]:.9g} for state {worst // A} with action "
            f"{worst % A}."
        )

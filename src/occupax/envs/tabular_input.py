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
    expected = f"terminal must be {num_states} booleans, one a state"
    try:
        mask = np.array(value)
    except ValueError:
        raise ValueError(f"{expected}, got {value!r:.60}.") from None
    if mask.dtype != bool or mask.shape != (num_states,):
        raise ValueError(f"{expected}, got shape {mask.shape} of dtype {mask.dtype}.")
    return mask


def read_outcomes(transition: Any, reward: Any, terminal: Bool[np.ndarray, " S"]) -> Outcomes:
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

    outcome_rewards = rewards[rows, matrix.indices % rewards.shape[1]]  # a single column serves them all
    probabilities = matrix.data / matrix.sum(axis=1)[rows]
    return padded(matrix.indices, np.int32), padded(probabilities), padded(outcome_rewards)


def _read(name: str, value: Any) -> Any:
    """Return a dense array, or a sparse one of any format, as float64 without NaN or infinities."""
    if not hasattr(value, "tocoo"):
        return read_array(name, value)
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
    """Return the transitions as a sparse [S * A, S] matrix of finite numbers."""
    is_sparse, read = hasattr(transition, "tocoo"), _read("transition", transition)
    if read.shape != (S, A, S) and not (is_sparse and read.shape == (S * A, S)):
        either, when = (f"[S * A, S] = {(S * A, S)} or ", " when sparse") if is_sparse else ("", "")
        raise ValueError(f"transition must have shape {either}[S, A, S] = {(S, A, S)}{when}, got {read.shape}.")
    matrix = sparse.csr_array(read.reshape((S * A, S)))
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
        where = f"from state {row // A} with action {row % A} to state {matrix.indices[entry]}"
        raise ValueError(f"transition must not be negative, got {matrix.data[entry]:g} {where}.")
    sums = matrix.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        where = f"for state {worst // A} with action {worst % A}"
        raise ValueError(f"transition must sum to 1 over next states, got {sums[worst]:.9g} {where}.")

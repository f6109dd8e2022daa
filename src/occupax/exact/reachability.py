"""Restriction of a table to the states that can be visited."""

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import csgraph

from occupax.exact.dynamics import Dynamics


def reachable_states(model: Dynamics) -> Int[np.ndarray, " R"]:
    """Return the states that some policy visits, in order."""
    S, A = model.shape
    transition = model.transition
    followers = sparse.csr_array(
        (transition.data > 0, transition.indices, transition.indptr[::A]), shape=(S, S)
    ).astype(float)
    starts = np.flatnonzero(model.initial > 0)
    source = sparse.csr_array(
        (np.ones(starts.size), (np.zeros(starts.size, int), starts)), shape=(1, S)
    )
    graph = sparse.block_array([[followers, None], [source, sparse.csr_array((1, 1))]])
    order = csgraph.breadth_first_order(sparse.csr_array(graph), S, return_predecessors=False)
    return np.sort(order[order < S])


def restrict(model: Dynamics, states: Int[np.ndarray, " R"]) -> Dynamics:
    """Return the dynamics of some states that are never left."""
    A = model.shape[1]
    pairs = (states[:, None] * A + np.arange(A)).ravel()
    return model._replace(
        transition=sparse.csr_array(model.transition[pairs][:, states]),
        initial=model.initial[states],
        features=sparse.csr_array(model.features[pairs]),
        counting=model.counting[states],
    )


def expand_policy(
    policy: Float[np.ndarray, "*H R A"], states: Int[np.ndarray, " R"], num_states: int
) -> Float[np.ndarray, "*H S A"]:
    """Return a policy of all states, which is uniform in the other ones."""
    if len(states) == num_states:
        return policy
    *times, _, A = policy.shape
    whole = np.full((*times, num_states, A), 1 / A)
    whole[..., states, :] = policy
    return whole


def expand_values(
    values: Float[np.ndarray, "*H R"],
    states: Int[np.ndarray, " R"],
    model: Dynamics,
    reward: Float[np.ndarray, "S A"],
) -> Float[np.ndarray, "*H S"]:
    """Return values of all states, high enough in the other ones to prove the same bound."""
    S = model.shape[0]
    if len(states) == S:
        return values
    largest = float(np.max(reward, initial=0.0, where=np.isfinite(reward)))
    highest = float(np.max(values, initial=0.0))
    if model.horizon is None:
        highest = np.full(1, highest + 2 * largest / (1 - model.discount))
    else:
        highest = highest + 2 * largest * np.arange(model.horizon, 0, -1)[:, None]
    whole = np.empty((*values.shape[:-1], S))
    whole[...] = highest
    whole[..., states] = values
    whole[..., model.counting == 0] = 0.0
    return whole

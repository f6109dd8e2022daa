"""The linear dynamics of a tabular problem, and the best policy for a reward."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.sparse import linalg

from occupax.envs.tabular import TabularMDP
from occupax.errors import real_array
from occupax.problem import Problem, ProblemSource, as_problem

DENSE_STATES = 1000
SOLVE_TOLERANCE = 1e-12

StateActionArray = Float[np.ndarray, "S A"]


class Dynamics(NamedTuple):
    """Where each state and action leads, and what it counts.

    Under "episodic", mass that enters a terminal state is gone: rows and columns of terminal states
    are zero. Under "absorbing", terminal states lead to themselves.
    """

    transition: sparse.csr_array
    """Probabilities [S * A, S]; row s * A + a is where action a leads from state s."""
    initial: Float[np.ndarray, " S"]
    features: sparse.csr_array
    """What each state and action counts, phi, [S * A, d]."""
    counting: Float[np.ndarray, " S"]
    """1 for states in which time is spent, 0 for those that end an episode."""
    discount: float
    horizon: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of states and actions, (S, A)."""
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
        """The expected value of the next state."""
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


class BestResponse(NamedTuple):
    """An optimal policy for a reward, and its return from each state (at each step)."""

    value: float
    """The optimal return from the initial distribution."""
    upper_bound: float
    """A bound of the optimal return that also covers what is left of the Bellman residual."""
    values: Float[np.ndarray, "*H S"]
    policy: Float[np.ndarray, "*H S A"]


def dynamics(problem: Problem) -> Dynamics:
    """Read the dynamics off a tabular problem."""
    env = problem.env
    if not isinstance(env, TabularMDP):
        raise ValueError(f"exact methods need a tabular environment, got {type(env).__name__}.")
    S, A = env.num_states, env.num_actions
    counting = np.ones(S)
    if problem.termination == "episodic":
        counting[env.terminal] = 0.0
    rows, columns = sparse.diags_array(np.repeat(counting, A)), sparse.diags_array(counting)
    transition = sparse.csr_array(rows @ env.transition @ columns)
    with jax.enable_x64(True):
        counts = jax.vmap(problem.count)(*np.divmod(np.arange(S * A), A), env.reward.ravel())
    index, entry = np.asarray(counts.index), np.asarray(counts.value)
    pairs = np.repeat(np.arange(S * A), index.shape[1])
    features = sparse.csr_array(
        (entry.ravel(), (pairs, index.ravel())), shape=(S * A, problem.size)
    )
    return Dynamics(
        transition, env.initial * counting, features, counting, problem.discount, problem.horizon
    )


def read_probs(probs: Any, model: Dynamics) -> Float[np.ndarray, "*H S A"]:
    """Return a checked, normalised table of action probabilities, [S, A] or [H, S, A]."""
    table = real_array("probs [S, A]", probs).astype(np.float64)
    if table.shape not in (model.shape, (model.horizon, *model.shape)):
        raise ValueError(f"probs must have shape [S, A] = {model.shape}, got {table.shape}.")
    sums = table.sum(-1)
    wrong = ~(np.abs(sums - 1) <= 1e-4) | ~(table >= 0).all(-1)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        found = f"{table[where]} in state {where[-1]}"
        raise ValueError(f"probs must be a distribution over actions in each state, got {found}.")
    return table / sums[..., None]


def value_iteration(problem: ProblemSource) -> BestResponse:
    """The best discounted return of the environment's own reward, and a policy that earns it.

    It is found by Howard's policy iteration or, for a horizon H, by H steps of value iteration.
    """
    problem = as_problem(problem)
    return best_response(dynamics(problem), problem.env.reward)  # pyright: ignore[reportAttributeAccessIssue]


def best_response(model: Dynamics, reward: StateActionArray) -> BestResponse:
    """Maximise <reward, lambda> over all occupancies."""
    reward = reward * model.counting[:, None]
    return (
        _policy_iteration(model, reward)
        if model.horizon is None
        else _backward_induction(model, reward)
    )


def _policy_iteration(model: Dynamics, reward: StateActionArray) -> BestResponse:
    S, A = model.shape
    states = np.arange(S)
    choice, progress = reward.argmax(1), -np.inf
    while True:
        values = model.discounted_solve(model.under(np.eye(A)[choice]), reward[states, choice])
        action_values, improves = _look_ahead(model, reward, choice, values)
        if (
            not improves.any() or values.sum() <= progress
        ):  # among equal actions, rounding could go in circles
            break
        progress = values.sum()
        # sweeps of value iteration, as long as they change the policy, carry news along a corridor
        # far more cheaply than one linear system a step
        for _ in range(S):
            choice, values = (
                np.where(improves, action_values.argmax(1), choice),
                action_values.max(1),
            )
            action_values, improves = _look_ahead(model, reward, choice, values)
            if not improves.any():
                break
    residual = max(float((action_values.max(1) - values).max()), 0.0)
    best = float(model.initial @ values)
    unresolved = residual * float(model.initial.sum()) / (1 - model.discount)
    return BestResponse(best, best + unresolved, values, np.eye(A)[choice])


def _look_ahead(
    model: Dynamics,
    reward: StateActionArray,
    choice: Int[np.ndarray, " S"],
    values: Float[np.ndarray, " S"],
) -> tuple[StateActionArray, Bool[np.ndarray, " S"]]:
    action_values = reward + model.discount * model.following(values)
    gain = action_values.max(1) - action_values[np.arange(choice.size), choice]
    return action_values, gain > 4e-15 * (1 + np.abs(action_values).max())


def _backward_induction(model: Dynamics, reward: StateActionArray) -> BestResponse:
    S, A = model.shape
    horizon = model.horizon or 0
    values, policy = np.zeros((horizon + 1, S)), np.zeros((horizon, S, A))
    for t in reversed(range(horizon)):
        action_values = reward + model.discount * model.following(values[t + 1])
        policy[t] = np.eye(A)[action_values.argmax(1)]
        values[t] = action_values.max(1)
    best = float(model.initial @ values[0])
    return BestResponse(best, best, values[:-1], policy)

"""Exact evaluation of policies: occupancies, values, gradients and certificates."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occupax.display import Description, shown_number
from occupax.errors import check_number, real_array, shown
from occupax.exact.dynamics import Dynamics, StateActionArray, dynamics, read_probs
from occupax.exact.objective import concave_dynamics, utility_gradient, utility_value
from occupax.exact.optimum import search_optimum
from occupax.exact.probabilities import read_policy
from occupax.exact.returns import best_response
from occupax.policies import PolicyType, check_policy_fits
from occupax.problem import Problem, ProblemSource, as_problem

MULTIPLIER_TOLERANCE = 1e-9
MULTIPLIER_SHARE = 1e-3
MULTIPLIER_SECONDS = 60.0
"""Gap, relative to the value and to the improvement over the uniform policy, and time limit of the
search for multipliers."""
MAX_NUMBERS_AT_ONCE = 2 * 10**6
"""Largest number of entries of the dense matrices of several policies. Larger problems are
evaluated policy by policy with sparse matrices, ten times as fast for the 500 states of Taxi."""


class Certificate(NamedTuple):
    """Value of a policy, with an upper bound on the value of every policy."""

    value: float
    """Utility of the policy."""
    upper_bound: float
    """Upper bound on the utility of every policy that satisfies the constraints."""
    gap: float
    """Certified gap upper_bound - value, never negative."""
    violation: float = 0.0
    """Largest violation of a constraint by the policy, 0 for a feasible policy."""

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        value, bound, gap, violation = map(shown_number, self)
        title = f"Certificate: {value}; no policy is better than {bound}"
        return Description(title, [("certified gap", gap), ("violation", violation)])


def occupancy(problem: ProblemSource, probs: Any) -> StateActionArray:
    """Return the discounted state-action occupancy lambda of a policy.

    Args:
        problem: tabular problem.
        probs: policy: a table of action probabilities [S, A] or, with a horizon, a table for each
            step [H, S, A], as returned by `solve`. A `Policy` stands for its action probabilities.
            An agent with `predict`, such as those of Stable-Baselines3, and a function of the state
            stand for the deterministic policy of the actions that they return. `predict` is called
            once a state, with deterministic=True.

    Returns:
        Discounted visits of each state and action, [S, A].
    """
    problem = as_problem(problem)
    model = dynamics(problem)
    return total_occupancy(model, read_policy(problem, probs, model))


def feature_occupancy(problem: ProblemSource, probs: Any) -> Float[np.ndarray, " d"]:
    """Return the occupancy u of the problem's features, which `estimators.occupancy` estimates.

    Args:
        problem: tabular problem.
        probs: policy, as for `occupancy`.

    Returns:
        Discounted sum of the features, [d].
    """
    problem = as_problem(problem)
    model = dynamics(problem)
    return model.features.T @ total_occupancy(model, read_policy(problem, probs, model)).ravel()


def value(problem: ProblemSource, probs: Any) -> float:
    """Return the utility F(u) of a policy.

    Args:
        problem: tabular problem.
        probs: policy, as for `occupancy`.

    Returns:
        The utility.
    """
    problem = as_problem(problem)
    return utility_value(problem.utility, feature_occupancy(problem, probs))


def certificate(
    problem: ProblemSource, probs: Any, multipliers: Mapping[str, float] | None = None
) -> Certificate:
    """Return the value of a policy and an upper bound on the value of every policy.

    For a concave F, F(best) - F(u) <= max over occupancies u' of <grad F(u), u' - u>, which one
    planning problem with the quasi-reward grad F(u) solves. With a horizon, the bound holds for
    time-dependent policies too.

    With constraints, F is replaced by the Lagrangian. For any multipliers, the Lagrangian bounds
    the optimum of all feasible policies.

    Args:
        problem: tabular problem with a concave utility.
        probs: policy, as for `occupancy`.
        multipliers: multipliers of the constraints, by name. By default those of the exact optimum,
            which `solve` computes first.

    Returns:
        Value, upper bound, certified gap and violation.
    """
    problem = as_problem(problem)
    model = concave_dynamics(problem)
    lam = total_occupancy(model, read_policy(problem, probs, model))
    return certify(
        problem, model, model.features.T @ lam.ravel(), _read_multipliers(problem, multipliers)
    )


def _read_multipliers(
    problem: Problem, multipliers: Mapping[str, float] | None
) -> Float[np.ndarray, " K"] | None:
    """Return the multipliers in the order of the constraints. By default, those of the optimum."""
    names = [constraint.name for constraint in problem.constraints]
    if multipliers is None:
        return best_multipliers(problem) if names else None
    if not isinstance(multipliers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"multipliers must be a dictionary of numbers by constraint, got {shown(multipliers)}."
        )
    if set(multipliers) != set(names):
        raise ValueError(
            f"multipliers must have one for each of the constraints {names}, "
            f"got {list(multipliers)}."
        )
    values = [check_number(f"multiplier of {name!r}", multipliers[name], low=0.0) for name in names]
    return np.array(values)


def best_multipliers(problem: Problem) -> Float[np.ndarray, " K"]:
    """Return the multipliers of the optimum, for which the bound of the Lagrangian is tight."""
    best = search_optimum(problem, MULTIPLIER_TOLERANCE, MULTIPLIER_SHARE, MULTIPLIER_SECONDS)
    return np.array(list(best.multipliers.values()))


def excesses_of(problem: Problem, features: Float[np.ndarray, " d"]) -> Float[np.ndarray, " K"]:
    """Return the violation of each constraint by an occupancy, negative for slack, in float64."""
    with jax.enable_x64(True):
        return np.asarray(_excesses(problem, features))


def certify(
    problem: Problem,
    model: Dynamics,
    features: Float[np.ndarray, " d"],
    multipliers: Float[np.ndarray, " K"] | None = None,
) -> Certificate:
    """Return the certificate of a feature occupancy. Problems with constraints need multipliers."""
    value = utility_value(problem.utility, features)
    offset = 0.0
    violation = 0.0
    utility = problem.utility
    if multipliers is not None:
        excesses = excesses_of(problem, features)
        utility = problem.lagrangian(multipliers).utility
        offset = -float(multipliers @ excesses)
        violation = max(float(excesses.max()), 0.0)
    quasi_reward = utility_gradient(utility, features)
    if not np.isfinite(quasi_reward).all():
        raise ValueError(
            f"{type(problem.utility).__name__} has no finite gradient at this occupancy, which "
            "gives no bound; "
            "use a utility that is smooth where nothing is visited, such as "
            "Entropy(smoothing=1e-6)."
        )
    best = best_response(model, (model.features @ quasi_reward).reshape(model.shape))
    gap = max(best.upper_bound - float(quasi_reward @ features) + offset, 0.0)
    return Certificate(value, value + gap, gap, violation)


def gradient(problem: ProblemSource, policy: PolicyType) -> PolicyType:
    """Return the exact gradient of F(u(theta)).

    The derivative with respect to the probabilities is that of the policy gradient theorem, sum_t
    gamma^t d_t(s) Q_t(s, a), with the quasi-reward grad F(u). JAX differentiates the probabilities.

    Args:
        problem: tabular problem.
        policy: policy with parameters theta.

    Returns:
        The derivative with respect to each array of the policy, as NumPy float64 arrays.
    """
    problem = as_problem(problem)
    model = dynamics(problem)
    check_policy_fits(policy, problem.env)
    states = np.arange(model.shape[0])
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, policy
        )
        probs = np.asarray(jax.vmap(wide.probs)(states))
        lam = total_occupancy(model, probs)
        quasi_reward = utility_gradient(problem.utility, model.features.T @ lam.ravel())
        slope = _slope(model, probs, (model.features @ quasi_reward).reshape(model.shape))

        def linearised(policy: Any) -> Any:
            return jnp.sum(jax.vmap(policy.probs)(states) * slope)

        return jax.tree.map(np.asarray, eqx.filter_grad(linearised)(wide))


def total_occupancy(model: Dynamics, probs: Float[np.ndarray, "*H S A"]) -> StateActionArray:
    """Return the occupancy [S, A] of a table of probabilities, or of one for each step."""
    return timed_occupancy(model, probs).reshape(-1, *model.shape).sum(0)


def timed_occupancy(
    model: Dynamics, probs: Float[np.ndarray, "*time S A"]
) -> Float[np.ndarray, "*H S A"]:
    """Return the occupancy of a table of probabilities. With a horizon, that of each step."""
    if model.horizon is None:
        return model.discounted_solve(model.under(probs).T.tocsr(), model.initial)[:, None] * probs
    mass = np.empty((model.horizon, *model.shape))
    arriving = model.initial
    onward = model.transition.T
    for t, table in enumerate(np.broadcast_to(probs, mass.shape)):
        mass[t] = model.discount**t * arriving[:, None] * table
        arriving = onward @ (arriving[:, None] * table).ravel()
    return mass


def _slope(model: Dynamics, probs: StateActionArray, reward: StateActionArray) -> StateActionArray:
    if model.horizon is None:
        matrix = model.under(probs)
        flow = model.discounted_solve(matrix.T.tocsr(), model.initial)
        values = model.discounted_solve(matrix, (probs * reward).sum(1))
        return flow[:, None] * (reward + model.discount * model.following(values))
    mass = timed_occupancy(model, probs).sum(2)
    slope, values = np.zeros(model.shape), np.zeros(model.shape[0])
    for t in reversed(range(model.horizon)):
        action_values = reward + model.discount * model.following(values)
        slope += mass[t][:, None] * action_values
        values = (probs * action_values).sum(1)
    return slope


class Evaluator:
    """Evaluator of many policies of a tabular problem, whose dynamics are read once.

    Args:
        problem: tabular problem.
    """

    def __init__(self, problem: ProblemSource):
        self._problem = as_problem(problem)
        self._model = dynamics(self._problem)

    def values(
        self, tables: Float[np.ndarray, "n S A"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"] | None]:
        """Return the utility and, if concave, the certified gap of each finite table, else NaN."""
        occupancies = self.occupancies(tables)
        gaps = None
        if self._problem.utility.concave:
            gaps = self.gaps(occupancies)
        return self.utilities(occupancies), gaps

    def occupancies(self, tables: Float[np.ndarray, "n S A"]) -> Float[np.ndarray, "n d"]:
        """Return the feature occupancy of each table, NaN for tables that are not finite."""
        tables = real_array("tables", tables)
        if tables.shape[1:] != self._model.shape or tables.ndim != 3:
            states, actions = self._model.shape
            raise ValueError(
                f"tables must have shape (n, {states}, {actions}), got {tables.shape}."
            )
        occupancies = np.full((len(tables), self._problem.size), np.nan)
        is_finite = np.isfinite(tables).all((1, 2))
        if is_finite.any():
            probs = np.array([read_probs(table, self._model) for table in tables[is_finite]])
            if len(probs) * self._model.shape[0] * probs[0].size <= MAX_NUMBERS_AT_ONCE:
                visits = stationary_occupancies(self._model, probs)
            else:
                visits = np.array([total_occupancy(self._model, table) for table in probs])
            occupancies[is_finite] = visits.reshape(len(probs), -1) @ self._model.features
        return occupancies

    def utilities(self, occupancies: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the utility of each occupancy of the problem's features."""
        with jax.enable_x64(True):
            return np.asarray(_utilities(self._problem.utility, occupancies))

    def excesses(self, occupancies: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n K"]:
        """Return the violation of each constraint by each occupancy, negative for slack."""
        values = [excesses_of(self._problem, occupancy) for occupancy in occupancies]
        return np.array(values).reshape(len(occupancies), len(self._problem.constraints))

    @cached_property
    def _multipliers(self) -> Float[np.ndarray, " K"] | None:
        return best_multipliers(self._problem) if self._problem.constraints else None

    def gaps(self, occupancies: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the certified gap of each occupancy. The utility must be concave."""
        gaps = np.full(len(occupancies), np.nan)
        multipliers = self._multipliers
        for i in np.flatnonzero(np.isfinite(occupancies).all(1)):
            gaps[i] = certify(self._problem, self._model, occupancies[i], multipliers).gap
        return gaps


def stationary_occupancies(
    model: Dynamics, probs: Float[np.ndarray, "n S A"]
) -> Float[np.ndarray, "n S A"]:
    """The state-action occupancies of many tables of probabilities, by dense matrices."""
    S, A = model.shape  # with M = gamma P_pi^T the flow of H steps is (I - M)^-1 (xi - M^H xi)
    matrices = model.discount * np.einsum(
        "nsa,sat->nts", probs, model.transition.toarray().reshape(S, A, S)
    )
    right = np.broadcast_to(model.initial, (len(probs), S))
    if model.horizon is not None:
        right = right - np.linalg.matrix_power(matrices, model.horizon) @ model.initial
    return np.linalg.solve(np.eye(S) - matrices, right[..., None]) * probs


_excesses = eqx.filter_jit(lambda problem, features: problem.excesses(features))
_utilities = eqx.filter_jit(lambda utility, occupancies: jax.vmap(utility.value)(occupancies))

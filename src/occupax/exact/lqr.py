"""Ground truth for linear systems with quadratic costs, `occupax.envs.LQR`.

The utility is the discounted return.

A linear-Gaussian policy draws a = K x + b + d * e with standard normal e:
`policies.gaussian(hidden=())`, or any `Gaussian` whose means are a linear layer. With z = (x, 1),
the matrices E[z z^T] of the steps follow a linear recursion, from which value and gradient are
computed in float64. An infinite horizon needs the solution of a linear equation.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.envs.lqr import LQR
from occupax.policies import Flat, Gaussian, Normalised, check_policy_fits
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.utilities.library import Reward

Matrix = Float[Array, "rows columns"]


class LinearOptimum(NamedTuple):
    """Optimal policy x -> gain x, among all policies with noise and memory."""

    value: float
    """Mean discounted return over initial states."""
    gains: Float[np.ndarray, "*H m n"]
    """One gain without a horizon, and one for each step with a horizon. With a horizon, the return
    of a stationary policy, such as a trained policy, is below `value`."""


def value(problem: ProblemSource, policy: Gaussian) -> float:
    """Return the mean discounted return of a linear-Gaussian policy.

    Args:
        problem: problem on an `LQR` whose utility is the return.
        policy: Gaussian policy whose means are linear in the observation.

    Returns:
        The return, minus infinity for an unstable system without a horizon.
    """
    problem = as_problem(problem)
    env = _system(problem)
    with jax.enable_x64(True):
        return float(_value(env, problem.discount, problem.horizon, *_law(policy, env)))


def gradient(problem: ProblemSource, policy: Gaussian) -> Gaussian:
    """Return the gradient of `value`.

    Args:
        problem: problem on an `LQR` whose utility is the return.
        policy: Gaussian policy whose means are linear in the observation.

    Returns:
        The derivative with respect to each array of the policy, as NumPy float64 arrays.
    """
    problem = as_problem(problem)
    env = _system(problem)
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, policy
        )
        slopes = eqx.filter_grad(
            lambda policy: _value(env, problem.discount, problem.horizon, *_law(policy, env))
        )(wide)
        return jax.tree.map(np.asarray, slopes)


def optimum(problem: ProblemSource) -> LinearOptimum:
    """Return the optimal policy by the Riccati recursion.

    With a horizon H the recursion takes H steps back from the end, and the gains depend on time.
    Without a horizon, SciPy computes the fixed point of the recursion, and the gain is stationary.

    Args:
        problem: problem on an `LQR` whose utility is the return.

    Returns:
        Value and gains.

    Raises:
        ValueError: for a system without a horizon that no policy stabilises.
    """
    from scipy.linalg import solve_discrete_are

    problem = as_problem(problem)
    env, discount = _system(problem), problem.discount
    root = np.sqrt(discount)
    A, B, Q, R = env.drift, env.control, env.state_cost, env.action_cost
    if problem.horizon is None:
        _check_detectable(root * A, Q)
        try:
            cost = solve_discrete_are(root * A, root * B, Q, R)
        except (np.linalg.LinAlgError, ValueError) as error:
            raise ValueError(
                "problem without a horizon must have a system that some policy stabilises, "
                "got one for which the "
                "Riccati equation has no finite solution; give Problem(env, horizon=...)."
            ) from error
        to_come = discount / (1 - discount) * np.trace(cost @ env.noise)
        return LinearOptimum(
            -float(np.trace(cost @ env.first) + to_come), _gain(env, discount, cost)
        )
    cost, to_come, gains = np.zeros_like(Q), 0.0, list[Any]()
    for _ in range(problem.horizon):
        to_come = discount * (to_come + np.trace(cost @ env.noise))
        gain = _gain(env, discount, cost)
        closed = A + B @ gain
        cost = Q + gain.T @ R @ gain + discount * closed.T @ cost @ closed
        gains.insert(0, gain)
    return LinearOptimum(-float(np.trace(cost @ env.first) + to_come), np.array(gains))


def _check_detectable(
    drift: Float[np.ndarray, "n n"], state_cost: Float[np.ndarray, "n n"]
) -> None:
    """Raise ValueError for a system that may diverge at no cost.

    SciPy returns the best stabilising policy only.
    """
    for eigenvalue in np.linalg.eigvals(drift):
        observed = np.vstack([drift - eigenvalue * np.eye(len(drift)), state_cost])
        if abs(eigenvalue) >= 1 and np.linalg.matrix_rank(observed) < len(drift):
            raise ValueError(
                "problem without a horizon must have a state_cost that sees every mode of drift "
                "that diverges, got a "
                f"free one with the discounted eigenvalue {eigenvalue:.3g}; "
                "give Problem(env, horizon=...)."
            )


def _gain(env: LQR, discount: float, cost: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "m n"]:
    """Return the optimal gain of a step, where `cost` is the matrix of the later costs."""
    A, B = env.drift, env.control
    return -discount * np.linalg.solve(env.action_cost + discount * B.T @ cost @ B, B.T @ cost @ A)


def _system(problem: Problem) -> LQR:
    if not isinstance(problem.env, LQR):
        raise ValueError(f"exact.lqr is for occupax.envs.LQR, got {type(problem.env).__name__}.")
    if not isinstance(problem.utility, Reward):
        raise ValueError(
            f"exact.lqr is for the discounted return, got {type(problem.utility).__name__}."
        )
    return problem.env


def _law(policy: Gaussian, env: LQR) -> tuple[Matrix, Float[Array, " m"]]:
    """The gain on z = (x, 1), [m, n + 1], and the variances of a linear-normal policy."""
    check_policy_fits(policy, env)
    psi = policy.psi if isinstance(policy, Gaussian) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    psi = psi.folded() if isinstance(psi, Normalised) else psi
    network = psi.network if isinstance(psi, Flat) else psi
    layers = network.layers if isinstance(network, eqx.nn.Sequential) else (network,)
    if len(layers) != 1 or not isinstance(layers[0], eqx.nn.Linear) or policy.log_deviation is None:
        hint = "policies.gaussian(hidden=()) makes one"
        raise ValueError(
            f"policy must be linear in the state, with deviations that are parameters; {hint}."
        )
    weight, bias = layers[0].weight, layers[0].bias
    bias = jnp.zeros(len(weight)) if bias is None else bias
    return jnp.concatenate([weight, bias[:, None]], 1), jnp.exp(2 * policy.log_deviation)


def _value(
    env: LQR, discount: float, horizon: int | None, gain: Matrix, variances: Float[Array, " m"]
) -> Float[Array, ""]:
    parts = env.drift, env.control, env.state_cost, env.action_cost, env.noise, env.first
    return _worth([jnp.array(part, float) for part in parts], discount, horizon, gain, variances)


@eqx.filter_jit
def _worth(
    system: list[Array],
    discount: float,
    horizon: int | None,
    gain: Matrix,
    variances: Float[Array, " m"],
) -> Float[Array, ""]:
    A, B, Q, R, W, X = system
    n = len(A)
    keep, one = jnp.eye(n + 1)[:n], jnp.eye(n + 1)[n:]
    closed = jnp.concatenate([A @ keep + B @ gain, one])
    noise = keep.T @ (W + B * variances @ B.T) @ keep
    first = keep.T @ X @ keep + one.T @ one
    cost = keep.T @ Q @ keep + gain.T @ R @ gain
    noise_cost = jnp.sum(jnp.diag(R) * variances)  # cost of the noise of the policy at each step

    if horizon is None:
        size = (n + 1) ** 2
        matrix = jnp.eye(size) - discount * jnp.kron(closed, closed)
        total = jnp.linalg.solve(
            matrix, (first + discount / (1 - discount) * noise).ravel()
        ).reshape(n + 1, n + 1)
        lasting = jnp.max(jnp.abs(_eigenvalues(closed))) ** 2 * discount
        discounted_return = -(jnp.sum(cost * total) + noise_cost / (1 - discount))
        return jnp.where(lasting < 1, discounted_return, -jnp.inf)

    def step(moments: Matrix, t: Array) -> tuple[Matrix, Array]:
        reward = -(discount**t) * (jnp.sum(cost * moments) + noise_cost)
        return closed @ moments @ closed.T + noise, reward

    return jax.lax.scan(step, first, jnp.arange(horizon))[1].sum()


def _eigenvalues(matrix: Matrix) -> Array:
    return jnp.linalg.eigvals(jax.lax.stop_gradient(matrix))

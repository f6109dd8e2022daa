"""Importance weights, off-policy occupancy and off-policy gradient, and nothing else.

The trajectories were drawn under a behaviour policy theta_1, whose log-probabilities b_t they carry; `target` is
theta_2. With

    w_t(theta_2)   = exp( sum_{h<=t} [ log pi_theta_2(a_h|s_h) - b_h ] )
    u_hat(theta_2) = sum_t gamma^t w_t(theta_2) phi(s_t, a_t)

the gradient estimator is the derivative of <u_hat(theta_2), r>, because d w_t = w_t sum_{h<=t} d log pi_theta_2.
Under the "absorbing" convention the mass (gamma^tau - gamma^H) / (1 - gamma) that remains after termination at tau is
added with the weight of the last live step and the target's expectation of the features of the terminal state.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax.batch import Trajectories
from occupax.features import Count
from occupax.policies import Policy, PolicyType, refuse_unless_fitting, refuse_unless_policy
from occupax.problem import Problem


@eqx.filter_jit
def weights(trajectories: Trajectories, target: Policy) -> Float[Array, "B H"]:
    """The importance weights w_t of `target` (eq. defn:ratio); after the end, that of the last live step.

    They are capped at the square root of the largest float, far beyond any weight of use, so that a sum over a long
    horizon with far-apart policies stays finite.
    """
    refuse_unless_policy(target)
    log_probs = jax.vmap(jax.vmap(target.log_prob))(trajectories.observations, trajectories.actions)
    log_ratios = jnp.where(trajectories.live, log_probs - trajectories.log_probs, 0.0)
    cap = 0.5 * jnp.log(jnp.finfo(log_ratios.dtype).max)
    return jnp.exp(jnp.minimum(jnp.cumsum(log_ratios, 1), cap))


@eqx.filter_jit
def occupancy(problem: Problem, trajectories: Trajectories, target: Policy) -> Float[Array, " d"]:
    """The occupancy of `target` (eq. defn:weight-lambda-estimator), averaged over the batch."""
    return _accumulate(problem, trajectories, target, lambda counts, mass: counts.total(mass, problem.size))


@eqx.filter_jit
def gradient(
    problem: Problem, trajectories: Trajectories, target: PolicyType, quasi_reward: Float[Array, " d"]
) -> PolicyType:
    """The gradient of <occupancy of `target`, quasi_reward> (eq. defn:weight-Jacob-estimator), averaged.

    Returns:
        The derivative with respect to each array of `target`, in a policy of the same shape.
    """
    quasi_reward = jnp.asarray(quasi_reward)
    if quasi_reward.shape != (problem.size,):
        raise ValueError(f"quasi_reward must have length {problem.size}, got shape {quasi_reward.shape}.")

    def objective(policy: Policy) -> Float[Array, ""]:
        return _accumulate(
            problem, trajectories, policy, lambda counts, mass: jnp.sum(counts.inner(quasi_reward) * mass)
        )

    return eqx.filter_grad(objective)(target)


def _accumulate(
    problem: Problem,
    trajectories: Trajectories,
    target: Policy,
    add: Callable[[Count, Float[Array, "*batch"]], Array],
) -> Array:
    """Average over the batch of the weighted features, as `add` adds them up."""
    refuse_unless_fitting(target, problem.env)
    n, horizon = trajectories.actions.shape
    if horizon != problem.sampling_horizon():
        raise ValueError(f"trajectories must have the problem's horizon of {problem.horizon} steps, got {horizon}.")
    weight = weights(trajectories, target)
    discounts = problem.discount ** np.arange(horizon + 1)  # in float64: differences of them are taken below
    counts = jax.vmap(jax.vmap(problem.count))(trajectories.observations, trajectories.actions, trajectories.rewards)
    total = add(counts, jnp.asarray(discounts[:-1], weight.dtype) * weight * trajectories.live / n)
    if problem.termination == "absorbing":
        after = jnp.asarray((discounts - discounts[-1]) / (1 - problem.discount), weight.dtype)
        remaining = after[trajectories.lengths]
        mass = jnp.where(trajectories.terminated, remaining * weight[:, -1], 0.0) / n
        counts, probs = jax.vmap(lambda observation: _absorbed(problem, target, observation))(
            trajectories.final_observations
        )
        total = total + add(counts, probs * mass[:, None])
    return total


def _absorbed(problem: Problem, target: Policy, observation: Array) -> tuple[Count, Float[Array, " A"]]:
    """The features of each action in a terminal state, and the target's probability of taking it."""
    probs = target.probs(observation)
    actions = jnp.arange(problem.env.num_actions)
    rewards = jax.vmap(problem.reward_after_end, (None, 0))(observation, actions).astype(probs.dtype)
    return jax.vmap(problem.count, (None, 0, 0))(observation, actions, rewards), probs

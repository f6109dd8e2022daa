"""Importance weights, off-policy occupancy and off-policy gradient, and nothing else.

The trajectories were drawn under a behaviour policy theta_1, whose log-probabilities b_t they
carry; `target` is theta_2. With

    w_t(theta_2)   = exp( sum_{h<=t} [ log pi_theta_2(a_h|s_h) - b_h ] )
    u_hat(theta_2) = sum_t gamma^t w_t(theta_2) phi(s_t, a_t)

the gradient estimator is the derivative of <u_hat(theta_2), r>, because d w_t = w_t sum_{h<=t} d
log pi_theta_2. Under the "absorbing" convention the mass (gamma^tau - gamma^H) / (1 - gamma) that
remains after termination at tau is added with the weight of the last live step and the target's
expectation of the features of the terminal state.

The functions `..._of` are the formulas for trajectories with the log-probabilities of one target
policy (`scoring.Scored`).
"""

from operator import mul
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from occupax.baselines import AnyBaseline, Baseline, Regression, ReturnSums, read_baseline, regress
from occupax.features import Count
from occupax.policies import Policy, PolicyType, action_probs, check_policy_fits
from occupax.problem import Problem
from occupax.scoring import Scored
from occupax.trajectories import Trajectories


@eqx.filter_jit
def weights(trajectories: Trajectories, target: Policy) -> Float[Array, "B H"]:
    """Return the importance weights w_t of `target` (eq. defn:ratio).

    After the end of an episode, the weight is that of the last live step. Weights are capped at the
    square root of the largest float, so that sums over long horizons stay finite.

    Args:
        trajectories: trajectories of the behaviour policy.
        target: target policy.

    Returns:
        Weight of each trajectory and step.
    """
    return Scored(trajectories, target).weights()


@eqx.filter_jit
def occupancy(problem: Problem, trajectories: Trajectories, target: Policy) -> Float[Array, " d"]:
    """Return the occupancy of `target` (eq. defn:weight-lambda-estimator), averaged over the batch.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        target: target policy.

    Returns:
        Mean discounted sum of the features.
    """
    return occupancy_of(problem, Scored(trajectories, target))


@eqx.filter_jit
def gradient(
    problem: Problem,
    trajectories: Trajectories,
    target: PolicyType,
    quasi_reward: Float[Array, " d"],
    baseline: AnyBaseline = "none",
) -> PolicyType:
    """Return the mean gradient of <occupancy of `target`, quasi_reward>.

    This is the estimate of eq. defn:weight-Jacob-estimator.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        target: target policy.
        quasi_reward: one number for each feature.
        baseline: "mean" subtracts w_t b_t grad log pi(a_t|s_t) at every live step, where b_t is the
            mean return-to-go of the *other* trajectories of the batch from step t on. The estimate
            remains unbiased: b_t does not depend on the trajectory, and w_t corrects the
            expectation. Differences within rounding are zero, so that trajectories of equal return
            have no gradient. A `baselines.Fit` to earlier batches is subtracted first, and b_t is
            the mean of the remainder. `occupax.train` fits it for the setting "linear".

    Returns:
        The derivative with respect to each array of `target`, in a policy of the same shape.
    """
    return gradient_of(problem, Scored(trajectories, target), quasi_reward, read_baseline(baseline))


@eqx.filter_jit
def totals(
    problem: Problem, trajectories: Trajectories, policy: Policy, quasi_reward: Float[Array, " d"]
) -> Float[Array, " B"]:
    """Return <occupancy, quasi_reward> of each trajectory under the behaviour policy.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        policy: behaviour policy.
        quasi_reward: one number for each feature.

    Returns:
        One number for each trajectory.
    """
    parts = _returns(problem, Scored(trajectories, policy, on_policy=True), quasi_reward)
    return jnp.concatenate(parts, 1).sum(1)


@eqx.filter_jit
def regression(
    problem: Problem, trajectories: Trajectories, policy: Policy, quasi_reward: Float[Array, " d"]
) -> Regression:
    """Return the sums of a linear baseline for later batches, under the behaviour policy.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        policy: behaviour policy.
        quasi_reward: one number for each feature.

    Returns:
        Sums of the regression of the returns-to-go. `fit` computes the baseline.
    """
    return regression_of(problem, Scored(trajectories, policy, on_policy=True), quasi_reward)


@eqx.filter_jit
def fisher_vector(
    problem: Problem, trajectories: Trajectories, policy: PolicyType, vector: PolicyType
) -> PolicyType:
    """Return the Fisher information times a vector: mean sum_t gamma^t score_t <score_t, vector>.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        policy: behaviour policy.
        vector: one number for each parameter, as a policy.

    Returns:
        The product, as a policy.
    """
    params, static = eqx.partition(policy, eqx.is_inexact_array)

    def log_probs(params: PolicyType) -> Float[Array, "B H"]:
        return jnp.where(
            trajectories.live, eqx.combine(params, static).log_probs(trajectories), 0.0
        )

    _, along = jax.jvp(log_probs, (params,), (eqx.filter(vector, eqx.is_inexact_array),))
    discounts = problem.discount ** jnp.arange(along.shape[1], dtype=along.dtype)
    return jax.vjp(log_probs, params)[1](discounts * along / len(along))[0]


@eqx.filter_jit
def hessian_vector(
    problem: Problem,
    trajectories: Trajectories,
    policy: PolicyType,
    vector: PolicyType,
    quasi_reward: Float[Array, " d"],
    baseline: AnyBaseline = "none",
) -> tuple[Float[Array, " d"], PolicyType]:
    """Return the derivatives of the estimates of occupancy and gradient along a vector.

    The derivatives are those at the behaviour policy.

    Let D_t be the sum of the derivatives of log pi(a_h|s_h) along the vector up to step t. The
    derivative of the weight w_t is D_t. Therefore the reward of step t counts D_t times in the
    first order, and each log-probability has a second derivative.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        policy: behaviour policy.
        vector: one number for each parameter, as a policy.
        quasi_reward: one number for each feature.
        baseline: as in `gradient`, except "linear". The derivative of the subtracted term has mean
            zero, so that the estimates remain unbiased.

    Returns:
        Derivatives of the mean occupancy and of the mean gradient, the latter as a policy.
    """
    scored = Scored(trajectories, policy, on_policy=True)
    return hessian_vector_of(problem, scored, vector, quasi_reward, read_baseline(baseline))


def occupancy_of(problem: Problem, scored: Scored[Any]) -> Float[Array, " d"]:
    """Return the mean occupancy of scored trajectories.

    Args:
        problem: problem that the trajectories were sampled from.
        scored: trajectories with the log-probabilities of the target policy.

    Returns:
        Mean discounted sum of the features.
    """
    visits = _visits(problem, scored.trajectories, scored.target, scored.weights())
    total = sum(part.counts.total(part.mass, problem.size) for part in visits)
    return jnp.asarray(total) / scored.size


def gradient_of(
    problem: Problem,
    scored: Scored[PolicyType],
    quasi_reward: Float[Array, " d"],
    baseline: Baseline,
) -> PolicyType:
    """Return the mean gradient of <occupancy, quasi_reward> of scored trajectories.

    Args:
        problem: problem that the trajectories were sampled from.
        scored: trajectories with the log-probabilities of the target policy.
        quasi_reward: one number for each feature.
        baseline: as in `gradient`.

    Returns:
        The derivative with respect to each array of the target policy, as a policy.
    """
    trajectories = scored.trajectories

    def objective(target: PolicyType) -> Float[Array, ""]:
        log_ratios = scored.at(target).log_ratios()
        weights = jax.lax.stop_gradient(scored.weights_of(log_ratios))
        returns = _weighted_returns(problem, trajectories, target, weights, quasi_reward)
        to_go = _to_go(returns, trajectories.live)
        gains = baseline.gains(problem, trajectories, weights, to_go)
        total = jnp.sum(jax.lax.stop_gradient(gains) * log_ratios)
        after = sum(map(jnp.sum, returns[1:]))
        return (total + after) / scored.size

    return eqx.filter_grad(objective)(scored.target)


def return_sums_of(
    problem: Problem, scored: Scored[Any], quasi_reward: Float[Array, " d"], baseline: Baseline
) -> ReturnSums:
    """Return the sums of the returns-to-go, minus the fit of the baseline, for a mean baseline.

    Args:
        problem: problem that the trajectories were sampled from.
        scored: trajectories with the log-probabilities of the target policy.
        quasi_reward: one number for each feature.
        baseline: baseline whose fit is subtracted, if there is one.

    Returns:
        Sum of the returns-to-go and number of live trajectories at each step.
    """
    trajectories = scored.trajectories
    weights = scored.weights()
    returns = _weighted_returns(problem, trajectories, scored.target, weights, quasi_reward)
    to_go = _to_go(returns, trajectories.live)
    rest = baseline.without_fit(problem, trajectories, weights, to_go)
    return ReturnSums(rest.sum(0), trajectories.live.sum(0))


def regression_of(
    problem: Problem, scored: Scored[Any], quasi_reward: Float[Array, " d"]
) -> Regression:
    """Return the sums of a linear baseline for later batches.

    Args:
        problem: problem that the trajectories were sampled from.
        scored: trajectories with the log-probabilities of the behaviour policy.
        quasi_reward: one number for each feature.

    Returns:
        Sums of the regression of the returns-to-go.
    """
    trajectories = scored.trajectories
    to_go = _to_go(_returns(problem, scored, quasi_reward), trajectories.live)
    return regress(problem, trajectories.observations, to_go, trajectories.live)


def hessian_vector_of(
    problem: Problem,
    scored: Scored[PolicyType],
    vector: PolicyType,
    quasi_reward: Float[Array, " d"],
    baseline: Baseline,
) -> tuple[Float[Array, " d"], PolicyType]:
    """Return the derivatives of the estimates of occupancy and gradient along a vector.

    Args:
        problem: problem that the trajectories were sampled from.
        scored: trajectories with the log-probabilities of the behaviour policy.
        vector: one number for each parameter, as a policy.
        quasi_reward: one number for each feature.
        baseline: "none" or "mean".

    Returns:
        Derivatives of the mean occupancy and of the mean gradient, the latter as a policy.
    """
    if baseline.name == "linear":
        raise ValueError(
            'baseline must be "mean" or "none" for Hessian-vector products, got "linear".'
        )
    quasi_reward = _checked(problem, quasi_reward)
    trajectories = scored.trajectories
    live = trajectories.live
    params, static = eqx.partition(scored.target, eqx.is_inexact_array)
    tangent = eqx.filter(vector, eqx.is_inexact_array)
    unweighted = jnp.ones(live.shape, trajectories.log_probs.dtype)

    def visits_of(params: PolicyType) -> list[Visits]:
        return _visits(problem, trajectories, eqx.combine(params, static), unweighted)

    def masses_of(params: PolicyType) -> list[Float[Array, "B _"]]:
        return [visits.mass for visits in visits_of(params)]

    def derivatives(params: PolicyType) -> Any:
        policy = eqx.combine(params, static)
        log_probs, along = scored.scorer.log_probs_along(policy, vector, trajectories)
        masses, slopes = jax.jvp(masses_of, (params,), (tangent,))
        return jnp.where(live, log_probs, 0.0), jnp.where(live, along, 0.0), masses, slopes

    _, along, masses, slopes = derivatives(params)
    drift = jnp.cumsum(along, 1)
    drifts = [drift]
    if len(masses) > 1:
        drifts.append(drift[:, -1:])  # after the end the weight is that of the last live step
    moved = list(map(_moved, masses, drifts, slopes))
    total = 0.0
    rewards: list[Array] = []
    for visits, mass in zip(visits_of(params), moved, strict=True):
        total = total + visits.counts.total(mass, problem.size)
        rewards.append(visits.counts.inner(quasi_reward))
    to_go = _to_go(list(map(mul, rewards, masses)), live)
    first_order = _to_go(list(map(mul, rewards, moved)), live)
    if baseline.name == "mean":
        others = jnp.where(live, baseline.mean_of_others(to_go, live), 0.0)
        first_order = first_order - others * drift
        to_go = to_go - others

    def objective(params: PolicyType) -> Float[Array, ""]:
        log_probs, along, masses, slopes = derivatives(params)
        total = jnp.sum(first_order * log_probs + to_go * along)
        after = list(map(mul, rewards, map(_moved, masses, drifts, slopes)))[1:]
        return total + sum(map(jnp.sum, after))

    product = jax.grad(objective)(params)
    return jnp.asarray(total) / scored.size, jax.tree.map(lambda leaf: leaf / scored.size, product)


def _checked(problem: Problem, quasi_reward: Float[Array, " d"]) -> Float[Array, " d"]:
    quasi_reward = jnp.asarray(quasi_reward)
    if jnp.iscomplexobj(quasi_reward):
        raise ValueError(
            f"quasi_reward must be an array of real numbers, got {quasi_reward.dtype}."
        )
    if quasi_reward.shape != (problem.size,):
        raise ValueError(
            f"quasi_reward must have length {problem.size}, got shape {quasi_reward.shape}."
        )
    return quasi_reward


def step_features(problem: Problem, trajectories: Trajectories, policy: Policy) -> Count:
    """Return the features of each step, [B, H, k]. Arbitrary values after the end.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        policy: any policy with the action space of the behaviour policy.

    Returns:
        Entries of the feature vector of each step.
    """
    check_policy_fits(policy, problem.env)
    horizon = trajectories.actions.shape[1]
    if horizon != problem.sampling_horizon():
        raise ValueError(
            f"trajectories must have the problem's horizon of {problem.horizon} steps, "
            f"got {horizon}."
        )
    space = problem.env.action_space

    def act(sample: Array) -> Array:
        return space.clip(policy.applied(sample))

    actions = jax.vmap(jax.vmap(act))(trajectories.actions)
    steps = trajectories.observations, actions, trajectories.rewards, trajectories.info
    return jax.vmap(jax.vmap(problem.count))(*steps)


def terminal_features(problem: Problem, trajectories: Trajectories, policy: Policy) -> Count:
    """Return the expected features of the terminal state of each trajectory, [B, k].

    The features of a trajectory that did not terminate are zero.

    Args:
        problem: problem that the trajectories were sampled from.
        trajectories: trajectories of the behaviour policy.
        policy: policy whose action probabilities weight the features of each action.

    Returns:
        Entries of the feature vector of each trajectory.
    """
    absorbed = jax.vmap(lambda observation: _absorbed(problem, policy, observation))
    counts, probs = absorbed(trajectories.final_observations)
    weights = jnp.where(trajectories.terminated[:, None], probs, 0.0)
    values = counts.value * weights[..., None]
    rows = len(trajectories.terminated)
    return Count(counts.index.reshape(rows, -1), values.reshape(rows, -1))


class Visits(NamedTuple):
    """Features of steps, with their discounted mass."""

    counts: Count
    """Features of each step."""
    mass: Float[Array, "B _"]
    """Discount times importance weight of each step."""


def _moved(mass: Array, drift: Array, slope: Array) -> Array:
    """Return the derivative of a weighted mass, from the derivatives of weight and mass."""
    return mass * drift + slope


def _visits(
    problem: Problem, trajectories: Trajectories, target: Policy, weight: Float[Array, "B H"]
) -> list[Visits]:
    """Return the visits at each step and, if they count, after the end."""
    counts = step_features(problem, trajectories, target)
    horizon = trajectories.actions.shape[1]
    discounts = problem.discount ** np.arange(horizon + 1)  # float64, for the differences below
    mass = jnp.asarray(discounts[:-1], weight.dtype) * weight * trajectories.live
    visits = [Visits(counts, mass)]
    if problem.termination == "absorbing":
        after = jnp.asarray(_remaining_mass(problem.discount, horizon), weight.dtype)
        remaining = after[trajectories.lengths]
        mass = jnp.where(trajectories.terminated, remaining * weight[:, -1], 0.0)
        absorbed = jax.vmap(lambda observation: _absorbed(problem, target, observation))
        counts, probs = absorbed(trajectories.final_observations)
        visits.append(Visits(counts, probs * mass[:, None]))
    return visits


def _remaining_mass(discount: float, horizon: int) -> Float[np.ndarray, " H1"]:
    """Return the sum of discount^k over the steps from each step on to the horizon."""
    if discount == 1:
        return np.arange(horizon, -1.0, -1.0)
    discounts = discount ** np.arange(horizon + 1)
    return (discounts - discounts[-1]) / (1 - discount)


def _absorbed(
    problem: Problem, target: Policy, observation: Array
) -> tuple[Count, Float[Array, " A"]]:
    """Return the features of each action in a terminal state, and its probability."""
    probs = action_probs(target, observation, problem.env.num_actions)
    actions = jnp.arange(problem.env.num_actions)
    rewards = jax.vmap(problem.reward_after_end, (None, 0))(observation, actions).astype(
        probs.dtype
    )
    return jax.vmap(problem.count, (None, 0, 0))(observation, actions, rewards), probs


def _returns(
    problem: Problem, scored: Scored[Any], quasi_reward: Float[Array, " d"]
) -> list[Float[Array, "B _"]]:
    """Return the weighted, discounted quasi-reward of each step and, if absorbed, after the end."""
    return _weighted_returns(
        problem, scored.trajectories, scored.target, scored.weights(), quasi_reward
    )


def _weighted_returns(
    problem: Problem,
    trajectories: Trajectories,
    target: Policy,
    weights: Float[Array, "B H"],
    quasi_reward: Float[Array, " d"],
) -> list[Float[Array, "B _"]]:
    """Return the discounted quasi-reward of each step and after the end, times known weights."""
    quasi_reward = _checked(problem, quasi_reward)
    visits = _visits(problem, trajectories, target, weights)
    return [part.counts.inner(quasi_reward) * part.mass for part in visits]


def _to_go(returns: list[Float[Array, "B _"]], live: Bool[Array, "B H"]) -> Float[Array, "B H"]:
    """Return the return-to-go of each trajectory at each live step."""
    to_go = jnp.cumsum(returns[0][:, ::-1], 1)[:, ::-1] + sum(
        part.sum(1, keepdims=True) for part in returns[1:]
    )
    return jnp.where(live, to_go, 0.0)

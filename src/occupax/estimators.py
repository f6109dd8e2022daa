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
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from occupax._errors import unknown
from occupax.baselines import Fit, Regression, regress
from occupax.batch import AnyBaseline, Baseline, Earnings, Trajectories
from occupax.features import Count
from occupax.policies import Policy, PolicyType, action_probs, refuse_unless_fitting, refuse_unless_policy
from occupax.problem import Problem

ROUNDING = 100.0
"""How many units in the last place of what is earned count as no difference to the baseline."""

LogProbs = Callable[[Policy, Trajectories], Float[Array, "B H"]]
"""How the log-probabilities of a batch are computed: by the policy itself, or by a kernel that knows it."""

LogProbsAlong = Callable[[Policy, Policy, Trajectories], tuple[Float[Array, "B H"], Float[Array, "B H"]]]
"""The same for log-probabilities and their derivatives along a vector in the shape of the policy."""


def log_probs_along(
    policy: Policy, vector: Policy, trajectories: Trajectories
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    """The log-probabilities of a batch and their derivatives along a vector, by the policy itself."""
    moving, fixed = eqx.partition(policy, eqx.is_inexact_array)
    tangent = eqx.filter(vector, eqx.is_inexact_array)
    return jax.jvp(lambda moving: eqx.combine(moving, fixed).log_probs(trajectories), (moving,), (tangent,))


@eqx.filter_jit
def weights(
    trajectories: Trajectories, target: Policy, log_probs: LogProbs = Policy.log_probs, acted: bool = False
) -> Float[Array, "B H"]:
    """The importance weights w_t of `target` (eq. defn:ratio); after the end, that of the last live step.

    They are capped at the square root of the largest float, far beyond any weight of use, so that a sum over a long
    horizon with far-apart policies stays finite. If it is known that the target `acted`, they are 1.
    """
    return _weights(_log_ratios(trajectories, target, log_probs), acted)


@eqx.filter_jit
def occupancy(
    problem: Problem,
    trajectories: Trajectories,
    target: Policy,
    log_probs: LogProbs = Policy.log_probs,
    acted: bool = False,
) -> Float[Array, " d"]:
    """The occupancy of `target` (eq. defn:weight-lambda-estimator), averaged over the batch."""
    visits = _visits(problem, trajectories, target, weights(trajectories, target, log_probs, acted))
    total = sum(counts.total(mass, problem.size) for counts, mass in visits)
    return jnp.asarray(total) / len(trajectories.actions)


@eqx.filter_jit
def gradient(
    problem: Problem,
    trajectories: Trajectories,
    target: PolicyType,
    quasi_reward: Float[Array, " d"],
    baseline: AnyBaseline = "none",
    log_probs: LogProbs = Policy.log_probs,
    acted: bool = False,
) -> PolicyType:
    """The gradient of <occupancy of `target`, quasi_reward> (eq. defn:weight-Jacob-estimator), averaged.

    Args:
        problem: what the trajectories were drawn from.
        trajectories: the batch.
        target: the policy asked about.
        quasi_reward: one number for each feature.
        baseline: "mean" subtracts w_t b_t grad log pi(a_t|s_t) at every live step, where b_t is the mean of what the
            *other* trajectories of the batch still earn from step t on. It does not depend on the trajectory it is
            subtracted from, and the weight makes the expectation that of the target, so nothing is biased. A difference
            that is no more than rounding counts as zero, so that trajectories that all earn the same say nothing. A
            `baselines.Fit` to batches that were drawn before is subtracted first, and the mean is that of what it
            leaves; training makes one where "linear" is asked for. Where the trajectories are a part of a batch, the
            `earnings` of the whole of it.
        log_probs: how log-probabilities are computed.
        acted: whether it is known that the target is the policy that acted, so that its weights are 1.

    Returns:
        The derivative with respect to each array of `target`, in a policy of the same shape.
    """
    quasi_reward = _checked(problem, quasi_reward)
    if isinstance(baseline, str):
        if baseline not in get_args(Baseline):
            raise unknown("baseline", baseline, get_args(Baseline))
        if baseline == "linear":
            by_hand = "by hand, give estimators.regression(...).fit() of an earlier batch"
            raise ValueError(f"baseline 'linear' is fitted to earlier batches by occupax.train; {by_hand}.")

    def objective(policy: Policy) -> Float[Array, ""]:
        log_ratios = _log_ratios(trajectories, policy, log_probs)
        weight = jax.lax.stop_gradient(_weights(log_ratios, acted))
        earned, live = _earned(problem, trajectories, policy, weight, quasi_reward), trajectories.live
        gain = to_go = _to_go(earned, live)
        if baseline != "none":
            fit = baseline.fit if isinstance(baseline, Earnings) else baseline if isinstance(baseline, Fit) else None
            left = _without(fit, problem, trajectories, weight, to_go)
            whole = baseline if isinstance(baseline, Earnings) else Earnings(left.sum(0), live.sum(0))
            gain = left - weight * _mean_of_others(left, live, whole)
            gain = jnp.where(jnp.abs(gain) > ROUNDING * jnp.finfo(gain.dtype).eps * jnp.abs(to_go), gain, 0.0)
        total = jnp.sum(jax.lax.stop_gradient(gain) * log_ratios) + sum(jnp.sum(part) for part in earned[1:])
        return total / len(trajectories.actions)

    return eqx.filter_grad(objective)(target)


@eqx.filter_jit
def earnings(
    problem: Problem,
    trajectories: Trajectories,
    target: Policy,
    quasi_reward: Float[Array, " d"],
    fit: Fit | None = None,
    log_probs: LogProbs = Policy.log_probs,
    acted: bool = False,
) -> Earnings:
    """What the mean baseline of `gradient` is made of, which parts of a batch add up; the arguments are the same."""
    weight = weights(trajectories, target, log_probs, acted)
    earned = _earned(problem, trajectories, target, weight, _checked(problem, quasi_reward))
    to_go = _to_go(earned, trajectories.live)
    return Earnings(_without(fit, problem, trajectories, weight, to_go).sum(0), trajectories.live.sum(0))


@eqx.filter_jit
def totals(
    problem: Problem, trajectories: Trajectories, policy: Policy, quasi_reward: Float[Array, " d"]
) -> Float[Array, " B"]:
    """What each trajectory earns in all, <its occupancy, quasi_reward>, under the policy that acted."""
    on_policy = jnp.ones_like(trajectories.log_probs)
    earned = _earned(problem, trajectories, policy, on_policy, _checked(problem, quasi_reward))
    return jnp.concatenate(earned, 1).sum(1)


@eqx.filter_jit
def regression(
    problem: Problem, trajectories: Trajectories, policy: Policy, quasi_reward: Float[Array, " d"]
) -> Regression:
    """The sums of which a linear baseline for later batches is made, under the policy that acted."""
    on_policy = jnp.ones_like(trajectories.log_probs)
    earned = _earned(problem, trajectories, policy, on_policy, _checked(problem, quasi_reward))
    return regress(problem, trajectories.observations, _to_go(earned, trajectories.live), trajectories.live)


@eqx.filter_jit
def fisher_vector(problem: Problem, trajectories: Trajectories, policy: PolicyType, vector: PolicyType) -> PolicyType:
    """The Fisher information of the policy that acted times a vector: mean sum_t gamma^t score_t <score_t, vector>.

    Args:
        problem: what the trajectories were drawn from.
        trajectories: the batch.
        policy: the policy that acted in it.
        vector: one number for each parameter of the policy, in its shape.

    Returns:
        The product, in the shape of the policy.
    """
    moving, fixed = eqx.partition(policy, eqx.is_inexact_array)

    def log_probs(moving: PolicyType) -> Float[Array, "B H"]:
        return jnp.where(trajectories.live, eqx.combine(moving, fixed).log_probs(trajectories), 0.0)

    _, along = jax.jvp(log_probs, (moving,), (eqx.filter(vector, eqx.is_inexact_array),))
    discounts = problem.discount ** jnp.arange(along.shape[1], dtype=along.dtype)
    return jax.vjp(log_probs, moving)[1](discounts * along / len(along))[0]


@eqx.filter_jit
def hessian_vector(
    problem: Problem,
    trajectories: Trajectories,
    policy: PolicyType,
    vector: PolicyType,
    quasi_reward: Float[Array, " d"],
    baseline: AnyBaseline = "none",
    log_probs_along: LogProbsAlong = log_probs_along,
) -> tuple[Float[Array, " d"], PolicyType]:
    """The derivatives of the estimates of occupancy and gradient at the policy that acted, along a vector.

    With D_t the sum of the derivatives of log pi(a_h|s_h) along the vector up to step t, that of the weight w_t is D_t.
    So what is earned at step t counts D_t times in the first order, and each log-probability has a second derivative.

    Args:
        problem: what the trajectories were drawn from.
        trajectories: the batch.
        policy: the policy that acted in it.
        vector: one number for each parameter of the policy, in its shape.
        quasi_reward: one number for each feature.
        baseline: as in `gradient`, but not "linear"; what is subtracted has a derivative of mean zero, so nothing is
            biased.
        log_probs_along: how log-probabilities and their derivatives along the vector are computed.

    Returns:
        Both derivatives, averaged over the batch, the second in the shape of the policy.
    """
    if not isinstance(baseline, Earnings) and baseline not in ("none", "mean"):
        raise ValueError('baseline "linear" is not known for Hessian-vector products: take "mean" or "none".')
    quasi_reward, live = _checked(problem, quasi_reward), trajectories.live
    moving, fixed = eqx.partition(policy, eqx.is_inexact_array)
    tangent = eqx.filter(vector, eqx.is_inexact_array)
    unweighted = jnp.ones(live.shape, trajectories.log_probs.dtype)

    def masses_of(moving: PolicyType) -> list[Float[Array, "B _"]]:
        """The mass of each visit if all weights are 1."""
        return [mass for _, mass in _visits(problem, trajectories, eqx.combine(moving, fixed), unweighted)]

    def derivatives(moving: PolicyType) -> Any:
        log_probs, along = log_probs_along(eqx.combine(moving, fixed), vector, trajectories)
        masses, slopes = jax.jvp(masses_of, (moving,), (tangent,))
        return jnp.where(live, log_probs, 0.0), jnp.where(live, along, 0.0), masses, slopes

    _, along, masses, slopes = derivatives(moving)
    drift = jnp.cumsum(along, 1)
    drifts = [drift, drift[:, -1:]][: len(masses)]  # after the end the weight is that of the last live step
    counts = [count for count, _ in _visits(problem, trajectories, policy, unweighted)]
    moved = [mass * by + slope for mass, by, slope in zip(masses, drifts, slopes, strict=True)]
    total = sum(count.total(mass, problem.size) for count, mass in zip(counts, moved, strict=True))
    pays = [count.inner(quasi_reward) for count in counts]
    to_go = _to_go([pay * mass for pay, mass in zip(pays, masses, strict=True)], live)
    first_order = _to_go([pay * mass for pay, mass in zip(pays, moved, strict=True)], live)
    if baseline != "none":
        whole = baseline if isinstance(baseline, Earnings) else Earnings(to_go.sum(0), live.sum(0))
        others = jnp.where(live, _mean_of_others(to_go, live, whole), 0.0)
        to_go, first_order = to_go - others, first_order - others * drift

    def objective(moving: PolicyType) -> Float[Array, ""]:
        log_probs, along, masses, slopes = derivatives(moving)
        ends = zip(pays[1:], drifts[1:], masses[1:], slopes[1:], strict=True)
        after = [pay * (by * mass + slope) for pay, by, mass, slope in ends]
        return jnp.sum(first_order * log_probs + to_go * along) + sum(jnp.sum(part) for part in after)

    size = len(trajectories.actions)
    return jnp.asarray(total) / size, jax.tree.map(lambda leaf: leaf / size, jax.grad(objective)(moving))


def _checked(problem: Problem, quasi_reward: Float[Array, " d"]) -> Float[Array, " d"]:
    quasi_reward = jnp.asarray(quasi_reward)
    if jnp.iscomplexobj(quasi_reward):
        raise ValueError(f"quasi_reward must be an array of real numbers, got {quasi_reward.dtype}.")
    if quasi_reward.shape != (problem.size,):
        raise ValueError(f"quasi_reward must have length {problem.size}, got shape {quasi_reward.shape}.")
    return quasi_reward


def _log_ratios(trajectories: Trajectories, target: Policy, log_probs: LogProbs) -> Float[Array, "B H"]:
    """Log pi_target(a|s) - b at each step, zero after the end."""
    refuse_unless_policy(target)
    if target.action_space != trajectories.action_space:
        expected = f'of the kind that acted, "{trajectories.action_space}"'
        raise ValueError(f'target must be {expected}, got {type(target).__name__}, which is "{target.action_space}".')
    return jnp.where(trajectories.live, log_probs(target, trajectories) - trajectories.log_probs, 0.0)


def _weights(log_ratios: Float[Array, "B H"], acted: bool) -> Float[Array, "B H"]:
    if acted:
        return jnp.ones_like(log_ratios)
    cap = 0.5 * jnp.log(jnp.finfo(log_ratios.dtype).max)
    return jnp.exp(jnp.minimum(jnp.cumsum(log_ratios, 1), cap))


def _visits(
    problem: Problem, trajectories: Trajectories, target: Policy, weight: Float[Array, "B H"]
) -> list[tuple[Count, Float[Array, "B _"]]]:
    """Features and the discounted mass they are visited with: at each step and, if it counts, after the end."""
    refuse_unless_fitting(target, problem.env)
    horizon = trajectories.actions.shape[1]
    if horizon != problem.sampling_horizon():
        raise ValueError(f"trajectories must have the problem's horizon of {problem.horizon} steps, got {horizon}.")
    discounts = problem.discount ** np.arange(horizon + 1)  # in float64: differences of them are taken below
    actions = jax.vmap(jax.vmap(lambda drawn: problem.env.action_space.clip(target.applied(drawn))))(
        trajectories.actions
    )
    counts = jax.vmap(jax.vmap(problem.count))(
        trajectories.observations, actions, trajectories.rewards, trajectories.info
    )
    visits = [(counts, jnp.asarray(discounts[:-1], weight.dtype) * weight * trajectories.live)]
    if problem.termination == "absorbing":
        after = jnp.asarray((discounts - discounts[-1]) / (1 - problem.discount), weight.dtype)
        remaining = after[trajectories.lengths]
        mass = jnp.where(trajectories.terminated, remaining * weight[:, -1], 0.0)
        counts, probs = jax.vmap(lambda observation: _absorbed(problem, target, observation))(
            trajectories.final_observations
        )
        visits.append((counts, probs * mass[:, None]))
    return visits


def _absorbed(problem: Problem, target: Policy, observation: Array) -> tuple[Count, Float[Array, " A"]]:
    """The features of each action in a terminal state, and the target's probability of taking it."""
    probs = action_probs(target, observation, problem.env.num_actions)
    actions = jnp.arange(problem.env.num_actions)
    rewards = jax.vmap(problem.reward_after_end, (None, 0))(observation, actions).astype(probs.dtype)
    return jax.vmap(problem.count, (None, 0, 0))(observation, actions, rewards), probs


def _earned(
    problem: Problem,
    trajectories: Trajectories,
    target: Policy,
    weight: Float[Array, "B H"],
    quasi_reward: Float[Array, " d"],
) -> list[Float[Array, "B _"]]:
    """What is earned at each step and, if it counts, after the end."""
    return [counts.inner(quasi_reward) * mass for counts, mass in _visits(problem, trajectories, target, weight)]


def _to_go(earned: list[Float[Array, "B _"]], live: Bool[Array, "B H"]) -> Float[Array, "B H"]:
    """What each trajectory still earns from each live step on."""
    to_go = jnp.cumsum(earned[0][:, ::-1], 1)[:, ::-1] + sum(part.sum(1, keepdims=True) for part in earned[1:])
    return jnp.where(live, to_go, 0.0)


def _without(
    fit: Fit | None,
    problem: Problem,
    trajectories: Trajectories,
    weight: Float[Array, "B H"],
    to_go: Float[Array, "B H"],
) -> Float[Array, "B H"]:
    """What a fit, if there is one, leaves of what is earned from each live step on."""
    if fit is None:
        return to_go
    return jnp.where(trajectories.live, to_go - weight * fit.values(problem, trajectories.observations), 0.0)


def _mean_of_others(to_go: Float[Array, "B H"], live: Bool[Array, "B H"], whole: Earnings) -> Float[Array, "B H"]:
    """For each live step, what the others of the whole batch that take it earn from there on, on average."""
    return (whole.to_go - to_go) / jnp.maximum(whole.live - live, 1)

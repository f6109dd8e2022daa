"""PPO for general utilities: an actor-critic with quasi-rewards (Schulman et al., 2017)."""

from dataclasses import KW_ONLY, replace
from math import inf
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from occupax.algorithms.advantages import (
    combined_advantages,
    critic_features,
    ends_and_cuts,
    generalised_advantages,
    number_of_heads,
)
from occupax.algorithms.base import Algorithm, AlgorithmState, Budget, Output, Phase
from occupax.algorithms.critics import Critic, untrained_critic
from occupax.algorithms.fused import is_fusable, train_by_kernel
from occupax.algorithms.minibatches import (
    Descent,
    Learners,
    Samples,
    optimiser_of,
    train_by_minibatches,
    trainable,
)
from occupax.algorithms.updates import require_resolved, zero_gradient
from occupax.baselines import BaselineName
from occupax.batches import Batch, Steps
from occupax.errors import check_integer, check_number, check_share, is_traced
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Number, Radius, StepState, global_norm

CRITIC_SEED = 0
"""Seed of the initial weights of the critic, which all runs share."""
SCALE_DECAY = 0.9
"""Weight of the past in the running deviations of discounted sums."""
METRICS = ("kl", "ratio_clipped", "explained_variance", "epochs")


class PPOState(AlgorithmState):
    """Running occupancy, critic, scales and metrics of the last iteration."""

    occupancy_sum: Float[Array, " d"]
    """Weighted sum S of the occupancies of all episodes so far."""
    episode_sum: Float[Array, ""]
    """Weighted number n of all episodes so far."""
    critic: Critic
    variances: Float[Array, " m1"]
    """Running variances of the discounted sums of each feature and of the quasi-reward."""
    scales: Float[Array, " m1"]
    """Their roots, 1 before the first variance above 0."""
    episodes: Float[Array, ""]
    """Number of episodes so far."""
    steps: Float[Array, ""]
    """Number of environment steps so far."""
    diagnostics: Float[Array, "4"]
    """Values of `METRICS`."""


class PPO(Algorithm[PPOState]):
    """Proximal policy optimisation with the quasi-reward of a running occupancy as its reward.

        for k = 0, 1, ...:
            sample N episodes under theta_k
            S, n    = (1 - alpha) (S, n) + alpha (sum of u_hat, N)
            r       = grad F(S / n)
            rho_t   = <r, phi(s_t, a_t)>,  V = <r, psi>
            delta_t = rho_t + gamma_c (1 - end_t) V(s_{t+1}) - V(s_t)
            A_t     = delta_t + gamma_c lambda (1 - cut_t) A_{t+1}
            for each epoch and each minibatch of steps:
                theta = theta + eta Adam(grad mean kappa^t min(q_t A_t, clip(q_t, 1 -+ c) A_t))
                psi   = psi - eta Adam(grad mean (V(s_t) - target_t)^2)
                keep theta after an epoch with mean (q_t - 1 - log q_t) > max_kl

    q_t is the ratio of the probabilities of one action under theta and theta_k. The critic psi
    estimates the discounted sum of each feature if there are at most 8 (successor features).
    Otherwise it has one head for the objective and one for each constraint. Advantages of all terms
    are added before the sum is normalised. The step size falls linearly to 0 over the budget. The
    gradient of the state is the displacement of the policy.

    Args:
        batch: number of episodes of an iteration (N). Default: by problem, see `default_episodes`.
        mixing: weight of the newest batch in the occupancy (alpha), in (0, 1]. Default: 0.5.
        epochs: largest number of passes through the steps of a batch. Default: 10.
        minibatch: largest number of steps of a minibatch. Default: 32.
        trace: weight of long advantages (lambda), in [0, 1]. Default: 0.95.
        critic_discount: discount of the critic (gamma_c), in [0, 1). Default: that of the problem.
        step_discount: weight of a step relative to the one before (kappa), in [0, 1]. The discount
            of the problem gives the gradient. Default: 1, all steps alike.
        clip: largest change of a ratio that the surrogate rewards (c). Default: 0.2.
        max_kl: KL divergence from the behaviour policy that ends the epochs of the policy. The
            critic goes through all epochs. Default: 0.015.
        max_norm: largest norm of a gradient, of policy and critic separately. Default: 0.5.
        horizon_ends: whether nothing is earned after the horizon, which the critic then observes.
            Otherwise an episode that is truncated at the horizon has the value of its final
            observation in store. Default: False, and always True for a discount of 1.
        decay_episodes: number of episodes after which the step size is 0. Default: the budget.
        decay_steps: number of environment steps after which the step size is 0. Default: the
            budget.
        step_size: step size (eta). Default: 0.001, and 0.01 for tables.
        decay_after: number of iterations k_0 in a further decay, eta / sqrt(1 + k / k_0). Default:
            none.
        radius: bound of the norm of a displacement (delta), or "theory". Default: inf.
        rule: "adam" or an optax transformation. Default: "adam".
        baseline: no effect, because the critic is the baseline. Default: "mean".
        output: policy that training returns: "last", "uniform", "best" or "average". Default:
            "average" under constraints, otherwise "last".
    """

    estimates_gradient: ClassVar[bool] = False

    batch: int | None = eqx.field(static=True, default=None)
    _: KW_ONLY
    mixing: Number = 0.5
    epochs: int = eqx.field(static=True, default=10)
    minibatch: int = eqx.field(static=True, default=32)
    trace: Number = 0.95
    critic_discount: Number | None = None
    step_discount: Number = 1.0
    clip: Number = 0.2
    max_kl: Number = 0.015
    max_norm: Number = 0.5
    horizon_ends: bool = eqx.field(static=True, default=False)
    decay_episodes: Number | None = None
    decay_steps: Number | None = None
    step_size: Number | None = None
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="adam")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_integer("epochs", self.epochs)
        check_integer("minibatch", self.minibatch)
        check_share("mixing", self.mixing)
        for name in ("trace", "critic_discount", "step_discount"):
            _check_fraction(name, getattr(self, name))
        for name in ("clip", "max_kl", "max_norm", "decay_episodes", "decay_steps"):
            _check_positive(name, getattr(self, name))
        if not isinstance(self.horizon_ends, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"horizon_ends must be True or False, got {self.horizon_ends!r}.")
        if isinstance(self.rule, str) and self.rule != "adam":
            raise ValueError(
                f'rule must be "adam" or an optax transformation for PPO, got {self.rule!r}.'
            )

    @property
    def phases(self) -> tuple[Phase[PPOState], ...]:
        """N episodes in every iteration."""
        return (Phase(require_resolved("batch", self.batch), self._improve),)

    def resolve(self, problem: Problem, policy: Policy) -> Algorithm[PPOState]:
        """Return the algorithm with numbers for the hyperparameters that were left open."""
        algorithm = self
        if self.batch is None:
            algorithm = replace(algorithm, batch=default_episodes(problem))
        if self.critic_discount is None:
            algorithm = replace(algorithm, critic_discount=problem.discount)
        if problem.discount == 1:  # the horizon is a part of the objective
            algorithm = replace(algorithm, horizon_ends=True)
        if self.decay_after is None:
            algorithm = replace(algorithm, decay_after=inf)
        return Algorithm.resolve(algorithm, problem, policy)

    def for_budget(self, budget: Budget) -> Algorithm[PPOState]:
        """Return the algorithm with a step size that falls to 0 over a budget."""
        algorithm = self
        if self.decay_episodes is None:
            algorithm = replace(algorithm, decay_episodes=_float_or_inf(budget.episodes))
        if self.decay_steps is None:
            algorithm = replace(algorithm, decay_steps=_float_or_inf(budget.steps))
        return algorithm

    def step_size_for(self, policy: Policy) -> Number:
        """Return the step size for a policy, by default 0.01 for tables and 0.001 for networks."""
        if self.step_size is not None:
            return self.step_size
        if isinstance(policy, Tabular):
            return 0.01
        return 0.001

    def init(self, problem: Problem, policy: Policy) -> PPOState:
        """Return the state before the first iteration, with an untrained critic."""
        heads = number_of_heads(problem)
        critic = untrained_critic(problem.env, heads, jax.random.key(CRITIC_SEED))
        optimiser = optimiser_of(self.rule)
        moments = (optimiser.init(trainable(policy)), optimiser.init(trainable(critic)))
        zero = jnp.zeros(())
        return PPOState(
            policy=policy,
            occupancy=jnp.zeros(problem.size),
            gradient=zero_gradient(policy),
            memory=StepState(jnp.zeros((), jnp.int32), moments, jnp.zeros((), bool), zero),
            occupancy_sum=jnp.zeros(problem.size),
            episode_sum=zero,
            critic=critic,
            variances=jnp.zeros(heads + 1),
            scales=jnp.ones(heads + 1),
            episodes=zero,
            steps=zero,
            diagnostics=jnp.zeros(len(METRICS)),
        )

    def metrics(self, state: PPOState) -> dict[str, Float[Array, ""]]:
        """Return KL divergence, clipped ratios, explained variance and number of epochs."""
        return dict(zip(METRICS, state.diagnostics, strict=True))

    def _improve(self, state: PPOState, batch: Batch, key: Key[Array, ""]) -> PPOState:
        fresh_occupancy = batch.occupancy()
        return self._learn(state, batch.problem, fresh_occupancy, batch.steps(), key)

    @eqx.filter_jit  # outside a compiled program, separate operations would take longer
    def _learn(
        self,
        state: PPOState,
        problem: Problem,
        fresh_occupancy: Float[Array, " d"],
        steps: Steps,
        key: Key[Array, ""],
    ) -> PPOState:
        live = steps.live
        discount = require_resolved("critic_discount", self.critic_discount)
        state = self._with_occupancy(state, fresh_occupancy, len(live))
        features, coefficients = critic_features(
            problem, steps, state.occupancy, discount, not self.horizon_ends
        )
        ends, cuts = ends_and_cuts(live, steps.terminated, self.horizon_ends)
        state = _rescaled(state, features, coefficients, live, discount)
        remaining = jnp.zeros(live.shape[1] + 1)
        if self.horizon_ends:
            remaining = jnp.linspace(1.0, 0.0, live.shape[1] + 1)
        values = _values(state, steps, remaining)
        advantages = jax.vmap(generalised_advantages, (0, 0, 0, 0, None, None))(
            features, values, ends, cuts, discount, self.trace
        )
        targets = advantages + values[:, :-1]
        weights = self._weights(live)
        samples = Samples(
            observations=jax.tree.map(lambda rows: _by_step(rows[:, :-1]), steps.observations),
            remaining=_by_step(jnp.broadcast_to(remaining[:-1], live.shape)),
            actions=_by_step(steps.actions),
            log_probs=_by_step(steps.log_probs),
            advantages=_by_step(combined_advantages(advantages, coefficients, weights)),
            weights=_by_step(weights),
            targets=_by_step(targets) / state.scales[:-1],
        )
        learners = Learners(state.policy, state.critic, *state.memory.rule)
        train = train_by_minibatches
        if is_fusable(state.policy, self.rule):
            train = train_by_kernel
        descent = self._descent(state, coefficients)
        learners, trained = train(learners, samples, live.ravel(), descent, key)
        explained = _explained_variance(values[:, :-1], targets, coefficients, live)
        policy, memory = self._moved(state, learners)
        return replace(
            state,
            policy=policy,
            gradient=_difference(policy, state.policy),
            memory=memory,
            critic=learners.critic.observed(steps.observations[:, :-1], live),
            episodes=state.episodes + len(live),
            steps=state.steps + live.sum(),
            diagnostics=jnp.stack([trained[0], trained[1], explained, trained[2]]),
        )

    def _with_occupancy(
        self, state: PPOState, fresh_occupancy: Float[Array, " d"], episodes: int
    ) -> PPOState:
        """Return the state with a batch in the running occupancy, a ratio of sums."""
        keep = 1 - self.mixing
        added = self.mixing * episodes
        occupancy_sum = keep * state.occupancy_sum + added * fresh_occupancy
        episode_sum = keep * state.episode_sum + added
        return replace(
            state,
            occupancy=occupancy_sum / episode_sum,
            occupancy_sum=occupancy_sum,
            episode_sum=episode_sum,
        )

    def _weights(self, live: Bool[Array, "n H"]) -> Float[Array, "n H"]:
        """Return the weights kappa^t with mean 1 over the live steps, and 0 after the end."""
        times = jnp.arange(live.shape[1], dtype=jnp.result_type(float))
        weights = live * self.step_discount**times
        return weights * live.sum() / jnp.maximum(weights.sum(), jnp.finfo(weights.dtype).tiny)

    def _rate(self, state: PPOState) -> Float[Array, ""]:
        """Return the step size of an iteration."""
        size = self.step_size_for(state.policy)
        for number, total in (
            (state.episodes, self.decay_episodes),
            (state.steps, self.decay_steps),
        ):
            if total is not None:
                size = size * jnp.maximum(1 - number / total, 0.0)
        decay_after = self.decay_after
        if decay_after is None:
            decay_after = inf
        return size / jnp.sqrt(1 + state.memory.steps / decay_after)

    def _descent(self, state: PPOState, coefficients: Float[Array, " m"]) -> Descent:
        """Return the hyperparameters of the epochs of an iteration."""
        return Descent(
            rate=self._rate(state),
            clip=self.clip,
            max_kl=self.max_kl,
            max_norm=self.max_norm,
            head_weights=coefficients * state.scales[:-1] / state.scales[-1],
            epochs=self.epochs,
            minibatch=self.minibatch,
            rule=self.rule,
        )

    def _moved(self, state: PPOState, learners: Learners) -> tuple[Policy, StepState]:
        """Return the next policy, at most `radius` away, and the state of the optimisers."""
        radius = self.radius
        if isinstance(radius, str):
            raise ValueError(
                "radius must be a number outside occupax.train, got 'theory'. "
                "Use Algorithm.resolve."
            )
        displacement = _difference(learners.policy, state.policy)
        length = global_norm(displacement)
        clipped = length > radius
        shrink = jnp.where(clipped, radius / jnp.where(length > 0, length, 1.0), 1.0)
        truncated = jax.tree.map(lambda leaf: shrink * leaf, displacement)
        policy = eqx.apply_updates(state.policy, truncated)
        moments = (learners.policy_moments, learners.critic_moments)
        return policy, StepState(state.memory.steps + 1, moments, clipped, shrink * length)


def default_episodes(problem: Problem) -> int:
    """Return the default number of episodes of an iteration.

    A linear utility needs few, because its quasi-reward is constant.
    """
    if problem.utility.linear and not problem.constraints:
        return 5
    return 20


def _values(
    state: PPOState, steps: Steps, remaining: Float[Array, " H1"]
) -> Float[Array, "n H1 m"]:
    """Return the estimates of the critic at all observations, in units of the features."""
    along_time = jax.vmap(state.critic)
    heads = jax.vmap(along_time, (0, None))(steps.observations, remaining)
    return heads * state.scales[:-1]


def _rescaled(
    state: PPOState,
    features: Float[Array, "n H m"],
    coefficients: Float[Array, " m"],
    live: Bool[Array, "n H"],
    discount: Number,
) -> PPOState:
    """Return the state with the deviations of a batch, and a critic of the same estimates."""
    never = jnp.zeros(live.shape, bool)
    zeros = jnp.zeros((len(features), features.shape[1] + 1, features.shape[2]), features.dtype)
    sums = jax.vmap(generalised_advantages, (0, 0, 0, 0, None, None))(
        features, zeros, never, never, discount, 1.0
    )
    sums = jnp.concatenate([sums, (sums @ coefficients)[..., None]], -1)
    count = jnp.maximum(live.sum(), 1)
    means = jnp.sum(sums, (0, 1), where=live[..., None]) / count
    squares = jnp.sum((sums - means) ** 2, (0, 1), where=live[..., None]) / count
    keep = jnp.where(state.memory.steps == 0, 0.0, SCALE_DECAY)
    variances = keep * state.variances + (1 - keep) * squares
    scales = jnp.where(variances > 0, jnp.sqrt(variances), state.scales)
    critic = state.critic.scaled(state.scales[:-1] / scales[:-1])
    return replace(state, variances=variances, scales=scales, critic=critic)


def _explained_variance(
    values: Float[Array, "n H m"],
    targets: Float[Array, "n H m"],
    coefficients: Float[Array, " m"],
    live: Bool[Array, "n H"],
) -> Float[Array, ""]:
    """Return 1 minus the variance of the errors of the critic over that of its targets."""
    target = targets @ coefficients
    errors = jnp.var(target - values @ coefficients, where=live)
    total = jnp.var(target, where=live)
    return jnp.where(total > 0, 1 - errors / jnp.where(total > 0, total, 1.0), 0.0)


def _by_step(rows: Array) -> Array:
    """Return the steps of all trajectories one after the other."""
    return rows.reshape(-1, *rows.shape[2:])


def _difference(policy: Policy, other: Policy) -> Policy:
    return jax.tree.map(jnp.subtract, trainable(policy), trainable(other))


def _float_or_inf(number: int | None) -> float:
    if number is None:
        return inf
    return float(number)


def _check_fraction(name: str, number: Any) -> None:
    if number is None or is_traced(number):
        return
    if check_number(name, number, low=0.0) > 1:
        raise ValueError(f"{name} must be in [0, 1], got {number!r}.")


def _check_positive(name: str, number: Any) -> None:
    if number is None or is_traced(number) or number == inf:
        return
    check_number(name, number, low=0.0, open_low=True)

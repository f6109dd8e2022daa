"""One iteration of one run: update of the algorithm, choice of the output policy and metrics."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from occupax.algorithms import Algorithm, AlgorithmState, choose
from occupax.baselines import Regression, empty_sums
from occupax.batches import Batch, Statistics
from occupax.batches.caching import CachingBatch, is_same
from occupax.envs.actions import BoxActions
from occupax.policies import Policy, normaliser_of, with_statistics
from occupax.policies.saturation import OUTSIDE, SATURATED, draw_back
from occupax.problem import Problem
from occupax.steps import global_norm
from occupax.training.execution.multipliers import (
    Multipliers,
    default_gains,
    initial_multipliers,
    update_multipliers,
)

FAILURES = (
    "",
    "the gradient estimate is not finite",
    "the parameters are not finite",
    "the estimate of the occupancy or of its quasi-reward is not finite",
)
BATCH_METRICS = ("discounted_return", "episode_length", "largest_weight", "effective_sample_size")
STEP_METRICS = ("grad_norm", "step_length", "clipped")
COMMON_METRICS = (
    "utility",
    "running_utility",
    "return",
    *STEP_METRICS,
    "negative_occupancy",
    *BATCH_METRICS,
)
"""Metrics of every algorithm. docs/diagnosis.md explains each of them."""
RESERVED = ("actions_clipped", "feasible", "steps", "episodes", "seed", "exact_utility", "gap")
"""Names that are not available to metrics of algorithms, besides `COMMON_METRICS`."""

# No trajectory has these numbers, so that their random streams are free for other choices.
OUTPUT_STREAM = np.uint32(2**32 - 1)
UPDATE_STREAM = np.uint32(2**32 - 2)
BEHAVIOUR_STREAM = np.uint32(2**32 - 3)

AVERAGE_WEIGHT = 4.0
"""Weight of an iterate in the average of k iterates, times k, for output "average"."""


class Score(NamedTuple):
    """Criteria of output "best": lowest violation first, then highest utility."""

    violation: Float[Array, ""]
    utility: Float[Array, ""]


class RunState(eqx.Module):
    """State of one run, which has all that is needed to resume: one seed with one algorithm."""

    state: Any
    """State of the algorithm."""
    selected: Policy | None
    """Output policy so far. None for output "last"."""
    selected_score: Score
    """Score of the selected policy, for output "best"."""
    multipliers: Multipliers | None
    """Multipliers of the constraints, if the problem has any."""
    failure: Int[Array, ""]
    """Index in `FAILURES`, 0 if all values are finite."""
    failed_at: Int[Array, ""]
    """Number of the iteration that failed, if any."""
    regression: Regression | None = None
    """Sums that the linear baseline is fitted to, if the algorithm uses it."""

    @property
    def output(self) -> Policy:
        """Output policy of the run so far."""
        if self.selected is None:
            return self.state.policy
        return self.selected


class Update(eqx.Module):
    """Result of the update of an algorithm, before its values are checked."""

    state: Any
    """Next state of the algorithm."""
    regression: Regression | None
    """Next sums of the linear baseline."""
    occupancy: Float[Array, " d"]
    """Fresh occupancy estimate of the policy before the update."""
    statistics: Statistics
    trajectories: int | Float[Array, ""]
    """Number of trajectories of the batch."""


class IterationMetrics(eqx.Module):
    """Metrics of one iteration, in two arrays because every loop-carried array adds overhead."""

    values: Float[Array, " *runs M"]
    """Metrics in the order of `metric_names`."""
    steps: Int[Array, " *runs"]
    """Number of environment steps."""


def initial_run(problem: Problem, algorithm: Algorithm[Any], policy: Policy) -> RunState:
    """Return the state of a run before the first iteration."""
    state = algorithm.init(problem, policy)
    if not isinstance(state, AlgorithmState):
        raise ValueError(
            f"init of {type(algorithm).__name__} must return an "
            f"occupax.algorithms.AlgorithmState, got {type(state).__name__}."
        )
    selected = policy
    if algorithm.output in (None, "last"):
        selected = None
    dtype = state.occupancy.dtype
    regression = None
    if algorithm.baseline == "linear":
        regression = empty_sums(problem)
    return RunState(
        state=state,
        selected=selected,
        selected_score=Score(jnp.full((), jnp.inf, dtype), jnp.full((), -jnp.inf, dtype)),
        multipliers=initial_multipliers(problem),
        failure=jnp.zeros((), jnp.int32),
        failed_at=jnp.zeros((), jnp.int32),
        regression=regression,
    )


def metric_names(
    problem: Problem, algorithm: Algorithm[Any], own_metrics: Iterable[str]
) -> tuple[str, ...]:
    """Return the names of the metrics of an iteration, in the order of `IterationMetrics`.

    Args:
        problem: problem of the run.
        algorithm: algorithm of the run.
        own_metrics: names of the metrics that the algorithm adds.
    """
    names: list[str] = list(COMMON_METRICS)
    space = problem.env.action_space
    if isinstance(space, BoxActions) and space.bounded:
        names.append("actions_clipped")
    for prefix in ("multiplier", "violation"):
        names.extend(f"{prefix}/{constraint.name}" for constraint in problem.constraints)
    if problem.constraints and algorithm.output == "best":
        names.append("feasible")
    for name in sorted(own_metrics):  # JAX sorts the keys of a dictionary
        if name in COMMON_METRICS or name in RESERVED:
            raise ValueError(
                f"metrics of {type(algorithm).__name__} must not use the name {name!r}, which is "
                "reserved. Use another name."
            )
        names.append(name)
    return tuple(names)


def update_run(
    algorithm: Algorithm[Any],
    phase: int,
    run: RunState,
    draw: Callable[[Policy], Batch],
    key: Key[Array, ""],
) -> Update:
    """Return the update of an algorithm from a new batch.

    Args:
        algorithm: algorithm of the run.
        phase: index of the phase of the iteration.
        run: state of the run.
        draw: function of the behaviour policy that samples the batch.
        key: random key of the iteration.
    """
    chosen = algorithm.phases[phase]
    current = run.state.policy
    behaviour = chosen.behaviour(run.state, jax.random.fold_in(key, BEHAVIOUR_STREAM))
    sampled = draw(behaviour)
    problem = sampled.problem
    if run.multipliers is not None:
        problem = problem.lagrangian(run.multipliers.value)
    fit = None
    if run.regression is not None:
        fit = run.regression.fit()
    batch = CachingBatch(sampled, problem, fit)
    state = chosen.update(run.state, batch, jax.random.fold_in(key, UPDATE_STREAM))
    if normaliser_of(current) is not None:
        policy = with_statistics(state.policy, current, batch.observed(current))
        state = _with_policy(state, policy)
    statistics = _weighted_statistics(batch)
    regression = _updated_regression(run.regression, batch)
    target = current
    if is_same(behaviour, current):
        target = None
    return Update(state, regression, batch.occupancy(target), statistics, chosen.trajectories)


def _with_policy(state: Any, policy: Policy) -> Any:
    """Return a copy of the state of an algorithm with another policy."""
    return eqx.tree_at(lambda tree: tree.policy, state, policy)


def _weighted_statistics(batch: CachingBatch) -> Statistics:
    """Return statistics with the largest weight and the smallest sample size of all targets."""
    targets: list[Policy | None] = [*batch.targets]
    statistics = [batch.statistics(target) for target in targets or [None]]
    largest = reduce(jnp.maximum, [target.largest_weight for target in statistics])
    smallest = reduce(jnp.minimum, [target.effective_sample_size for target in statistics])
    return replace(statistics[0], largest_weight=largest, effective_sample_size=smallest)


def _updated_regression(regression: Regression | None, batch: CachingBatch) -> Regression | None:
    """Return the sums of the linear baseline with those of the last quasi-reward of the batch."""
    quasi_reward = batch.last_quasi_reward
    if regression is None or quasi_reward is None:
        return regression
    return regression.updated(batch.regression(quasi_reward))


def finish_iteration(
    problem: Problem,
    algorithm: Algorithm[Any],
    is_candidate: bool,
    run: RunState,
    update: Update,
    key: Key[Array, ""],
    iteration: Int[Array, ""],
    in_budget: bool | Bool[Array, ""] = True,
) -> tuple[RunState, IterationMetrics]:
    """Return the run after an update, and the metrics. A failed run keeps its last finite state.

    Args:
        problem: problem of the run.
        algorithm: algorithm of the run.
        is_candidate: whether the current policy is a candidate for output "best".
        run: state of the run before the update.
        update: update of the algorithm.
        key: random key of the iteration.
        iteration: number of the iteration.
        in_budget: whether the run had steps left before the iteration. Otherwise it is unchanged.
    """
    state = update.state
    utility = problem.estimated_utility(update.occupancy)
    multipliers = run.multipliers
    if multipliers is not None:
        saturation = update.statistics.saturated
        multipliers = update_multipliers(
            multipliers,
            problem,
            update.occupancy,
            update.trajectories,
            default_gains(state.policy),
            jnp.any(saturation > SATURATED),
        )
        policy = draw_back(state.policy, saturation > OUTSIDE)
        state = _with_policy(state, policy)
    score = _score(problem, utility, multipliers, update.trajectories)
    selected, selected_score = _select(algorithm.output, is_candidate, run, score, key, iteration)
    was_stopped = (run.failure > 0) | jnp.logical_not(in_budget)
    failure = jnp.where(was_stopped, run.failure, _failure(state))
    failed_at = jnp.where(was_stopped, run.failed_at, iteration)
    values = _metric_values(
        problem, algorithm, state, utility, update.statistics, multipliers, selected_score
    )
    is_stopped = was_stopped | (failure > 0)
    metrics = IterationMetrics(
        jnp.where(is_stopped, jnp.nan, values), jnp.where(is_stopped, 0, update.statistics.steps)
    )
    frozen = replace(run, failure=failure, failed_at=failed_at)
    finished = RunState(
        state, selected, selected_score, multipliers, failure, failed_at, update.regression
    )
    return choose(is_stopped, frozen, finished), metrics


def _score(
    problem: Problem,
    utility: Float[Array, ""],
    multipliers: Multipliers | None,
    trajectories: int | Float[Array, ""],
) -> Score:
    """Return the score of the current policy for output "best".

    Under constraints, both criteria are the worse of the last batch and the recent mean, because
    the mean lags behind the policy.
    """
    if multipliers is None:
        return Score(jnp.zeros_like(utility), utility)
    mean = multipliers.occupancy / multipliers.weight[0]
    mean_utility = problem.estimated_utility(mean)
    return Score(multipliers.violation(trajectories), jnp.minimum(utility, mean_utility))


def _select(
    output: str | None,
    is_candidate: bool,
    run: RunState,
    score: Score,
    key: Key[Array, ""],
    iteration: Int[Array, ""],
) -> tuple[Policy | None, Score]:
    """Return the output policy after an iteration and its score.

    "uniform": policy k replaces the selected one with probability 1 / k. "average": policy k has
    the weight 4 / k, so that the last half of the iterates has most of the weight (Shamir and
    Zhang, 2013). "best": the policy with the better score.
    """
    if run.selected is None or (output == "best" and not is_candidate):
        return run.selected, run.selected_score
    if output == "average":
        weight = jnp.minimum(1.0, AVERAGE_WEIGHT / (iteration + 1.0))
        return _mixed(weight, run.state.policy, run.selected), run.selected_score
    if output == "uniform":
        output_key = jax.random.fold_in(key, OUTPUT_STREAM)
        is_selected = jax.random.randint(output_key, (), 0, iteration + 1) == 0
    else:
        is_selected = _is_better(score, run.selected_score)
    selected = choose(is_selected, run.state.policy, run.selected)
    return selected, choose(is_selected, score, run.selected_score)


def _is_better(score: Score, other: Score) -> Bool[Array, ""]:
    """Return whether a score is better than another one."""
    is_equal = score.violation == other.violation
    return (score.violation < other.violation) | (is_equal & (score.utility > other.utility))


def _mixed(weight: Float[Array, ""], new: Policy, old: Policy) -> Policy:
    """Return a policy with weighted means of the parameters of two policies."""

    def mix(new_leaf: Any, old_leaf: Any) -> Any:
        if not eqx.is_inexact_array(old_leaf):
            return old_leaf
        return old_leaf + weight.astype(old_leaf.dtype) * (new_leaf - old_leaf)

    return jax.tree.map(mix, new, old)


def _metric_values(
    problem: Problem,
    algorithm: Algorithm[Any],
    state: Any,
    utility: Float[Array, ""],
    statistics: Statistics,
    multipliers: Multipliers | None,
    selected_score: Score,
) -> Float[Array, " M"]:
    """Return the metrics of an iteration in the order of `metric_names`."""
    metrics: dict[str, Any] = {
        "utility": utility,
        "running_utility": problem.estimated_utility(state.occupancy),
        "return": statistics.undiscounted_return,
        "grad_norm": global_norm(state.gradient),
        "step_length": state.memory.length,
        "clipped": state.memory.clipped,
        "negative_occupancy": jnp.mean(state.occupancy < 0, dtype=utility.dtype),
        "actions_clipped": statistics.actions_clipped,
        "feasible": selected_score.violation == 0,
    }
    for name in BATCH_METRICS:
        metrics[name] = getattr(statistics, name)
    if multipliers is not None:
        for i, constraint in enumerate(problem.constraints):
            metrics[f"multiplier/{constraint.name}"] = multipliers.value[i]
            metrics[f"violation/{constraint.name}"] = multipliers.excess[i]
    own_metrics = algorithm.metrics(state)
    metrics |= own_metrics
    values: list[Array] = []
    for name in metric_names(problem, algorithm, own_metrics):
        value = metrics[name]
        if jnp.shape(value):
            raise ValueError(
                f"the metric {name!r} must be a scalar, got an array of shape {jnp.shape(value)}."
            )
        values.append(jnp.asarray(value, utility.dtype))
    return jnp.stack(values)


def _failure(state: AlgorithmState) -> Int[Array, ""]:
    """Return the index in `FAILURES` of the first non-finite part of a state."""
    failure = jnp.zeros((), jnp.int32)
    for number, tree in ((3, state), (2, state.policy), (1, state.gradient)):
        leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
        failure = jnp.where(jnp.all(finite), failure, number)
    return failure

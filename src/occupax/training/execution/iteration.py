"""One iteration of one run: what a batch makes of it, and what is recorded."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax.algorithms import Algorithm, AlgorithmState, choose
from occupax.baselines import Regression, nothing_seen
from occupax.batches import Batch, Statistics
from occupax.batches.caching import CachingBatch, is_same
from occupax.envs.actions import BoxActions
from occupax.policies import Policy, normaliser_of, with_statistics
from occupax.policies.saturation import OUTSIDE, SATURATED, draw_back
from occupax.problem import Problem
from occupax.steps import global_norm
from occupax.training.execution.multipliers import Multipliers, first_multipliers, follow, gains

FAILURES = (
    "",
    "the gradient estimate is not finite",
    "the parameters are not finite",
    "the estimate of the occupancy or of its quasi-reward is not finite",
)

OF_BATCH = ("discounted_return", "episode_length", "largest_weight", "effective_sample_size")
OF_STEP = ("grad_norm", "step_length", "clipped")
RECORDED = ("utility", "running_utility", "return", *OF_STEP, "negative_occupancy", *OF_BATCH)
"""What is recorded of every algorithm; docs/records.md explains each number."""

OUTPUT, UPDATE, BEHAVIOUR = (np.uint32(2**32 - number) for number in (1, 2, 3))
"""Numbers that no trajectory has: their streams of random numbers are free for the choice of the
output, for the update and for the choice of who acts."""


AVERAGED = 4.0
"""See `_keep`."""


class Run(eqx.Module):
    """All that one run needs to go on: one seed with one set of hyper-parameters."""

    state: Any
    """The algorithm's own."""
    kept: Policy | None
    """The iterate that would be returned, if that is not the last one."""
    kept_score: tuple[Float[Array, ""], Float[Array, ""]]
    """For output "best": `_score` of the policy that is kept."""
    multipliers: Multipliers | None
    """Of the constraints, if the problem has any."""
    failure: Int[Array, ""]
    """Index into `FAILURES`: 0 as long as all is well."""
    failed_at: Int[Array, ""]
    """The iteration that could not be finished, if there is one."""
    regression: Regression | None = None
    """What the linear baseline, if that is asked for, is fitted to."""

    @property
    def output(self) -> Policy:
        """The policy that the run would return now."""
        return self.state.policy if self.kept is None else self.kept


class Row(eqx.Module):
    """What is recorded of one iteration, packed: each array of a loop costs time at every turn."""

    numbers: Float[Array, " *runs M"]
    """In the order of `recorded`."""
    steps: Int[Array, " *runs"]


def first_run(problem: Problem, algorithm: Algorithm[Any], policy: Policy) -> Run:
    """A run before its first iteration."""
    state = algorithm.init(problem, policy)
    if not isinstance(state, AlgorithmState):
        raise ValueError(
            f"init of {type(algorithm).__name__} must return an occupax.algorithms.AlgorithmState, got "
            f"{type(state).__name__}."
        )
    return Run(
        state=state,
        kept=None if algorithm.output in (None, "last") else policy,
        kept_score=(
            jnp.full((), jnp.inf, state.occupancy.dtype),
            jnp.full((), -jnp.inf, state.occupancy.dtype),
        ),
        multipliers=first_multipliers(problem),
        failure=jnp.zeros((), jnp.int32),
        failed_at=jnp.zeros((), jnp.int32),
        regression=nothing_seen(problem) if algorithm.baseline == "linear" else None,
    )


def recorded(problem: Problem, algorithm: Algorithm[Any], state: AlgorithmState) -> tuple[str, ...]:
    """The names of the numbers of a row."""
    own = tuple(eqx.filter_eval_shape(algorithm.metrics, state))
    reserved = (
        *RECORDED,
        "actions_clipped",
        "feasible",
        "steps",
        "episodes",
        "seed",
        "exact_utility",
        "gap",
    )
    taken = [name for name in own if name in reserved]
    if taken:
        raise ValueError(
            f"metrics of {type(algorithm).__name__} must not use the name {taken[0]!r}, which is taken."
        )
    return (
        RECORDED
        + _of_actions(problem)
        + _of_constraints(problem)
        + _of_output(problem, algorithm)
        + own
    )


def _of_constraints(problem: Problem) -> tuple[str, ...]:
    """What is recorded of each constraint."""
    return tuple(
        f"{what}/{one.name}" for what in ("multiplier", "violation") for one in problem.constraints
    )


def _of_output(problem: Problem, algorithm: Algorithm[Any]) -> tuple[str, ...]:
    """Return what is recorded of the policy that is kept for output "best", if there are constraints."""
    return ("feasible",) if problem.constraints and algorithm.output == "best" else ()


def _of_actions(problem: Problem) -> tuple[str, ...]:
    """What is recorded where actions have bounds."""
    space = problem.env.action_space
    return ("actions_clipped",) if isinstance(space, BoxActions) and space.bounded else ()


def iterate(
    algorithm: Algorithm[Any],
    phase: int,
    judging: bool,
    run: Run,
    draw: Callable[[Policy], Batch],
    key: Key[Array, ""],
    iteration: Int[Array, ""],
    conclude: Callable[..., tuple[Run, Row]] | None = None,
) -> tuple[Run, Row]:
    """Carry out one iteration of one run, which stays at its last good iterate if it fails, and say what is recorded.

    `judging` is whether the iteration tells how good the policy is, for output "best"; `draw` draws
    its batch under a policy; `conclude` is a compiled version of the end of the iteration.
    """
    chosen = algorithm.phases[phase]
    current = run.state.policy
    acting = chosen.behaviour(run.state, jax.random.fold_in(key, BEHAVIOUR))
    sampled = draw(acting)
    problem = sampled.problem
    ascended = problem if run.multipliers is None else problem.lagrangian(run.multipliers.value)
    fit = None if run.regression is None else run.regression.fit()
    batch = CachingBatch(sampled, ascended, fit)
    state = chosen.update(run.state, batch, jax.random.fold_in(key, UPDATE))
    if normaliser_of(current) is not None:
        policy = with_statistics(state.policy, current, batch.observed(current))
        state = eqx.tree_at(lambda it: it.policy, state, policy)
    statistics = _weighted_statistics(batch)
    regression = _updated_regression(run.regression, batch)
    fresh = batch.occupancy(None if is_same(acting, current) else current)
    outcome = state, regression, fresh, statistics, chosen.trajectories
    return (conclude or _conclude)(problem, algorithm, judging, run, *outcome, key, iteration)


def _weighted_statistics(batch: CachingBatch) -> Statistics:
    """Return averages, with the largest weight and the smallest effective sample size of all target policies."""
    targets: list[Policy | None] = [*batch.targets]
    statistics = [batch.statistics(target) for target in targets or [None]]
    largest = reduce(jnp.maximum, [it.largest_weight for it in statistics])
    smallest = reduce(jnp.minimum, [it.effective_sample_size for it in statistics])
    return replace(statistics[0], largest_weight=largest, effective_sample_size=smallest)


def _updated_regression(regression: Regression | None, batch: CachingBatch) -> Regression | None:
    """Return the sums for the next iteration; they are those of the last quasi-reward of a gradient."""
    quasi_reward = batch.last_quasi_reward
    if regression is None or quasi_reward is None:
        return regression
    return regression.later(batch.regression(quasi_reward))


def _conclude(
    problem: Problem,
    algorithm: Algorithm[Any],
    judging: bool,
    run: Run,
    state: Any,
    regression: Regression | None,
    fresh: Float[Array, " d"],
    statistics: Statistics,
    trajectories: int | Float[Array, ""],
    key: Key[Array, ""],
    iteration: Int[Array, ""],
) -> tuple[Run, Row]:
    """The run after an update, and what is recorded; `fresh` estimates the occupancy of the policy before it."""
    utility = problem.estimated_utility(fresh)
    multipliers = run.multipliers
    if multipliers is not None:
        saturated = jnp.any(statistics.saturated > SATURATED)
        multipliers = follow(
            multipliers, problem, fresh, trajectories, gains(state.policy), saturated
        )
        policy = draw_back(state.policy, statistics.saturated > OUTSIDE)
        state = eqx.tree_at(lambda tree: tree.policy, state, policy)
    score = _score(problem, utility, multipliers, trajectories)
    kept, kept_score = _keep(algorithm.output, judging, run, score, key, iteration)
    failed_before = run.failure > 0
    failure = jnp.where(failed_before, run.failure, _failure(state))
    failed_at = jnp.where(failed_before, run.failed_at, iteration)
    numbers = _numbers(problem, algorithm, state, utility, statistics, multipliers, kept_score[0])
    row = Row(jnp.where(failure > 0, jnp.nan, numbers), jnp.where(failure > 0, 0, statistics.steps))
    frozen = Run(
        run.state, run.kept, run.kept_score, run.multipliers, failure, failed_at, run.regression
    )
    return choose(
        failure > 0,
        frozen,
        Run(state, kept, kept_score, multipliers, failure, failed_at, regression),
    ), row


conclude = eqx.filter_jit(_conclude)
"""The end of an iteration as a program of its own, for runs outside of the compiled program."""


def _score(
    problem: Problem,
    utility: Float[Array, ""],
    multipliers: Multipliers | None,
    trajectories: int | Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the violation and the utility by which output "best" compares policies.

    With constraints, both are the worse of the last batch and the recent mean: the mean lags behind
    the policy.
    """
    if multipliers is None:
        return jnp.zeros_like(utility), utility
    mean = multipliers.occupancy / multipliers.weight[0]
    return multipliers.violation(trajectories), jnp.minimum(
        utility, problem.estimated_utility(mean)
    )


def _keep(
    output: str | None,
    judging: bool,
    run: Run,
    score: tuple[Float[Array, ""], Float[Array, ""]],
    key: Key[Array, ""],
    iteration: Int[Array, ""],
) -> tuple[Policy | None, tuple[Float[Array, ""], Float[Array, ""]]]:
    """The policy to return, if it is not the last, with its score: the one kept so far, or the present one.

    For "uniform", the k-th of k policies takes the place of the one that is kept with probability
    1/k. For "average", it counts for 4 / k of the average, so that the last half has nearly all of
    the weight (Shamir and Zhang 2013). For "best", violations are compared first and, where they
    are alike, estimated utilities.
    """
    if run.kept is None or (output == "best" and not judging):
        return run.kept, run.kept_score
    if output == "average":
        share = jnp.minimum(1.0, AVERAGED / (iteration + 1.0))
        return _mixed(share, run.state.policy, run.kept), run.kept_score
    if output == "uniform":
        chosen = jax.random.randint(jax.random.fold_in(key, OUTPUT), (), 0, iteration + 1) == 0
    else:
        (excess, utility), (kept_excess, kept_utility) = score, run.kept_score
        chosen = (excess < kept_excess) | ((excess == kept_excess) & (utility > kept_utility))
    return choose(chosen, run.state.policy, run.kept), choose(chosen, score, run.kept_score)


def _mixed(share: Float[Array, ""], new: Policy, old: Policy) -> Policy:
    """A policy whose parameters are a mean of those of two, with a share for the new ones."""
    return jax.tree.map(
        lambda a, b: b + share.astype(b.dtype) * (a - b) if eqx.is_inexact_array(b) else b, new, old
    )


def _numbers(
    problem: Problem,
    algorithm: Algorithm[Any],
    state: Any,
    utility: Float[Array, ""],
    statistics: Statistics,
    multipliers: Multipliers | None,
    kept_violation: Float[Array, ""],
) -> Float[Array, " M"]:
    numbers = {
        "utility": utility,
        "running_utility": problem.estimated_utility(state.occupancy),
        "return": statistics.undiscounted_return,
        "grad_norm": global_norm(state.gradient),
        "step_length": state.memory.length,
        "clipped": state.memory.clipped,
        "negative_occupancy": jnp.mean(state.occupancy < 0, dtype=utility.dtype),
        **{name: getattr(statistics, name) for name in OF_BATCH + _of_actions(problem)},
        **(
            {}
            if multipliers is None
            else dict(
                zip(
                    _of_constraints(problem),
                    jnp.concatenate([multipliers.value, multipliers.excess]),
                    strict=True,
                )
            )
        ),
        **dict.fromkeys(
            _of_output(problem, algorithm), (kept_violation == 0).astype(utility.dtype)
        ),
        **algorithm.metrics(state),
    }
    for name, number in numbers.items():
        if jnp.shape(number):
            raise ValueError(
                f"the metric {name!r} must be one number, got an array of shape {jnp.shape(number)}."
            )
    return jnp.stack([jnp.asarray(number, utility.dtype) for number in numbers.values()])


def _failure(state: AlgorithmState) -> Int[Array, ""]:
    """Index into `FAILURES`: of the gradient, the parameters or anything else in the state."""
    found = jnp.zeros((), jnp.int32)
    for number, tree in (
        (3, state),
        (2, state.policy),
        (1, state.gradient),
    ):  # the first failure counts
        leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
        found = jnp.where(jnp.all(finite), found, number)
    return found

"""Rules that detect problems of a training run from its metrics and the evaluation of its policies.

docs/diagnosis.md has a section for each kind of finding. A healthy run has no findings: each rule
requires a clear effect, and rules on noisy numbers an effect beyond the noise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occupax.algorithms import Algorithm
from occupax.analysis.run_statistics import (
    GOOD,
    MAX_ESTIMATED_VIOLATION,
    MAX_EXACT_VIOLATION,
    MIN_ITERATIONS,
    ROUNDING,
    WINDOWS,
    RunStatistics,
    costs_vanish,
    may_end,
)
from occupax.analysis.verdict import last_entries, share_text, short, told_apart
from occupax.envs.base import DecisionProcess
from occupax.exact.evaluation import utility_gradient
from occupax.features import VISITS, Feature, Stack
from occupax.outcome import Assessment, Finding, Outcome
from occupax.problem import Problem
from occupax.training.schedule import Schedule

DROP = 4.0
"""Standard errors of a collapse. The best of ten windows is high by chance."""
HALF = 0.5
"""Fraction of the gain that a collapse loses, or of the optimality gap between two seeds."""
OFTEN = 0.1
"""Fraction of updates with large weights, or of negative entries. Healthy runs have up to 0.02."""
LARGE_WEIGHT = 4.0
"""Importance weight that is large even in a batch of one or two trajectories."""
HUGE = 0.1
"""Fraction of the square root of the largest float from which on squared gradients overflow."""
SATURATED = 0.9
"""Fraction of clipped actions from which on the gradient of the mean almost vanishes."""

EXPLORE = "a utility that rewards exploration too, such as Reward() + 0.1 * Entropy()"


def diagnose(outcome: Outcome, assessment: Assessment) -> tuple[Finding, ...]:
    """Return the findings about a run, with at most one reason for missing progress.

    Args:
        outcome: The run.
        assessment: Evaluation of its policies.

    Returns:
        The findings, none for a healthy run.
    """
    run = RunStatistics(outcome, assessment)
    overflow = _overflow(run)
    if overflow is not None:
        return (overflow,)
    findings: list[Finding] = []
    for rule in REASONS:
        finding = rule(run)
        if finding is not None:
            findings.append(finding)
            break
    for rule in RULES:
        finding = rule(run)
        if finding is not None:
            findings.append(finding)
    return tuple(findings)


def learned(outcome: Outcome, assessment: Assessment) -> bool:
    """Return False for a run without progress, see `RunStatistics.no_progress`."""
    return RunStatistics(outcome, assessment).no_progress is None


def steep_utility(problem: Problem) -> Finding | None:
    """Return a finding about a utility whose gradient is not finite at unvisited entries."""
    if np.isfinite(problem.utility.smoothness.gradient_bound):
        return None
    sparse_occupancy = _first_entry_only(problem.features, problem.env)
    if np.isfinite(utility_gradient(problem.utility, sparse_occupancy)).all():
        return None
    return Finding(
        "infinite-gradient",
        f"the gradient of the utility {type(problem.utility).__name__} is not finite at "
        "unvisited entries of the occupancy, which every small batch has.",
        "a small number that keeps it finite, such as log(u + sigma) instead of log(u), "
        "sqrt(u + sigma) instead of sqrt(u), or Entropy(smoothing=1e-6).",
    )


def _first_entry_only(feature: Feature, env: DecisionProcess) -> Float[np.ndarray, " d"]:
    """Return an occupancy with visits of the first state, cell or pair only.

    The entries of features that do not count visits are one.
    """
    if isinstance(feature, Stack):
        return np.concatenate([_first_entry_only(part, env) for part in feature.parts])
    occupancy = np.ones(feature.size(env))
    if isinstance(feature, VISITS):
        occupancy[1:] = 0.0
    return occupancy


def _steep(run: RunStatistics) -> Finding | None:
    if run.outcome.problem is None:
        return None
    return steep_utility(run.outcome.problem)


def _overflow(run: RunStatistics) -> Finding | None:
    """Return a finding about runs whose utility, or its square, is too large for a float."""
    stopped = [status for status in run.outcome.status if status.startswith("stopped")]
    seeds = _seeds_text(run, [status in stopped for status in run.outcome.status])
    is_double = bool(run.outcome.config["versions"].get("float64"))
    precision = "float32"
    if is_double:
        precision = "float64"
    largest = float(np.finfo(precision).max)
    utilities = np.abs([*run.assessment.utilities, run.references.first])
    size = np.max(utilities[~np.isnan(utilities)], initial=0.0)
    if seeds is None or size < HUGE * np.sqrt(largest):
        return None
    size_text = f"more than {largest:.1e}"
    if np.isfinite(size):
        size_text = f"about {size:.0e}"
    cause = "the values of the utility are too large"
    if run.counts_reward:
        cause = "the rewards are too large"
    alternative = "; or JAX_ENABLE_X64=1, which computes in float64"
    if is_double:
        alternative = ""
    return Finding(
        "overflow",
        f"{cause}: the utility of a policy is {size_text}, and the estimates overflowed "
        f"{precision}, whose largest number, {largest:.1e}, has to hold squares too; "
        f"training{seeds} {stopped[0]}.",
        "a utility divided by its size, such as 1e-30 * Reward() for rewards of 1e30"
        f"{alternative}.",
    )


def _reward_unseen(run: RunStatistics) -> Finding | None:
    is_unrewarded = [bool(row.size) and not row.any() for row in run.entries("return")]
    seeds = _seeds_text(run, is_unrewarded)
    if not run.counts_reward or seeds is None:
        return None
    return Finding(
        "reward-unseen",
        f"no episode received any reward{seeds}, in {run.outcome.episodes[-1]:,} episodes.",
        f"{_explore(run)}; a longer horizon; more episodes; or a reward for intermediate steps.",
    )


def _all_truncated(run: RunStatistics) -> Finding | None:
    problem = run.outcome.problem
    if problem is None or not run.counts_reward or run.references.share(run.median) >= GOOD:
        return None
    horizon = problem.sampling_horizon()
    returns = run.entries("return")
    is_truncated: list[bool] = []
    for lengths, seed_returns in zip(run.entries("episode_length"), returns, strict=True):
        reaches_horizon = bool(lengths.size) and bool((lengths >= horizon).all())
        # truncation is no fault where no episode can terminate
        is_truncated.append(reaches_horizon and may_end(problem, seed_returns))
    seeds = _seeds_text(run, is_truncated)
    if seeds is None:
        return None
    last_return = float(np.mean([row[-1] for row in returns if row.size]))
    remark = ""
    if all(costs_vanish(row) for row in returns if row.size):
        first_return = float(np.mean([row[0] for row in returns if row.size]))
        remark = f", up from {short(first_return)}: the policies learned to spend less and no more"
    return Finding(
        "horizon",
        f"every episode was truncated at the horizon of {horizon:,} steps{seeds}: none "
        "terminated, so that a goal that ends an episode was never reached, and the return of "
        f"the last records is {short(last_return)}{remark}.",
        f"a longer horizon, if the environment allows it; {_explore(run)}; or more episodes.",
    )


def _zero_gradient(run: RunStatistics) -> Finding | None:
    if run.references.share(run.references.first) >= GOOD:
        return None
    threshold = 1.0 - 1e-9
    if run.no_progress:
        threshold = HALF
    fractions = [_mean(row == 0) for row in run.entries("grad_norm")]
    seeds = _seeds_text(run, [fraction > threshold for fraction in fractions])
    if seeds is None:
        return None
    remark = ""
    if run.counts_reward:
        unrewarded = _mean(np.concatenate(run.entries("return")) == 0)
        remark = share_text(unrewarded, "; {} of all records have no reward at all")
    return Finding(
        "zero-gradient",
        f"the gradient was exactly 0 in {share_text(max(fractions))} of the records{seeds}: the "
        f"policy did not change{remark}.",
        f"a larger batch, which observes more; {_explore(run)}, if the reward is rare; and a check "
        "whether the utility can change (it is constant inside a set that has been reached), and "
        "whether the policy still tries all actions.",
    )


def _no_progress(run: RunStatistics) -> Finding | None:
    # collapsed seeds did make progress, and `_collapse` reports them
    collapsed = [seed for seed in range(len(run.curves)) if _fall(run, seed) is not None]
    if run.no_progress is None or len(collapsed) >= HALF * len(run.curves):
        return None
    algorithm = run.outcome.algorithm
    if not getattr(algorithm, "estimates_gradient", True):
        setting = "larger step_size"
        if hasattr(algorithm, "explore"):
            setting = "larger explore"
        advice = f"more episodes; a {setting}; or {_explore(run)}."
        return Finding("no-progress", f"{run.no_progress}.", advice)
    clipped = _mean(np.concatenate(run.entries("clipped")))
    sentence = f"{run.no_progress}; {_step_text(run)}{share_text(clipped)} of the steps"
    return Finding(
        "no-progress",
        f"{sentence} were truncated by the radius.",
        f"{_longer_steps(algorithm, clipped)}; {_less_noise(algorithm)}, against noise; "
        "more episodes.",
    )


def _explore(run: RunStatistics) -> str:
    """Return the advice that makes a policy explore, which the utility may do already."""
    problem = run.outcome.problem
    if problem is not None and run.counts_reward and _counts_visits(problem.features):
        return "a larger weight of the term that rewards exploration"
    return EXPLORE


def _counts_visits(feature: Feature) -> bool:
    """Return whether some feature counts visits."""
    if isinstance(feature, Stack):
        return any(map(_counts_visits, feature.parts))
    return isinstance(feature, VISITS)


def _less_noise(algorithm: Algorithm[Any] | None) -> str:
    """Return the advice that lowers the noise of gradient estimates."""
    if getattr(algorithm, "baseline", "none") == "none":
        return "baseline='mean' or a larger batch"
    return "a larger batch"


def _steadier(algorithm: Algorithm[Any] | None) -> str:
    """Return the advice against a collapse, without settings that are in force."""
    advice = ["a smaller step_size or radius"]
    if getattr(algorithm, "weight_guard", None) == 0:
        advice.append("weight_guard=0.5")
    if getattr(algorithm, "output", None) != "best":
        advice.append("output='best', which returns the best observed policy")
    return "; ".join(advice) + "."


def _step_text(run: RunStatistics) -> str:
    """Return the median norms of gradient estimates and steps in words, as far as logged."""
    text = ""
    norms = np.concatenate(run.entries("grad_norm"))
    if norms.size:
        text += f"the median norm of the gradient estimates is {short(float(np.median(norms)))}, "
    steps = np.concatenate(run.entries("step_length"))
    if steps.size:
        text += f"that of the steps {short(float(np.median(steps)))}, "
    return text


def _longer_steps(algorithm: Algorithm[Any] | None, clipped: float) -> str:
    """Return the advice that makes steps longer."""
    if clipped > HALF:
        return "a larger radius"
    if getattr(algorithm, "rule", None) == "gradient":
        return (
            "rule='adam', whose steps do not depend on the size of the utility, "
            "or a larger step_size"
        )
    return "a larger step_size"


def _collapse(run: RunStatistics) -> Finding | None:
    falls = [_fall(run, seed) for seed in range(len(run.curves))]
    known_falls = [fall for fall in falls if fall is not None]
    seeds = _seeds_text(run, [fall is not None for fall in falls])
    if not known_falls or seeds is None:
        return None
    deepest = max(known_falls, key=lambda fall: fall.start - fall.end)
    start, end = told_apart(deepest.start, deepest.end)
    remark = ""
    if seeds:
        remark = ", at worst"
    return Finding(
        "collapse",
        f"the utility fell{seeds}{remark} from {start} {deepest.origin} to {end} at the end.",
        _steadier(run.outcome.algorithm),
    )


class Fall(NamedTuple):
    """Utilities of a seed before and after a collapse."""

    start: float
    origin: str
    """The policy or part of the run with the utility `start`, in words."""
    end: float


def _fall(run: RunStatistics, seed: int) -> Fall | None:
    """Return the collapse of a seed below its initial policy, or by most of its gain.

    Only policies that are as feasible as the returned one are compared with it.
    """
    windows = run.windows(seed)
    utility = float(run.assessment.utilities[seed])
    feasible = [window for window in windows if window.violation <= run.allowed[seed]]
    if not feasible or run.iterations < MIN_ITERATIONS:
        return None
    initial = run.references.first
    best = max(feasible, key=lambda window: window.mean)
    last = windows[-1]
    rounding = ROUNDING * max(abs(best.mean), abs(utility))
    little = float(np.nan_to_num((1 - GOOD) * run.references.way))
    threshold = max(little, best.noise, last.noise, rounding)
    if run.compares_with_first(seed) and initial - utility > max(threshold, windows[0].noise):
        return Fall(initial, "of the first policy", utility)
    gain = best.mean - feasible[0].mean
    loss = best.mean - last.mean
    if feasible[0] is not windows[0] and gain <= threshold:
        return None  # the loss is the price of the constraints
    if utility >= best.mean - HALF * gain:
        return None  # the returned policy is an earlier one, from before the loss
    error = float(np.hypot(best.error, last.error))
    if loss <= max(HALF * gain, DROP * error, threshold):
        return None
    return Fall(best.mean, "in the best tenth of the training", last.mean)


def _weights(run: RunStatistics) -> Finding | None:
    """Return a finding about importance weights that are out of bounds, or always guarded."""
    algorithm = run.outcome.algorithm
    largest_weights = run.outcome.metrics.get("largest_weight", np.ones(0))
    if algorithm is None or not np.any(largest_weights > 1):
        return None
    batch = min(Schedule(algorithm).sizes)
    smallest_size = float(np.nanmin(run.outcome.metrics["effective_sample_size"]))
    numbers = (
        f"the largest weight is {short(float(np.nanmax(largest_weights)))}, the smallest effective "
        f"sample size {short(smallest_size)}, in batches of {batch}."
    )
    advice = (
        "a smaller step_size or radius, which keeps successive policies closer; a larger batch; "
        "or REINFORCE, which needs no weights."
    )
    if "restarted" in run.outcome.metrics:
        fraction = _restarted_fraction(run, algorithm)
        if fraction <= HALF or not (run.no_progress or _collapse(run)):
            return None
        sentence = (
            f"{share_text(fraction)} of the recursive updates were replaced by on-policy "
            f"estimates, because their importance weights are unusable: {numbers}"
        )
        return Finding("weights", sentence, advice)
    bound = max(float(batch), LARGE_WEIGHT)
    fraction = _large_weight_fraction(run, bound)
    if fraction <= OFTEN:
        return None
    sentence = (
        f"in {share_text(fraction)} of the recursive updates an importance weight is above "
        f"{bound:g}, so that one trajectory counts as much as a batch should: {numbers}"
    )
    guard = "weight_guard=0.5, which replaces such estimates by on-policy ones"
    return Finding("weights", sentence, f"{guard}; {advice}")


def _restarted_fraction(run: RunStatistics, algorithm: Any) -> float:
    """Return the fraction of recursive updates that the weight guard replaced, by trajectories."""
    trajectories = np.diff(run.outcome.episodes, prepend=0)
    restarted = np.nan_to_num(run.outcome.metrics["restarted"]) * trajectories
    fraction = float(restarted.sum() / (len(restarted) * trajectories.sum()))
    if not hasattr(algorithm, "epoch_length"):
        return fraction
    recursive = max(algorithm.batch * (algorithm.epoch_length - 1), 1)
    return fraction * (1 + algorithm.snapshot_batch / recursive)


def _large_weight_fraction(run: RunStatistics, bound: float) -> float:
    """Return the fraction of weighted updates with a weight above a bound.

    A log entry has the largest weight of its iterations.
    """
    largest_weights = np.concatenate(run.entries("largest_weight"))
    is_large = largest_weights[largest_weights != 1] > bound
    iterations = run.outcome.config["setup"]["record_every"]
    return 1 - (1 - float(np.mean(is_large))) ** (1 / iterations)


def _outside_domain(run: RunStatistics) -> Finding | None:
    problem = run.outcome.problem
    if problem is None:
        return None
    fractions = [_mean(row) for row in run.entries("negative_occupancy")]
    seeds = _seeds_text(run, [fraction > OFTEN for fraction in fractions])
    # the projection on a domain of visits sets negative entries to zero
    point = jnp.linspace(-1.0, 1.0, problem.size)
    projection = problem.utility.domain(point)
    excludes_negative = bool((projection[point < 0] == 0).any())
    if seeds is None or not excludes_negative:
        return None
    return Finding(
        "domain",
        f"{share_text(max(fractions))} of the entries of the estimated occupancy are negative on "
        f"average{seeds}, but no true entry is: the recursive estimate has drifted.",
        "a smaller step_size or radius, a shorter epoch_length, a larger batch, or "
        "weight_guard=0.5.",
    )


def _seeds_disagree(run: RunStatistics) -> Finding | None:
    utilities = run.assessment.utilities
    known = utilities[np.isfinite(utilities)]
    if len(known) < 2 or run.no_progress is not None or run.iterations < MIN_ITERATIONS:
        return None
    worst = float(known.min())
    best = float(known.max())
    distance = run.references.way
    distance_text = "the distance from the uniform policy to the optimum"
    if not np.isfinite(distance):
        if not all(run.compares_with_first(seed) for seed in range(len(utilities))):
            return None
        distance = best - run.references.first
        distance_text = "the gain of the best seed"
    rounding = ROUNDING * max(abs(best), abs(worst))
    if not (distance > 0 and best - worst > max(HALF * distance, rounding)):
        return None
    return Finding(
        "seeds-disagree",
        f"the seeds range from {short(worst)} to {short(best)}, more than half of {distance_text}.",
        "more episodes, if the slow seeds still improve; a smaller step_size or a larger batch, "
        "if chance decides; and result.best_policy, which is the policy of the best seed.",
    )


def _constraint_violated(run: RunStatistics) -> Finding | None:
    problem = run.outcome.problem
    if problem is None or not problem.constraints:
        return None
    tolerance = MAX_ESTIMATED_VIOLATION
    if run.assessment.source == "exact":
        tolerance = MAX_EXACT_VIOLATION
    sentences: list[str] = []
    for constraint, excess in zip(problem.constraints, run.excesses, strict=True):
        seeds = _seeds_text(run, excess > tolerance * abs(constraint.limit))
        if seeds is not None:
            violation = short(float(np.nanmax(excess)))
            multiplier = _final_multiplier(run, constraint.name)
            sentences.append(
                f"{constraint} is violated{seeds}, by {violation} at most; {multiplier}"
            )
    is_infeasible = [row.size > 0 and row[-1] == 0 for row in run.entries("feasible")]
    seeds = _seeds_text(run, is_infeasible)
    if seeds is not None:
        sentences.append(
            f"By its estimates no iterate was feasible{seeds}, and the least violating one is "
            "returned"
        )
    if not sentences:
        return None
    sentence = ". ".join(sentences)
    advice = (
        "more episodes, if the violation still falls; a looser threshold, if the multiplier grows "
        "without bound; and, on a table, ox.solve, which tests whether the constraints are "
        "feasible."
    )
    # the reason of a missing certificate on a table
    _, infeasible, numbers = run.assessment.reason.partition("no policy satisfies")
    if infeasible:
        return Finding(
            "limit-not-kept",
            f"{sentence}. And {infeasible}{numbers}",
            "a looser threshold, because this constraint cannot be satisfied.",
        )
    return Finding("limit-not-kept", f"{sentence}.", advice)


def _final_multiplier(run: RunStatistics, name: str) -> str:
    """Return the median of the last multipliers of a constraint in words, if logged."""
    last = last_entries(run.outcome, f"multiplier/{name}")
    if np.isnan(last).all():
        return ""
    return f"its multiplier is {short(float(np.nanmedian(last)))} at the end"


def _saturation(run: RunStatistics) -> Finding | None:
    """Return a finding about clipped actions where a constraint is violated or utility is lost."""
    fractions: list[float] = []
    is_saturated: list[bool] = []
    for seed, row in enumerate(run.entries("actions_clipped")):
        fraction = _mean(row[-max(1, len(row) // WINDOWS) :])
        is_clipped = fraction > SATURATED
        fractions.append(fraction)
        is_saturated.append(is_clipped and (run.violates(seed) or _fall(run, seed) is not None))
    seeds = _seeds_text(run, is_saturated)
    if seeds is None:
        return None
    return Finding(
        "saturation",
        f"{share_text(max(fractions))} of the actions in the last tenth of the records{seeds} are "
        "outside of their bounds and clipped: all clipped actions are alike, and the gradient "
        "vanishes.",
        "a smaller step_size or radius; a larger standard deviation, as in "
        "policy=ox.policies.gaussian(deviation=1.0), whose actions reach back into the bounds; or "
        "policy=ox.policies.squashed().",
    )


def _mean(values: np.ndarray) -> float:
    """Return the mean of some numbers, 0 for none."""
    if not values.size:
        return 0.0
    return float(np.mean(values))


def _seeds_text(run: RunStatistics, is_affected: list[bool] | np.ndarray) -> str | None:
    """Return the number of affected seeds in words that end a clause, None for none."""
    total = len(run.outcome.seeds)
    count = int(np.count_nonzero(is_affected))
    if count == 0:
        return None
    if total == 1:
        return ""
    if count == total:
        return f" in all {total} seeds"
    return f" in {count} of {total} seeds"


Rule = Callable[[RunStatistics], Finding | None]
REASONS: tuple[Rule, ...] = (_reward_unseen, _all_truncated, _zero_gradient, _no_progress)
"""Reasons for missing progress, the most specific first."""
RULES: tuple[Rule, ...] = (
    _constraint_violated,
    _saturation,
    _steep,
    _collapse,
    _weights,
    _outside_domain,
    _seeds_disagree,
)

"""What went wrong in a training, from what was recorded of it; docs/diagnosis.md explains each kind of finding.

A training that is well has none: each rule asks for a clear effect, and where it compares noisy
numbers, for one that noise does not explain. `evidence` has what several rules ask for.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occupax.analysis.run_statistics import (
    FEW,
    GOOD,
    KEPT,
    KEPT_ESTIMATED,
    ROUNDING,
    WINDOWS,
    Evidence,
    may_end,
)
from occupax.analysis.verdict import share_text, short, told_apart
from occupax.envs.base import DecisionProcess
from occupax.exact.evaluation import utility_gradient
from occupax.features import VISITS, Feature, Stack
from occupax.outcome import Assessment, Finding, Outcome
from occupax.problem import Problem
from occupax.training.schedule import Schedule

DROP = 4.0
"""Standard errors by which the end is below the best of ten windows, one of which is high by
chance."""
HALF = 0.5
"""A seed has collapsed if it lost half of what it had gained; seeds disagree if half of the way
lies between them."""
OFTEN = 0.1
"""The share of refinements that rest on one trajectory, or of the entries of an occupancy that are
negative, which is too large: trainings that are well have one or two per cent."""
LARGE_WEIGHT = 4.0
"""A weight that is large even in a batch of one or two trajectories."""
HUGE = 0.1
"""The fraction of the square root of the largest float from which on squares of gradients
overflow."""
SATURATED = 0.9
"""The fraction of clipped steps from which on the gradient of the means has all but vanished."""

EXPLORE = "a utility that rewards exploration too, such as Reward() + 0.1 * Entropy()"


def diagnose(outcome: Outcome, assessment: Assessment) -> tuple[Finding, ...]:
    """All findings about a training: at most one reason why nothing was learned, and whatever else there is."""
    run = Evidence(outcome, assessment)
    overflow = _overflow(run)
    if overflow is not None:
        return (overflow,)
    reasons = [found for rule in REASONS if (found := rule(run)) is not None][:1]
    return (*reasons, *(found for rule in RULES if (found := rule(run)) is not None))


def learned(outcome: Outcome, assessment: Assessment) -> bool:
    """Whether a training is not known to have learned nothing; see `Evidence.no_progress`."""
    return Evidence(outcome, assessment).no_progress is None


def steep_utility(problem: Problem) -> Finding | None:
    """A utility whose gradient is not finite where something is never visited."""
    if np.isfinite(problem.utility.smoothness.gradient_bound):
        return None
    if np.isfinite(
        utility_gradient(problem.utility, _first_only(problem.features, problem.env))
    ).all():
        return None
    return Finding(
        "infinite-gradient",
        f"the gradient of the utility {type(problem.utility).__name__} is not finite where something is never visited, "
        "as is the case in every small batch.",
        "keep it finite by a small number, such as log(u + sigma) instead of log(u), sqrt(u + sigma) instead of "
        "sqrt(u), or Entropy(smoothing=1e-6).",
    )


def _first_only(feature: Feature, env: DecisionProcess) -> Float[np.ndarray, " d"]:
    """An occupancy with visits of the first state, cell or pair alone; ones for features that do not count visits."""
    if isinstance(feature, Stack):
        return np.concatenate([_first_only(part, env) for part in feature.parts])
    size = feature.size(env)
    return np.eye(1, size)[0] if isinstance(feature, VISITS) else np.ones(size)


def _steep(run: Evidence) -> Finding | None:
    return None if run.outcome.problem is None else steep_utility(run.outcome.problem)


def _overflow(run: Evidence) -> Finding | None:
    """Return a finding about runs that stopped because the utility, or its square, is too large for a float."""
    seeds = _seeds(run, lambda i: run.outcome.status[i].startswith("stopped"))
    values = np.abs(np.append(run.assessment.utilities, run.references.first))
    known = values[~np.isnan(values)]
    is_double = bool(run.outcome.config["versions"].get("float64"))
    precision, largest = (
        ("float64", np.finfo(np.float64).max)
        if is_double
        else ("float32", np.finfo(np.float32).max)
    )
    if seeds is None or not known.size or known.max() < HUGE * np.sqrt(float(largest)):
        return None
    size = f"about {known.max():.0e}" if np.isfinite(known.max()) else f"more than {largest:.1e}"
    scale = (
        "the rewards are too large"
        if run.counts_reward
        else "the values of the utility are too large"
    )
    stopped = next(status for status in run.outcome.status if status.startswith("stopped"))
    double = "" if is_double else "; or JAX_ENABLE_X64=1, which computes in float64"
    return Finding(
        "overflow",
        f"{scale}: a policy is worth {size}, and the estimates overflowed {precision}, whose largest number is "
        f"{largest:.1e} and has to hold squares too; training{seeds} {stopped}.",
        f"divide the utility by its size, such as 1e-30 * Reward() for rewards of 1e30{double}.",
    )


def _reward_unseen(run: Evidence) -> Finding | None:
    returns = run.known("return")
    seeds = _seeds(run, lambda i: returns[i].size > 0 and not returns[i].any())
    if not run.counts_reward or seeds is None:
        return None
    return Finding(
        "reward-unseen",
        f"no episode earned any reward{seeds}, in {run.outcome.episodes[-1]:,} episodes.",
        f"{EXPLORE}; a longer horizon; more episodes; or a reward that also pays for steps on the way.",
    )


def _all_cut(run: Evidence) -> Finding | None:
    problem, returns, lengths = (
        run.outcome.problem,
        run.known("return"),
        run.known("episode_length"),
    )
    if problem is None or not run.counts_reward or run.references.share(run.median) >= GOOD:
        return None
    cut = [
        length.size > 0 and bool((length >= problem.sampling_horizon()).all()) for length in lengths
    ]
    # where no episode can end by itself all of them are cut, and that is no fault
    seeds = _seeds(run, lambda i: cut[i] and may_end(problem, returns[i]))
    if seeds is None:
        return None
    last = short(float(np.mean([one[-1] for one in returns if one.size])))
    return Finding(
        "horizon",
        f"every episode was cut at the horizon of {problem.sampling_horizon():,} steps{seeds}: none ended by itself, "
        f"so that a goal that ends an episode was never reached, and the return of the last records is {last}.",
        f"a longer horizon, if the environment allows it; {EXPLORE}; or more episodes.",
    )


def _zero_gradient(run: Evidence) -> Finding | None:
    if run.references.share(run.references.first) >= GOOD:
        return None
    shares = [float(np.mean(row == 0)) if row.size else 0.0 for row in run.known("grad_norm")]
    most = HALF if run.no_progress else 1.0 - 1e-9
    seeds = _seeds(run, lambda i: shares[i] > most)
    if seeds is None:
        return None
    unpaid = float(np.mean(np.concatenate(run.known("return")) == 0)) if run.counts_reward else 0.0
    return Finding(
        "zero-gradient",
        f"the gradient was exactly 0 in {share_text(max(shares))} of the records{seeds}: the policy did not move"
        f"{share_text(unpaid, '; {} of all records have no reward at all') if unpaid else ''}.",
        f"a larger batch, which sees more; {EXPLORE}, if the reward is rare; and look whether the utility can change "
        "(it cannot inside of a set that has been reached), and whether the policy still tries all actions.",
    )


def _no_progress(run: Evidence) -> Finding | None:
    fallen = sum(_collapsed(run, i) is not None for i in range(len(run.curves)))
    if run.no_progress is None or fallen >= HALF * len(
        run.curves
    ):  # which had learned something before
        return None
    if not getattr(run.outcome.algorithm, "estimates_gradient", True):
        return Finding(
            "no-progress", f"{run.no_progress}.", f"more episodes; a larger explore; or {EXPLORE}."
        )
    lengths, steps, cuts = (
        np.concatenate(run.known(it)) for it in ("grad_norm", "step_length", "clipped")
    )
    clipped = float(np.mean(cuts)) if cuts.size else 0.0
    numbers = [
        *(
            [f"the gradient estimate has a median length of {short(float(np.median(lengths)))}"]
            if lengths.size
            else []
        ),
        *([f"the steps have one of {short(float(np.median(steps)))}"] if steps.size else []),
        f"the radius cut {share_text(clipped)} of the steps short",
    ]
    adam = "rule='adam', whose steps do not depend on the size of the utility, or "
    plain = getattr(run.outcome.algorithm, "rule", None) == "gradient"
    pace = "a larger radius" if clipped > HALF else f"{adam if plain else ''}a larger step_size"
    return Finding(
        "no-progress",
        f"{run.no_progress}; {', '.join(numbers)}.",
        f"{pace}; baseline='mean' or a larger batch, against noise; more episodes.",
    )


def _collapse(run: Evidence) -> Finding | None:
    found = [_collapsed(run, i) for i in range(len(run.curves))]
    seeds = _seeds(run, lambda i: found[i] is not None)
    worst = max(
        (it for it in found if it is not None), key=lambda it: it.before - it.after, default=None
    )
    if worst is None:
        return None
    before, after = told_apart(worst.before, worst.after)
    return Finding(
        "collapse",
        f"the utility fell{seeds}{', at worst' if seeds else ''} from {before} {worst.when} to {after} at the end.",
        "a smaller step_size or radius; weight_guard=0.5, if importance weights are used; output='best', which returns "
        "the best policy that was seen.",
    )


class Fall(NamedTuple):
    """What the utility of a seed fell from, and to."""

    before: float
    when: str
    after: float


def _collapsed(run: Evidence, seed: int) -> Fall | None:
    """How a seed fell that ends below its first policy, or lost most of what it had gained.

    Earlier policies count only if they satisfy the constraints as well as the returned one.
    """
    windows, value = run.windows(seed), float(run.assessment.utilities[seed])
    feasible = [window for window in windows if window.violation <= run.allowed[seed]]
    if not feasible or run.iterations < FEW:
        return None
    best, end, first = (
        max(feasible, key=lambda window: window.mean),
        windows[-1],
        run.references.first,
    )
    rounding = ROUNDING * max(abs(best.mean), abs(value))
    little = max(
        float(np.nan_to_num((1 - GOOD) * run.references.way)), best.noise, end.noise, rounding
    )
    if run.compares_with_first(seed) and first - value > max(little, windows[0].noise):
        return Fall(first, "of the first policy", value)
    lost, gained = best.mean - end.mean, best.mean - feasible[0].mean
    if (
        feasible[0] is not windows[0] and gained <= little
    ):  # all that was lost is what the constraints cost
        return None
    least = max(HALF * gained, DROP * float(np.hypot(best.error, end.error)), little)
    returned = value < best.mean - HALF * gained  # and not an earlier policy that was better
    return (
        Fall(best.mean, "in the best tenth of the training", end.mean)
        if returned and lost > least
        else None
    )


def _weights(run: Evidence) -> Finding | None:
    algorithm, metrics = run.outcome.algorithm, run.outcome.metrics
    if algorithm is None or not np.any(metrics.get("largest_weight", np.ones(0)) > 1):
        return None
    batch = min(Schedule(algorithm).sizes)
    largest, smallest = (
        np.nanmax(metrics["largest_weight"]),
        np.nanmin(metrics["effective_sample_size"]),
    )
    extremes = f"the largest weight is {short(float(largest))}, the smallest effective sample size {short(float(smallest))}"
    numbers = f"{extremes}, in batches of {batch}."
    calmer = (
        "a smaller step_size or radius, which keeps policies closer to each other; a larger batch"
    )
    advice = f"{calmer}; or REINFORCE, which needs no weights."
    if "restarted" in metrics:
        share = _restarted(run, algorithm)
        if share <= HALF or not (run.no_progress or _collapse(run)):
            return None
        return Finding(
            "weights",
            f"{share_text(share)} of the refinements were made fresh, because their importance weights mean nothing: "
            f"{numbers}",
            advice,
        )
    bound = max(float(batch), LARGE_WEIGHT)
    share = _outweighed(run, bound)
    if share <= OFTEN:
        return None
    return Finding(
        "weights",
        f"in {share_text(share)} of the refinements an importance weight is above {bound:g}, so that one trajectory "
        f"counts as much as a batch should: {numbers}",
        f"weight_guard=0.5, which replaces such estimates by fresh ones; {advice}",
    )


def _restarted(run: Evidence, algorithm: object) -> float:
    """The share of the refinements that the guard on the weights replaced, by trajectories."""
    drawn = np.diff(run.outcome.episodes, prepend=0)
    rows = np.nan_to_num(run.outcome.metrics["restarted"]) * drawn
    if not hasattr(algorithm, "epoch_length"):
        return float(rows.sum() / (len(rows) * drawn.sum()))
    refinements = algorithm.batch * (algorithm.epoch_length - 1)
    return float(
        rows.sum()
        / (len(rows) * drawn.sum())
        * (1 + algorithm.snapshot_batch / max(refinements, 1))
    )


def _outweighed(run: Evidence, bound: float) -> float:
    """The share of iterations with weights in which one is above a bound; a record has the largest of its own."""
    every = run.outcome.config["setup"]["record_every"]
    found = np.concatenate(run.known("largest_weight"))
    weighed = found[found != 1]
    return 1 - (1 - float(np.mean(weighed > bound))) ** (1 / every)


def _outside_domain(run: Evidence) -> Finding | None:
    problem = run.outcome.problem
    if problem is None:
        return None
    some_negative = jnp.linspace(
        -1.0, 1.0, problem.size
    )  # which the nearest point of a domain of visits has as zeros
    shares = [float(row.mean()) if row.size else 0.0 for row in run.known("negative_occupancy")]
    seeds = _seeds(run, lambda i: shares[i] > OFTEN)
    allowed = problem.utility.domain(some_negative)[some_negative < 0]
    if seeds is None or not bool((allowed == 0).any()):
        return None
    return Finding(
        "domain",
        f"{share_text(max(shares))} of the entries of the estimated occupancy are negative on average{seeds}, which no "
        "true one is: the estimate that is carried along has drifted.",
        "a smaller step_size or radius, a shorter epoch_length, a larger batch, or weight_guard=0.5.",
    )


def _seeds_disagree(run: Evidence) -> Finding | None:
    values, others = run.assessment.utilities, run.references
    known = values[np.isfinite(values)]
    if len(known) < 2 or run.no_progress is not None or run.iterations < FEW:
        return None
    worst, best = float(known.min()), float(known.max())
    if not np.isfinite(others.way) and not all(map(run.compares_with_first, range(len(values)))):
        return None
    way = others.way if np.isfinite(others.way) else best - others.first
    if not (way > 0 and best - worst > max(HALF * way, ROUNDING * max(abs(best), abs(worst)))):
        return None
    whole = (
        "the way from the uniform policy to the optimum"
        if np.isfinite(others.way)
        else "what the best has gained"
    )
    return Finding(
        "seeds-disagree",
        f"the seeds range from {short(worst)} to {short(best)}, which is more than half of {whole}.",
        "more episodes, if the slow ones are still rising; a smaller step_size or a larger batch, if luck decides; and "
        "result.best_policy, which is that of the best seed.",
    )


def _limit_not_kept(run: Evidence) -> Finding | None:
    problem = run.outcome.problem
    if problem is None or not problem.constraints:
        return None
    share = KEPT if run.assessment.source == "exact" else KEPT_ESTIMATED
    said: list[str] = []
    for constraint, excess in zip(problem.constraints, run.excesses, strict=True):
        seeds = _seeds(
            run, lambda i, excess=excess, limit=constraint.limit: excess[i] > share * abs(limit)
        )
        if seeds is not None:
            worst, last = (
                float(np.nanmax(excess)),
                run.outcome.metrics[f"multiplier/{constraint.name}"][:, -1],
            )
            rest = (
                f"its multiplier is {short(float(np.nanmedian(last)))} at the end"
                if len(last)
                else ""
            )
            said.append(f"{constraint} is violated{seeds}, by {short(worst)} at most; {rest}")
    found = run.known("feasible")
    infeasible = _seeds(run, lambda i: found[i].size > 0 and found[i][-1] == 0)
    if infeasible is not None:
        said.append(
            f"By its estimates no iterate was feasible{infeasible}, and the least violating one is returned"
        )
    if not said:
        return None
    nobody = run.assessment.reason.partition("no policy satisfies")
    proof = f" And {nobody[1]}{nobody[2]}" if nobody[1] else ""
    return Finding(
        "limit-not-kept",
        f"{'. '.join(said)}.{proof}",
        "a looser limit, because this one cannot be kept."
        if proof
        else "more episodes, if the violation still falls; a looser limit, if the multiplier grows without end; and, "
        "on a table, ox.solve, which says whether any policy keeps it.",
    )


def _saturation(run: Evidence) -> Finding | None:
    """Return a finding about clipped actions where a constraint is violated or nothing is gained."""
    last = [
        float(row[-max(1, len(row) // WINDOWS) :].mean()) if row.size else 0.0
        for row in run.known("actions_clipped")
    ]
    seeds = _seeds(
        run, lambda i: last[i] > SATURATED and (run.violates(i) or _collapsed(run, i) is not None)
    )
    if seeds is None:
        return None
    return Finding(
        "saturation",
        f"{share_text(max(last))} of the actions in the last tenth of the records{seeds} are outside of their bounds "
        "and clipped: beyond the bounds all actions are alike, and the gradient vanishes.",
        "a smaller step_size or radius; a larger deviation, as in policy=ox.policies.gaussian(deviation=1.0), whose "
        "actions reach back into the bounds; or policy=ox.policies.squashed().",
    )


def _seeds(run: Evidence, affected: Callable[[int], bool]) -> str | None:
    """How many seeds something is true of, in words that end a clause; None if there are none."""
    count, of = sum(map(affected, range(len(run.outcome.seeds)))), len(run.outcome.seeds)
    if count == 0:
        return None
    return "" if of == 1 else f" in all {of} seeds" if count == of else f" in {count} of {of} seeds"


Rule = Callable[[Evidence], Finding | None]
REASONS: tuple[Rule, ...] = (_reward_unseen, _all_cut, _zero_gradient, _no_progress)
"""Why nothing was learned, the most telling first."""
RULES: tuple[Rule, ...] = (
    _limit_not_kept,
    _saturation,
    _steep,
    _collapse,
    _weights,
    _outside_domain,
    _seeds_disagree,
)

"""Performance of the trained policies in a sentence or a few lines."""

from collections.abc import Sequence
from math import floor

import numpy as np
from jaxtyping import Float

from occupax.analysis import statistics
from occupax.analysis.charts import Level
from occupax.analysis.saved_text import environment_words, words
from occupax.constraints import Constraint
from occupax.display import Description, in_words
from occupax.envs.registry import table_name
from occupax.envs.tabular import TabularMDP
from occupax.io.codec import class_name
from occupax.outcome import Assessment, Finding, Outcome, References
from occupax.utilities import Reward, Sum, Utility

NEARLY_ALL = 0.99
"""Normalised score from which on a tenth of a per cent is shown."""
MAX_DIGITS = 15
"""Largest number of digits that tell two numbers apart."""
NEGLIGIBLE = 1e-3
"""Fraction of the distance from the uniform policy to the optimum that is shown as 0."""


def headline(outcome: Outcome, assessment: Assessment | None) -> str:
    """Return the median utility of the seeds beside the utilities of other policies.

    For example "-26.5 (median of 10 seeds); uniform -79.0, optimum -23.0 (certified): 94% of the
    way".

    Args:
        outcome: The run.
        assessment: Evaluation of its policies, None if unknown.

    Returns:
        One sentence, with a part for each constraint.
    """
    if assessment is None:
        return "the utility of the policies is unknown: the problem cannot be restored from a file"
    known = assessment.utilities[~np.isnan(assessment.utilities)]
    if not known.size:
        return "no seed has a policy with finite parameters"
    median = float(np.median(known))
    references = assessment.references or References(np.nan)
    sentence = short(median, references.way)
    sentence += _source_text(outcome, assessment)
    sentence += _reference_text(median, references)
    sentence += _return_text(outcome)
    if outcome.problem is not None and assessment.excesses is not None:
        pairs = zip(outcome.problem.constraints, assessment.excesses.T, strict=True)
        for constraint, excess in pairs:
            sentence += f"; {_constraint_text(constraint, excess)}"
    return sentence


def _source_text(outcome: Outcome, assessment: Assessment) -> str:
    """Return the number of seeds, the kind of evaluation and of iterate in brackets."""
    known = int(np.count_nonzero(~np.isnan(assessment.utilities)))
    seeds = len(assessment.utilities)
    parts: list[str] = []
    if known < seeds:
        parts.append(f"median of {known} of {seeds} seeds")
    elif seeds > 1:
        parts.append(f"median of {seeds} seeds")
    if assessment.source != "exact":
        parts.append("estimated")
    if getattr(outcome.algorithm, "output", None) == "best":
        parts.append("best iterates by their batches")
    if not parts:
        return ""
    return f" ({', '.join(parts)})"


def _reference_text(value: float, references: References) -> str:
    """Return the utilities of other policies, and the normalised score of a utility."""
    if references.uniform is None:
        if np.isnan(references.first):
            return ""
        return f"; first policy {short(references.first)}"
    text = f"; uniform {short(references.uniform, references.way)}"
    if references.optimum is None:
        return text
    text += f", optimum {short(references.optimum, references.way)} (certified)"
    return text + share_text(references.share(value), ": {} of the way")


def _return_text(outcome: Outcome) -> str:
    """Return the part of the headline on the undiscounted return of the last log entry.

    The text is empty for the reward alone on a table, whose exact utility says as much, and for
    goals without a reward.
    """
    if outcome.problem is None or not has_reward(outcome.problem.objective):
        return ""
    last = last_entries(outcome, "return")
    known = last[np.isfinite(last)]
    is_reward = isinstance(outcome.problem.objective, Reward)
    is_exact = is_reward and isinstance(outcome.problem.env, TabularMDP)
    if is_exact or not known.size:
        return ""
    return f"; undiscounted return {short(float(np.median(known)))} at the end"


def last_entries(outcome: Outcome, metric: str) -> Float[np.ndarray, " seed"]:
    """Return the last log entry of each seed, NaN for a stopped seed or without entries.

    A seed that has used up its steps before the others has no entries after that.
    """
    rows = outcome.metrics[metric]
    last = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        known = row
        if outcome.status[i] == "finished":
            known = row[~np.isnan(row)]
        if known.size:
            last[i] = known[-1]
    return last


def has_reward(objective: Utility) -> bool:
    """Return whether a utility is the reward or a sum that contains the reward."""
    if isinstance(objective, Sum):
        return any(has_reward(term) for term in objective.terms)
    return isinstance(objective, Reward)


def _constraint_text(constraint: Constraint, excess: Float[np.ndarray, " seed"]) -> str:
    """Return the number of seeds that satisfy a constraint, with the worst slack or violation."""
    known = excess[~np.isnan(excess)]
    if not known.size:
        return f"{constraint}: unknown"
    worst = float(known.max())
    margin = f"slack {short(-worst)}"
    if worst > 0:
        margin = f"violated by {short(worst)}"
    if len(excess) == 1:
        return f"{constraint}: {margin}"
    satisfied = int(np.count_nonzero(known <= 0))
    return f"{constraint}: satisfied by {satisfied} of {len(excess)} seeds (worst: {margin})"


def share_text(share: float, form: str = "{}") -> str:
    """Return a fraction in per cent, never rounded up.

    Args:
        share: The fraction.
        form: Text with a pair of braces in the place of the per cent.

    Returns:
        The completed text, empty for a fraction that is not finite.
    """
    if not np.isfinite(share):
        return ""
    digits = 0
    if NEARLY_ALL <= share < 1:
        digits = 1
    units = floor(share * 100 * 10**digits + 1e-9)
    percent = f"{units / 10**digits:.{digits}f}%"
    return form.format(percent.replace("-0%", "0%"))


def short(value: float, scale: float = np.nan) -> str:
    """Return a number with three digits, or all digits before the point of a large one.

    Args:
        value: The number.
        scale: distance of two reference utilities. A negligible fraction of it is shown as 0.

    Returns:
        The number as text.
    """
    if value == 0 or abs(value) < NEGLIGIBLE * scale:
        return "0"
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:#.3g}".removesuffix(".")


def told_apart(first: float, second: float) -> tuple[str, str]:
    """Return two different numbers with three or more digits, enough to tell them apart."""
    texts = (short(first), short(second))
    for digits in range(4, MAX_DIGITS + 1):
        if texts[0] != texts[1]:
            break
        texts = (f"{first:,.{digits}g}", f"{second:,.{digits}g}")
    return texts


def levels(references: References | None) -> tuple[Level, ...]:
    """Return the horizontal lines beside a curve of the utility."""
    if references is None:
        return ()
    utilities = {"optimum": references.optimum, "uniform policy": references.uniform}
    uniform = references.uniform
    if uniform is None or short(uniform) != short(references.first):
        utilities["first policy"] = references.first
    lines: list[Level] = []
    for name, utility in utilities.items():
        if utility is not None and np.isfinite(utility):
            lines.append(Level(f"{name} {short(utility, references.way)}", utility))
    return tuple(lines)


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return findings as lines of text with their sections of the documentation."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.kind}: {finding.sentence}")
        lines.append(f"  try: {finding.advice}")
        lines.append(f"  more: occupax explain {finding.kind}")
    return lines


def short_description(
    outcome: Outcome, text: str, kinds: Sequence[str], references: References | None
) -> Description:
    """Return the description of a run.

    Args:
        outcome: The run.
        text: Its headline.
        kinds: Kinds of its findings.
        references: Utilities of other policies, drawn beside the curve of the utility.

    Returns:
        The headline, some rows and the curve.
    """
    episodes = 0
    if len(outcome.episodes):
        episodes = outcome.episodes[-1]
    rows = [
        ("algorithm", algorithm_text(outcome)),
        ("problem", _problem_text(outcome)),
        ("seeds", str(len(outcome.seeds))),
        ("episodes", f"{episodes:,} a seed"),
        ("time", f"{outcome.seconds:,.1f} seconds"),
        ("status", _status_text(outcome.status)),
    ]
    if kinds:
        rows.append(("findings", f"{', '.join(kinds)} (summary() says more)"))
    _, median, _ = statistics.quartiles(outcome.metrics["utility"])
    return Description(text, rows, [median], [level.y for level in levels(references)])


def _status_text(status: tuple[str, ...]) -> str:
    """Return the number of seeds with each status."""
    if len(status) == 1:
        return status[0]
    kinds = dict.fromkeys(status)
    return ", ".join(f"{status.count(kind)} {kind}" for kind in kinds)


def problem_name(outcome: Outcome) -> str:
    """Return the problem in a few words: the class of the utility and the environment."""
    if outcome.problem is None:
        return f"Training on {environment_text(outcome)}"
    return f"{type(outcome.problem.objective).__name__} on {environment_text(outcome)}"


def run_name(outcome: Outcome) -> str:
    """Return the default name of a run, with its algorithm and its environment."""
    return f"{algorithm_name(outcome)} on {environment_text(outcome)}"


def algorithm_text(outcome: Outcome) -> str:
    """Return the algorithm with all its hyperparameters, even if it cannot be restored."""
    if outcome.algorithm is not None:
        return in_words(outcome.algorithm)
    return words(outcome.config["setup"]["algorithm"], outcome.arrays)


def environment_text(outcome: Outcome) -> str:
    """Return the environment in words, even if it cannot be restored.

    A table of Gymnasium is called by its id.
    """
    if outcome.problem is None:
        fields = outcome.config["setup"]["problem"].get("fields", {})
        return environment_words(fields.get("env"), outcome.arrays)
    env = outcome.problem.env
    if isinstance(env, TabularMDP):
        name = table_name(env)
        if name is not None:
            return f"{name} ({env.num_states:,} states, {env.num_actions:,} actions)"
    return in_words(env)


def _problem_text(outcome: Outcome) -> str:
    problem = outcome.problem
    env = environment_text(outcome)
    if problem is None:
        return f"on {env}, not restored"
    horizon = "infinite horizon"
    if problem.horizon is not None:
        horizon = f"horizon {problem.horizon}"
    parts = [f"discount {problem.discount:g}", horizon, problem.termination]
    parts += map(str, problem.constraints)
    return f"{in_words(problem.objective)} on {env}, {', '.join(parts)}"


def algorithm_name(outcome: Outcome) -> str:
    """Return the class of the algorithm, even if it cannot be restored."""
    return class_name(outcome.config["setup"]["algorithm"])

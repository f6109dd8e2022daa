"""How good the policies of a training are, in a sentence or a few lines."""

from collections.abc import Sequence
from math import floor

import numpy as np

from occupax.analysis import statistics
from occupax.analysis.charts import Level
from occupax.analysis.saved_text import environment_words, words
from occupax.display import Description, in_words
from occupax.envs.registry import table_name
from occupax.envs.tabular import TabularMDP
from occupax.io.codec import class_name
from occupax.outcome import Assessment, Finding, Outcome, References
from occupax.utilities import Reward, Sum, Utility

NEARLY_ALL = 0.99
"""From this share of the way on, a tenth of a per cent is shown."""
DIGITS = 15
"""No two numbers are told apart by more digits."""
NOTHING = 1e-3
"""A number below this share of the way from the uniform policy to the optimum is shown as 0."""


def headline(outcome: Outcome, assessment: Assessment | None) -> str:
    """Return the median utility of the seeds beside the utilities of other policies.

    For example "-26.5 (median of 10 seeds); uniform -79.0, optimum -23.0 (certified): 94% of the
    way".
    """
    if assessment is None:
        return "what the policies are worth is not known, because the problem cannot be restored from a file"
    known = assessment.utilities[~np.isnan(assessment.utilities)]
    if not known.size:
        return "no seed has a policy that is finite"
    value = float(np.median(known))
    references = assessment.references or References(np.nan)
    remark = _remark(len(known), len(assessment.utilities), assessment.source)
    return (
        short(value, references.way)
        + remark
        + _compared(value, references)
        + _return(outcome)
        + _limits(outcome, assessment)
    )


def _return(outcome: Outcome) -> str:
    """Return the part of the headline on the undiscounted return of the last iteration.

    It is empty for the reward alone on a table, where the exact utility says as much, and for goals
    without a reward.
    """
    if outcome.problem is None or not _has_reward(outcome.problem.objective):
        return ""
    last = outcome.metrics["return"][:, -1:]
    known = last[np.isfinite(last)]
    exact = isinstance(outcome.problem.env, TabularMDP) and isinstance(
        outcome.problem.objective, Reward
    )
    if exact or not known.size:
        return ""
    return f"; undiscounted return {short(float(np.median(known)))} at the end"


def _has_reward(objective: Utility) -> bool:
    """Return whether a utility is the reward or a sum that contains the reward."""
    if isinstance(objective, Sum):
        return any(_has_reward(term) for term in objective.terms)
    return isinstance(objective, Reward)


def _limits(outcome: Outcome, assessment: Assessment) -> str:
    """The end of the headline of a problem with constraints: the slack of each, in the median."""
    if outcome.problem is None or assessment.excesses is None:
        return ""
    text = ""
    for constraint, excess in zip(outcome.problem.constraints, assessment.excesses.T, strict=True):
        known = excess[~np.isnan(excess)]
        middle = float(np.median(known)) if known.size else np.nan
        text += f"; {constraint}: " + (
            f"violated by {short(middle)}" if middle > 0 else f"slack {short(-middle)}"
        )
    return text


def _compared(value: float, references: References) -> str:
    """The end of a headline: what a value is compared with."""
    if references.uniform is None:
        return "" if np.isnan(references.first) else f"; first policy {short(references.first)}"
    text = f"; uniform {short(references.uniform, references.way)}"
    if references.optimum is None:
        return text
    optimum = short(references.optimum, references.way)
    return f"{text}, optimum {optimum} (certified){share_text(references.share(value), ': {} of the way')}"


def share_text(share: float, form: str = "{}") -> str:
    """A share in per cent, never rounded up, put into a text; nothing if it is not known."""
    if not np.isfinite(share):
        return ""
    digits = 1 if NEARLY_ALL <= share < 1 else 0
    return form.format(
        f"{floor(share * 100 * 10**digits + 1e-9) / 10**digits:.{digits}f}%".replace("-0%", "0%")
    )


def short(value: float, way: float = np.nan) -> str:
    """A number with three digits, or all of a large one before the point; 0 if it is next to nothing of the way."""
    if value == 0 or abs(value) < NOTHING * way:
        return "0"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:#.3g}".removesuffix(".")


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Return two different numbers with as many digits as tell them apart, three at least."""
    texts, digits = (short(one), short(other)), 4
    while texts[0] == texts[1] and digits <= DIGITS:
        texts, digits = (f"{one:,.{digits}g}", f"{other:,.{digits}g}"), digits + 1
    return texts


def levels(references: References | None) -> tuple[Level, ...]:
    """The lines to compare a curve of the utility with."""
    if references is None:
        return ()
    named = {"optimum": references.optimum, "uniform policy": references.uniform}
    same = references.uniform is not None and short(references.uniform) == short(references.first)
    if not same:
        named["first policy"] = references.first
    known = {
        name: value for name, value in named.items() if value is not None and np.isfinite(value)
    }
    return tuple(
        Level(f"{name} {short(value, references.way)}", value) for name, value in known.items()
    )


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return findings as lines of text with their sections of the documentation."""

    def lines(it: Finding) -> tuple[str, ...]:
        return (
            f"{it.kind}: {it.sentence}",
            f"  try: {it.advice}",
            f"  more: docs/diagnosis.md#{it.kind}",
        )

    return [line for it in findings for line in lines(it)]


def short_description(
    outcome: Outcome, text: str, kinds: Sequence[str], references: References | None
) -> Description:
    """Return the description of a run below its headline `text`, with the kinds of its findings."""
    status = {it: outcome.status.count(it) for it in outcome.status}
    rows = {
        "algorithm": algorithm_text(outcome),
        "problem": _problem_text(outcome),
        "seeds": str(len(outcome.seeds)),
        "episodes": f"{outcome.episodes[-1] if len(outcome.episodes) else 0:,} a seed",
        "time": f"{outcome.seconds:,.1f} seconds",
        "status": ", ".join(
            it if len(outcome.seeds) == 1 else f"{count} {it}" for it, count in status.items()
        ),
        **({"findings": f"{', '.join(kinds)} (summary() says more)"} if kinds else {}),
    }
    curve = statistics.quartiles(outcome.metrics["utility"])[1]
    return Description(text, list(rows.items()), [curve], [level.y for level in levels(references)])


def run_name(outcome: Outcome) -> str:
    """What a run is called that has no other name: its algorithm and its environment."""
    return f"{algorithm_name(outcome)} on {environment_text(outcome)}"


def algorithm_text(outcome: Outcome) -> str:
    """The algorithm and all its settings, even of one that could not be restored."""
    if outcome.algorithm is not None:
        return in_words(outcome.algorithm)
    return words(outcome.config["setup"]["algorithm"], outcome.arrays)


def environment_text(outcome: Outcome) -> str:
    """The environment, by its id if it is a table of Gymnasium's, even of one that could not be restored."""
    if outcome.problem is not None:
        env = outcome.problem.env
        if isinstance(env, TabularMDP) and (name := table_name(env)):
            return f"{name} ({env.num_states:,} states, {env.num_actions:,} actions)"
        return in_words(env)
    return environment_words(
        outcome.config["setup"]["problem"].get("fields", {}).get("env"), outcome.arrays
    )


def _problem_text(outcome: Outcome) -> str:
    problem = outcome.problem
    if problem is None:
        return f"on {environment_text(outcome)}, not restored"
    horizon = "infinite horizon" if problem.horizon is None else f"horizon {problem.horizon}"
    settings = [
        f"discount {problem.discount:g}",
        horizon,
        problem.termination,
        *map(str, problem.constraints),
    ]
    return f"{in_words(problem.objective)} on {environment_text(outcome)}, {', '.join(settings)}"


def algorithm_name(outcome: Outcome) -> str:
    """The class of the algorithm, even of one that could not be restored."""
    return class_name(outcome.config["setup"]["algorithm"])


def _remark(known: int, seeds: int, source: str) -> str:
    of = f"{known} of {seeds} seeds" if known < seeds else f"{seeds} seeds"
    parts = [f"median of {of}"] if seeds > 1 else []
    parts += [] if source == "exact" else ["estimated"]
    return f" ({', '.join(parts)})" if parts else ""

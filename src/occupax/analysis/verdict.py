"""How good the policies of a training are, in a sentence or a few lines."""

from math import floor

import numpy as np

from occupax._display import Description, environment_words, in_words, words
from occupax.analysis import statistics
from occupax.analysis.charts import Level
from occupax.envs.registry import table_name
from occupax.envs.tabular import TabularMDP
from occupax.io.codec import class_name
from occupax.samplers import EpisodeError
from occupax.training.assessment import References
from occupax.training.result import Finding, Result
from occupax.utilities import Reward, Sum, Utility

NEARLY_ALL = 0.99
"""From this share of the way on, a tenth of a per cent is shown."""
DIGITS = 15
"""No two numbers are told apart by more digits."""
NOTHING = 1e-3
"""A number below this share of the way from the uniform policy to the optimum is shown as 0."""


def headline(result: Result) -> str:
    """The median utility of the seeds, what others are worth and, where the optimum is known, the share of the way.

    For example "-26.5 (median of 10 seeds); uniform -79.0, optimum -23.0 (certified): 94% of the
    way".
    """
    if result.problem is None and result.saved_assessment is None:
        return "what the policies are worth is not known, because the problem cannot be restored from a file"
    known = result.utilities[~np.isnan(result.utilities)]
    if not known.size:
        return "no seed has a policy that is finite"
    value = float(np.median(known))
    references = result.references or References(np.nan)
    remark = _remark(len(known), len(result.utilities), result.assessment.source)
    return (
        short(value, references.way)
        + remark
        + _compared(value, references)
        + _return(result)
        + _limits(result)
    )


def _return(result: Result) -> str:
    """Return the part of the headline on the undiscounted return of the last iteration.

    It is empty for the reward alone on a table, where the exact utility says as much, and for goals
    without a reward.
    """
    if result.problem is None or not _has_reward(result.problem.objective):
        return ""
    last = result.metrics["return"][:, -1:]
    known = last[np.isfinite(last)]
    exact = isinstance(result.problem.env, TabularMDP) and isinstance(
        result.problem.objective, Reward
    )
    if exact or not known.size:
        return ""
    return f"; undiscounted return {short(float(np.median(known)))} at the end"


def _has_reward(objective: Utility) -> bool:
    """Return whether a utility is the reward or a sum that contains the reward."""
    if isinstance(objective, Sum):
        return any(_has_reward(term) for term in objective.terms)
    return isinstance(objective, Reward)


def _limits(result: Result) -> str:
    """The end of the headline of a problem with constraints: the slack of each, in the median."""
    if result.problem is None:
        return ""
    text = ""
    for constraint, excess in zip(
        result.problem.constraints, result.excesses.values(), strict=True
    ):
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


def summary(result: Result) -> str:
    """The headline, and for each finding a line of what happened, one of what to try, and where more is said."""
    return "\n".join([result.headline, *finding_lines(result)])


def finding_lines(result: Result) -> list[str]:
    """The findings as lines of text; each names its section of the documentation."""

    def lines(it: Finding) -> tuple[str, ...]:
        return (
            f"{it.kind}: {it.sentence}",
            f"  try: {it.advice}",
            f"  more: docs/diagnosis.md#{it.kind}",
        )

    return [line for it in result.diagnosis for line in lines(it)]


def short_description(result: Result) -> Description:
    """The headline, then what was trained with all settings, status, findings, and the curve of the median utility."""
    try:
        said, kinds, others = (
            result.headline,
            [finding.kind for finding in result.diagnosis],
            result.references,
        )
    except (
        EpisodeError,
        ValueError,
    ) as error:  # whoever looks at a result is not to be stopped by it
        said, kinds, others = (
            f"what the policies are worth could not be found out: {error}",
            [],
            None,
        )
    status = {it: result.status.count(it) for it in result.status}
    rows = {
        "algorithm": algorithm_text(result),
        "problem": _problem_text(result),
        "seeds": str(len(result.seeds)),
        "episodes": f"{result.episodes[-1] if len(result.episodes) else 0:,} a seed",
        "time": f"{result.seconds:,.1f} seconds",
        "status": ", ".join(
            it if len(result.seeds) == 1 else f"{count} {it}" for it, count in status.items()
        ),
        **({"findings": f"{', '.join(kinds)} (summary() says more)"} if kinds else {}),
    }
    curve = statistics.quartiles(result.metrics["utility"])[1]
    return Description(said, list(rows.items()), [curve], [level.y for level in levels(others)])


def run_name(result: Result) -> str:
    """What a run is called that has no other name: its algorithm and its environment."""
    return f"{algorithm_name(result)} on {environment_text(result)}"


def algorithm_text(result: Result) -> str:
    """The algorithm and all its settings, even of one that could not be restored."""
    if result.algorithm is not None:
        return in_words(result.algorithm)
    return words(result.config["setup"]["algorithm"], result.arrays)


def environment_text(result: Result) -> str:
    """The environment, by its id if it is a table of Gymnasium's, even of one that could not be restored."""
    if result.problem is not None:
        env = result.problem.env
        if isinstance(env, TabularMDP) and (name := table_name(env)):
            return f"{name} ({env.num_states:,} states, {env.num_actions:,} actions)"
        return in_words(env)
    return environment_words(
        result.config["setup"]["problem"].get("fields", {}).get("env"), result.arrays
    )


def _problem_text(result: Result) -> str:
    problem = result.problem
    if problem is None:
        return f"on {environment_text(result)}, not restored"
    horizon = "infinite horizon" if problem.horizon is None else f"horizon {problem.horizon}"
    settings = [
        f"discount {problem.discount:g}",
        horizon,
        problem.termination,
        *map(str, problem.constraints),
    ]
    return f"{in_words(problem.objective)} on {environment_text(result)}, {', '.join(settings)}"


def algorithm_name(result: Result) -> str:
    """The class of the algorithm, even of one that could not be restored."""
    return class_name(result.config["setup"]["algorithm"])


def _remark(known: int, seeds: int, source: str) -> str:
    of = f"{known} of {seeds} seeds" if known < seeds else f"{seeds} seeds"
    parts = [f"median of {of}"] if seeds > 1 else []
    parts += [] if source == "exact" else ["estimated"]
    return f" ({', '.join(parts)})" if parts else ""

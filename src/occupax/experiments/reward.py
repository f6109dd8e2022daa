"""Section 6.1: all algorithms maximise the cumulative reward."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from occupax.analysis.charts import Chart, Maps
from occupax.experiments.cells import Cell, Done, Measurement, Scale
from occupax.experiments.methods import REWARD, Settings
from occupax.experiments.sections import Claim, Section, above, centre, median_difference, tally, verdict
from occupax.experiments.tasks import ACROBOT, CARTPOLE, LAKE, tasks
from occupax.experiments.views import best_visits, both_curves, gain, gains_table, summary_table

TASKS = (LAKE, CARTPOLE, ACROBOT)
OURS, PLAIN = "TSIVR-PG", "REINFORCE"
LOOK = {method: i for i, method in enumerate(REWARD)}
SETTINGS = ("printed", "tuned")
ROUNDING = 0.1
"""By how much a printed size may differ from the theory's."""

Key = tuple[str, str, str]
"""The names of a setting, a task and a method."""


def cells(scale: Scale, printed: Settings, tuned: Settings) -> dict[Key, Cell]:
    """Every cell of this section at a scale."""
    return {
        (setting, task, method): scale.cell(setting, tasks()[task], method, settings[task, method])
        for setting, settings in zip(SETTINGS, (printed, tuned), strict=True)
        for task in TASKS
        if task in scale.tasks
        for method in REWARD
    }


def sections(done: Mapping[Key, Done], printed: Settings) -> list[Section]:
    """What the report says of section 6.1."""
    names = [task for task in TASKS if (SETTINGS[0], task, OURS) in done]
    found = [_section(done, task) for task in names]
    claims = [claim for setting in SETTINGS for claim in _claims(done, setting, names)]
    claims.append(_sizes(printed))
    text = (
        "Five algorithms maximise the return, once with the settings printed in the paper's "
        "appendix and once with those that a search over the paper's grid found, with as many trials and episodes for "
        "each algorithm and on other seeds. No baseline, no normalisation and no optimiser: plain ascent along the "
        "estimates, cut to the radius for TSIVR-PG only."
    )
    return [Section("reward", "6.1 Maximising the cumulative reward", text, claims), *found]


def _section(done: Mapping[Key, Done], name: str) -> Section:
    task, slug = tasks()[name], name.split("-", maxsplit=1)[0].lower()
    figures: list[Chart | Maps] = []
    for setting in SETTINGS:
        parts = [(method, done[setting, name, method].last) for method in REWARD]
        figures += both_curves(f"reward-{slug}-{setting}", f"{name}, {setting} settings", task, parts, LOOK)
    if task.tabular:
        candidates = [done["tuned", name, method] for method in REWARD]
        figures += best_visits(f"reward-{slug}-visits", candidates, "best of all trained policies")
    pairs = [(setting, method, done[setting, name, method]) for setting in SETTINGS for method in REWARD]
    parts = [(setting, method, it.last, it.stopped) for setting, method, it in pairs]
    summary = summary_table(f"reward-{slug}", task, parts)
    against = gains_table(
        f"reward-{slug}-differences",
        f"{OURS} minus each other algorithm: mean {task.unit} over the whole training, with 95% interval.",
        ["Settings", "Other", "Difference", f"{OURS} better"],
        [((setting, it), done[setting, name, OURS].last, other.last) for setting, it, other in pairs if it != OURS],
    )
    seeds = done["tuned", name, OURS].cell.seeds
    text = (
        f"{seeds} seeds, horizon {task.problem.horizon}, discount {task.problem.discount:g}. Solved means "
        f"{task.unit} of {task.threshold:.4g} or more."
    )
    return Section(f"reward-{slug}", name, text, (), figures, (summary, against))


def _claims(done: Mapping[Key, Done], setting: str, names: Sequence[str]) -> list[Claim]:
    def last(task: str, method: str) -> Measurement:
        return done[setting, task, method].last

    def claim(says: str, what: str, but: str | None, test: Callable[[str, str], bool | None]) -> Claim:
        """Put every task and every method, but for one, to a test."""
        tests = {(task, method): test(task, method) for task in names for method in REWARD if method != but}
        failed: dict[str, list[str]] = {}
        for (task, method), passed in tests.items():
            if passed is False:
                failed.setdefault(task, []).append(method)
        listed = "; ".join(f"{', '.join(methods)} on {task}" for task, methods in failed.items())
        found = list(tests.values())
        measured = f"{what}: {tally(found)}." + (f" Refuted: {listed}." if listed else "")
        return Claim("6.1", says, setting, measured, verdict(found))

    return [
        claim(
            "Given enough episodes every algorithm solves every task, with nearly optimal returns.",
            "Above the threshold of the task in the end (refuted if below, and not rising any more)",
            None,
            lambda task, method: _solved(last(task, method), tasks()[task].threshold),
        ),
        claim(
            "REINFORCE takes the longest to find the optimal policy.",
            "More episodes to the threshold than each other algorithm",
            PLAIN,
            lambda task, method: above(median_difference(last(task, PLAIN).reached, last(task, method).reached)),
        ),
        claim(
            "The other algorithms converge faster than REINFORCE.",
            "Larger area under the curve than REINFORCE",
            PLAIN,
            lambda task, method: above(gain(last(task, method), last(task, PLAIN))),
        ),
        claim(
            "TSIVR-PG consistently outperforms all other algorithms in all environments.",
            "Larger area under the curve than each other algorithm",
            OURS,
            lambda task, method: above(gain(last(task, OURS), last(task, method))),
        ),
    ]


def _solved(outcome: Measurement, threshold: float) -> bool | None:
    """Whether the end is above a threshold; below it, a curve that rises in its last quarter cannot tell."""
    test, quarter = above(centre(outcome.final), threshold), outcome.curve.shape[1] // 4
    if test is not False:
        return test
    late, before = outcome.curve[:, -quarter:].mean(1), outcome.curve[:, -2 * quarter : -quarter].mean(1)
    return None if above(centre(late - before)) else False


def _sizes(printed: Settings) -> Claim:
    """Whether the printed B and m are powers of N as the theory has them, but for rounding."""
    powers = dict.fromkeys(REWARD, (1 / 2, 1 / 2)) | {"SVRPG": (2 / 3, 1 / 3)}
    errors = [
        max(abs(size / it.snapshot_batch**power - 1) for size, power in zip(sizes, powers[method], strict=True))
        for task in TASKS
        for method in REWARD
        if method != PLAIN
        for it in [cast("Any", printed[task, method])]
        for sizes in [(it.batch, it.epoch_length)]
    ]
    return Claim(
        "6.1",
        "Batch sizes follow each algorithm's theory: B = m = N^(1/2), and B = N^(2/3), m = N^(1/3) for SVRPG.",
        "as printed",
        f"The sizes of the appendix differ from these by at most {max(errors):.0%}, which rounding explains.",
        verdict(error < ROUNDING for error in errors),
    )

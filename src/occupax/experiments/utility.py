"""Section 6.3: log coverage, MaxEnt in its readings, and algorithms that need no tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from occupax import algorithms
from occupax.analysis.charts import Chart
from occupax.analysis.statistics import Interval
from occupax.experiments import methods, tuning
from occupax.experiments.cells import (
    ExperimentCell,
    ExperimentResult,
    make_cell,
    mean_height,
    run_name,
)
from occupax.experiments.figures import learning_curves
from occupax.experiments.inference import Answer, Seeds, difference, is_above, mean
from occupax.experiments.methods import METHODS, OURS, REWARD
from occupax.experiments.scale import Scale
from occupax.experiments.sections import (
    Claim,
    Section,
    answer_word,
    claim,
    names_with,
    order_words,
    parts,
    shown,
    table,
    text,
)
from occupax.experiments.tasks import ABSORBING, COVERAGE, SIGMA, tasks
from occupax.experiments.tuning import SCORES, HyperparameterSearch, Trial, make_search

BOTH = (OURS, "TSIVR-PG (B = 4 m)")
"""TSIVR-PG with B = m = sqrt(N), the rule of section 6.1, and as printed in section 6.3."""
MAXENT = "MaxEnt"
BENCHMARKS = tuple(method for method in REWARD if method != OURS)


class Reading(NamedTuple):
    """Reading of MaxEnt."""

    own_density: bool = False
    fading: bool = False
    normalised: bool = False

    def words(self) -> list[str]:
        """Return density, mixing and distribution of the reading in words."""
        pairs = (("free", "own episodes"), ("constant", "1/k"), ("lambda", "(1 - gamma) lambda"))
        return [pair[flag] for pair, flag in zip(pairs, self, strict=True)]

    def flags(self) -> list[str]:
        """Return the names of the flags that are on."""
        return [name for name, flag in self._asdict().items() if flag]


READINGS = tuple(Reading(*flags) for flags in product((False, True), repeat=3))
FREE = Reading()
OWN = Reading(own_density=True)
DEFAULT = "ox.train's default"
FRESH = "ox.REINFORCE's defaults"
TODAY: dict[str, Any] = {DEFAULT: algorithms.PlugIn(), FRESH: algorithms.REINFORCE()}
"""Algorithms without tuning. `ox.train` plans a table of this size."""
MIXTURE_LABEL = f"{MAXENT} (mixture)"
LAST_LABEL = f"{MAXENT} (last)"
OWN_LABEL = f"{MAXENT}, own density (last)"
LABELS = (*BOTH, MIXTURE_LABEL, LAST_LABEL, DEFAULT, FRESH, OWN_LABEL)
LOOK = {label: i for i, label in enumerate(LABELS)}
LIMITS = (-90.0, -20.0)

Name = tuple[str, Reading]
"""Method and reading. All methods but MaxEnt have the first reading only."""
Key = tuple[str, str, str, Reading]
"""Setting ("printed", "area", "end" or "today"), task, method and reading."""
Results = Mapping[Key, ExperimentResult]


def names(scale: Scale, task: str) -> list[Name]:
    """Return the methods and readings of a task."""
    readings = READINGS
    if not scale.whole:
        readings = (FREE, OWN)
    listed = [(method, FREE) for method in BOTH]
    if task == ABSORBING:
        return [*listed, (MAXENT, FREE)]
    listed += [(MAXENT, reading) for reading in readings]
    return listed + [(method, FREE) for method in BENCHMARKS]


def printed_algorithm(method: str, reading: Reading) -> Any:
    """Return the algorithm of section 6.3, with B = m = sqrt(N) or a reading of MaxEnt."""
    if method == MAXENT:
        return replace(methods.printed()[COVERAGE, MAXENT], **reading._asdict())
    algorithm = methods.printed()[COVERAGE, OURS]
    batch, epoch_length = METHODS[method].sizes(algorithm.snapshot_batch)
    return replace(algorithm, batch=batch, epoch_length=epoch_length)


def searches(scale: Scale) -> dict[Name, HyperparameterSearch]:
    """Return the searches on the episodic task, those of MaxEnt at lambda only."""
    by_name: dict[Name, HyperparameterSearch] = {}
    for method, reading in names(scale, COVERAGE):
        if reading.normalised:
            continue
        printed = None
        changes: dict[str, Any] = {}
        if method in (*BOTH, MAXENT):
            printed = printed_algorithm(method, reading)
        if method == MAXENT:
            changes = reading._asdict()
        by_name[method, reading] = make_search(scale, tasks()[COVERAGE], method, printed, changes)
    return by_name


def make_cells(scale: Scale, trials: Mapping[Name, Sequence[Trial]]) -> dict[Key, ExperimentCell]:
    """Return every run of this section, with the tuned hyperparameters of the searches."""
    cells: dict[Key, ExperimentCell] = {}

    def add(setting: str, name: str, method: str, reading: Reading, algorithm: Any) -> None:
        task = tasks()[name]
        words = " ".join([method, *reading.flags()])
        file = run_name(task, setting, words, algorithm)
        cells[setting, name, method, reading] = make_cell(file, task, algorithm, scale)

    for task in scale.some((COVERAGE, ABSORBING), 1):
        for method, reading in names(scale, task):
            if method not in BENCHMARKS:
                add("printed", task, method, reading, printed_algorithm(method, reading))
    for (method, reading), search in searches(scale).items():
        for score in SCORES:
            point = tuning.winner(trials[method, reading], score).point
            add(score, COVERAGE, method, reading, search.algorithm(point))
    for method, algorithm in TODAY.items():
        add("today", COVERAGE, method, FREE, algorithm)
    return cells


def sections(results: Results) -> list[Section]:
    """Return the section of the report about section 6.3."""
    rows: list[list[str]] = []
    claims: list[Claim] = []
    for setting, name in product(("printed", "area"), (COVERAGE, ABSORBING)):
        if (setting, name, OURS, FREE) in results:
            kind = "tuned"
            if setting == "printed":
                kind = "printed"
            tests, setting_rows = _compare(results, setting, kind, name)
            rows += setting_rows
            claims.append(_maxent_claim(kind, name, tests, setting_rows))
    claims += [_benchmarks_claim(results), _sizes_claim()]
    seeds = len(next(iter(results.values())).values)
    words = text("sections", "utility", sigma=SIGMA, task=tasks()[COVERAGE], seeds=seeds)
    tables = [table("maxent", rows), table("utility", _summary_rows(results))]
    figures = [
        _figure(results, "printed", "printed"),
        _figure(results, "area", "tuned"),
    ]
    return [Section(**words, claims=claims, figures=figures, tables=tables)]


def best_ours(results: Results, setting: str, task: str) -> ExperimentResult:
    """Return the better size of TSIVR-PG, because the paper leaves the size open."""
    both = [results[setting, task, method, FREE] for method in BOTH]
    return max(both, key=lambda result: result.area().mean())


def mixture_area(result: ExperimentResult) -> Seeds:
    """Return the mean utility of the mixture over the training."""
    return mean_height(result.episodes, result.mixture)


def _compare(
    results: Results, setting: str, kind: str, name: str
) -> tuple[dict[str, Answer], list[list[str]]]:
    """Return tests and rows of TSIVR-PG minus MaxEnt in each reading. Intervals hold together."""
    readings = [reading for reading in READINGS if (setting, name, MAXENT, reading) in results]
    family = 2 * len(readings)
    ours = best_ours(results, setting, name).area()
    tests: dict[str, Answer] = {}
    rows: list[list[str]] = []
    for reading in readings:
        maxent = results[setting, name, MAXENT, reading]
        over_mixture = difference(ours, mixture_area(maxent), family)
        over_last = difference(ours, maxent.area(), family)
        words = reading.words()
        tests[", ".join([*words, "mixture"])] = is_above(over_mixture)
        tests[", ".join([*words, "last"])] = is_above(over_last)
        answers = f"{_answer(over_mixture)} / {_answer(over_last)}"
        row = [kind, tasks()[name].problem.termination, *words]
        rows.append([*row, shown(over_mixture), shown(over_last), answers])
    return tests, rows


def _answer(gain: Interval) -> str:
    return answer_word(is_above(gain))


def _maxent_claim(
    kind: str, name: str, tests: Mapping[str, Answer], rows: Sequence[Sequence[str]]
) -> Claim:
    ahead = len(names_with(tests, True))
    behind = len(names_with(tests, False))
    measured = (
        f"TSIVR-PG minus MaxEnt, mean utility over the training: {rows[0][5]} (mixture), "
        f"{rows[0][6]} (last) with a free density, constant mixing and lambda. "
        f"Ahead in {ahead} of {len(tests)} readings, behind in {behind}."
    )
    own = [row for row in rows if row[2] == "own episodes"]
    if own:
        over_mixture, over_last = own[0][5:7]
        measured += (
            f" With episodes of its own for the density: {over_mixture} (mixture), "
            f"{over_last} (last)."
        )
    return claim("maxent", tests, measured, f"{tasks()[name].problem.termination}, {kind}")


def _summary_rows(results: Results) -> list[list[str]]:
    """Return mean over the training, end and normalised score of all on the episodic task."""
    task = tasks()[COVERAGE]
    rows: list[list[str]] = []
    for (setting, name, method, reading), result in results.items():
        if name != COVERAGE or setting == "end":
            continue
        if method == MAXENT and reading not in (FREE, OWN):
            continue
        label = method
        if reading.own_density:
            label = f"{method}, own density"
        kind = setting
        by_end = result
        if setting == "area":
            kind = "tuned"
            by_end = results["end", name, method, reading]
        final = by_end.final
        area = shown(mean(result.area()))
        rows.append([kind, label, area, shown(mean(final)), task.normalised(final.mean())])
    return rows


def _figure(results: Results, setting: str, kind: str) -> Chart:
    maxent = results[setting, COVERAGE, MAXENT, FREE]
    curves = {method: results[setting, COVERAGE, method, FREE] for method in BOTH}
    curves[MIXTURE_LABEL] = maxent
    curves[LAST_LABEL] = maxent
    curves[OWN_LABEL] = results[setting, COVERAGE, MAXENT, OWN]
    for method in TODAY:
        curves[method] = results["today", COVERAGE, method, FREE]
    gain = difference(best_ours(results, setting, COVERAGE).area(), maxent.area())
    order = order_words(is_above(gain))
    by = float(gain.estimate)
    title = text("titles", "utility", kind=kind.capitalize(), order=order, by=by)
    return learning_curves(f"utility-{kind}", title, tasks()[COVERAGE], curves, LOOK, LIMITS)


def _benchmarks_claim(results: Results) -> Claim:
    """Return a claim about abilities, which fails where no benchmark is shown to end lower."""
    finals = {
        method: results["end", COVERAGE, method, FREE].final for method in (*BOTH, *BENCHMARKS)
    }
    best = max(BOTH, key=lambda method: float(np.mean(finals[method])))
    tests: dict[str, Answer] = {}
    gains: list[str] = []
    for method in BENCHMARKS:
        gain = difference(finals[best], finals[method], len(BENCHMARKS))
        tests[method] = is_above(gain) is True
        gains.append(f"{method} {shown(gain)}")
    measured = f"In the end, {best} minus: {', '.join(gains)}.{parts(tests)}"
    return claim("benchmarks", tests, measured, "tuned, with quasi-rewards")


def _sizes_claim() -> Claim:
    printed = methods.printed()[COVERAGE, OURS]
    rule = printed_algorithm(OURS, FREE)
    is_same = (printed.batch, printed.epoch_length) == (rule.batch, rule.epoch_length)
    measured = text("measured", "utility-sizes", printed=printed, expected=rule.batch)
    return claim("utility-sizes", {"": is_same}, measured, "as printed")

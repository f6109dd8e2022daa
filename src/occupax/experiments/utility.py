"""Section 6.3: log coverage, a utility that is not linear; MaxEnt in its readings; and what to use today."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from occupax import algorithms
from occupax.experiments import methods, tuning
from occupax.experiments.cells import Cell, Outcome, mean_height, run_name
from occupax.experiments.figures import curves, table
from occupax.experiments.inference import Seeds, above, difference, mean
from occupax.experiments.methods import METHODS, OURS, REWARD
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Claim, Section, answer, claim, ordered, parts, shown, text
from occupax.experiments.tasks import ABSORBING, COVERAGE, SIGMA, tasks
from occupax.experiments.tuning import Search, Trial

BOTH = (OURS, "TSIVR-PG (B = 4 m)")
"""B = m = sqrt(N), which is the rule of section 6.1, and what section 6.3 prints."""
MAXENT, BENCHMARKS = "MaxEnt", tuple(method for method in REWARD if method != OURS)
FLAGS = ("own_density", "fading", "normalised")
READINGS: tuple[tuple[bool, bool, bool], ...] = tuple(
    product((False, True), (False, True), (False, True))
)
DEFAULT, FRESH = "ox.train's default", "ox.REINFORCE's defaults"
TODAY: dict[str, Any] = {DEFAULT: algorithms.PlugIn(), FRESH: algorithms.REINFORCE()}
"""What needs no tuning; `ox.train` plans a table of this size."""
LOOK = {
    name: i
    for i, name in enumerate(
        (
            *BOTH,
            f"{MAXENT} (mixture)",
            f"{MAXENT} (last)",
            DEFAULT,
            FRESH,
            f"{MAXENT}, own density (last)",
        )
    )
}
LIMITS = (-90.0, -20.0)

Name = tuple[str, tuple[bool, bool, bool]]
"""A method and its reading; all but MaxEnt have the first one only."""
Key = tuple[str, str, str, tuple[bool, bool, bool]]
"""A setting, "printed", "area", "end" or "today", a task, a method and a reading."""


def reading_words(reading: tuple[bool, bool, bool]) -> list[str]:
    """A reading of MaxEnt in words: density, mixing, distribution."""
    words = (("free", "own episodes"), ("constant", "1/k"), ("lambda", "(1 - gamma) lambda"))
    return [pair[flag] for pair, flag in zip(words, reading, strict=True)]


def names(scale: Scale, task: str) -> list[Name]:
    """What is run on a task."""
    plain = READINGS[0]
    read = READINGS if scale.whole else (plain, READINGS[4])
    made = [*((method, plain) for method in BOTH), *((MAXENT, reading) for reading in read)]
    if task == ABSORBING:
        return made[:3]
    return made + [(method, plain) for method in BENCHMARKS]


def printed_algorithm(method: str, reading: tuple[bool, bool, bool]) -> Any:
    """What section 6.3 prints, or the same with B = m = sqrt(N), or with a reading of MaxEnt."""
    given = methods.printed()[COVERAGE, MAXENT if method == MAXENT else OURS]
    if method == MAXENT:
        return replace(given, **dict(zip(FLAGS, reading, strict=True)))
    batch, length = METHODS[method].sizes(given.snapshot_batch)
    return replace(given, batch=batch, epoch_length=length)


def searches(scale: Scale) -> dict[Name, Search]:
    """The searches for tuned settings, of the episodic task; of MaxEnt at lambda only."""
    found: dict[Name, Search] = {}
    for method, reading in (name for name in names(scale, COVERAGE) if not name[1][2]):
        printed = printed_algorithm(method, reading) if method in (*BOTH, MAXENT) else None
        changes = tuple(zip(FLAGS, reading, strict=True)) if method == MAXENT else ()
        found[method, reading] = Search.at(scale, tasks()[COVERAGE], method, printed, changes)
    return found


def cells(scale: Scale, found: Mapping[Name, Sequence[Trial]]) -> dict[Key, Cell]:
    """Every run of this section, with the tuned settings of the searches."""
    made: dict[Key, Cell] = {}

    def add(setting: str, task: str, name: Name, algorithm: Any) -> None:
        kinds = [flag for flag, on in zip(FLAGS, name[1], strict=True) if on]
        of = tasks()[task]
        file = run_name(of, setting, " ".join([name[0], *kinds]), algorithm)
        made[setting, task, *name] = Cell(
            file, of, algorithm, scale.episodes(of.episodes), scale.seeds(of.seeds)
        )

    for task in (COVERAGE, ABSORBING) if scale.whole else (COVERAGE,):
        for name in names(scale, task):
            if name[0] in (*BOTH, MAXENT):
                add("printed", task, name, printed_algorithm(*name))
    for name, search in searches(scale).items():
        for by in ("area", "end"):
            add(by, COVERAGE, name, search.algorithm(tuning.winner(found[name], by).point))
    for method, algorithm in TODAY.items():
        add("today", COVERAGE, (method, READINGS[0]), algorithm)
    return made


def areas(done: Mapping[Key, Outcome], setting: str, task: str, name: Name) -> tuple[Seeds, Seeds]:
    """The mean exact utility over the training of the policy, and of the mixture."""
    it = done[setting, task, *name]
    return it.area(), mean_height(it.episodes, it.mixture)


def sections(done: Mapping[Key, Outcome]) -> list[Section]:
    """What the report says of section 6.3."""
    compared = [
        (setting, task) for setting in ("printed", "area") for task in (COVERAGE, ABSORBING)
    ]
    compared = [it for it in compared if (*it, OURS, READINGS[0]) in done]
    rows: list[list[str]] = []
    claims: list[Claim] = []
    for setting, task in compared:
        tests, found = _compare(done, setting, task)
        rows += found
        claims.append(_maxent(setting, task, tests, found))
    task = tasks()[COVERAGE]
    values = {"sigma": SIGMA, "task": task, "seeds": len(next(iter(done.values())).values)}
    tables = [table("maxent", rows), table("utility", _summary(done))]
    head = Section(**text("sections", "utility", **values), claims=[*claims, _benchmarks(done), _sizes()],
                   figures=_figures(done), tables=tables)  # fmt: skip
    return [head]


def best_ours(done: Mapping[Key, Outcome], setting: str, task: str) -> str:
    """The better one of the two sizes of TSIVR-PG, so that nothing is held against it that the paper leaves open."""
    return max(BOTH, key=lambda method: areas(done, setting, task, (method, READINGS[0]))[0].mean())


def _compare(
    done: Mapping[Key, Outcome], setting: str, task: str
) -> tuple[dict[str, bool | None], list[list[str]]]:
    """TSIVR-PG minus MaxEnt in each reading, for its mixture and its last policy; intervals hold together."""
    mine = [reading for reading in READINGS if (setting, task, MAXENT, reading) in done]
    ours = areas(done, setting, task, (best_ours(done, setting, task), READINGS[0]))[0]
    tests: dict[str, bool | None] = {}
    rows: list[list[str]] = []
    kind = "printed" if setting == "printed" else "tuned"
    for reading in mine:
        last, mixture = areas(done, setting, task, (MAXENT, reading))
        gains = [difference(ours, other, 2 * len(mine)) for other in (mixture, last)]
        found = [above(gain) for gain in gains]
        tests |= {
            ", ".join([*reading_words(reading), which]): test
            for which, test in zip(("mixture", "last"), found, strict=True)
        }
        rows.append([kind, tasks()[task].problem.termination, *reading_words(reading), *(shown(gain) for gain in gains),
                     " / ".join(map(answer, found))])  # fmt: skip
    return tests, rows


def _maxent(
    setting: str, task: str, tests: Mapping[str, bool | None], rows: Sequence[Sequence[str]]
) -> Claim:
    kind = "printed" if setting == "printed" else "tuned"
    counts = [sum(test is of for test in tests.values()) for of in (True, False, None)]
    measured = f"""TSIVR-PG minus MaxEnt, mean utility over the training: {rows[0][5]} (mixture), {rows[0][6]} (last)
    with a free density, constant mixing and lambda. Ahead in {counts[0]} of {len(tests)} readings,
    behind in {counts[1]}."""
    if len(rows) > 1:
        owns = next(row for row in rows if row[2] == "own episodes")
        measured += (
            f" With episodes of its own for the density: {owns[5]} (mixture), {owns[6]} (last)."
        )
    return claim(
        "maxent",
        dict(tests),
        " ".join(measured.split()),
        f"{tasks()[task].problem.termination}, {kind}",
    )


def _summary(done: Mapping[Key, Outcome]) -> list[list[str]]:
    """The mean over the training and the end of everything on the episodic task, with the share of the way."""
    task, rows = tasks()[COVERAGE], []
    way = task.optimum - task.uniform
    for setting, of, method, reading in done:
        if (
            of != COVERAGE
            or setting == "end"
            or (method == MAXENT and reading not in (READINGS[0], READINGS[4]))
        ):
            continue
        kind = {"area": "tuned"}.get(setting, setting)
        label = f"{method}, own density" if reading[0] else method
        final = done["end" if setting == "area" else setting, of, method, reading].final
        share = f"{(final.mean() - task.uniform) / way:.0%}"
        rows.append(
            [
                kind,
                label,
                shown(mean(done[setting, of, method, reading].area())),
                shown(mean(final)),
                share,
            ]
        )
    return rows


def _figures(done: Mapping[Key, Outcome]) -> list[Any]:
    first, own = READINGS[0], READINGS[4]
    made = []
    for setting, kind in (("printed", "printed"), ("area", "tuned")):
        shown_ones = {method: done[setting, COVERAGE, method, first] for method in BOTH}
        maxent = done[setting, COVERAGE, MAXENT, first]
        shown_ones |= {f"{MAXENT} (mixture)": maxent, f"{MAXENT} (last)": maxent}
        shown_ones |= {f"{MAXENT}, own density (last)": done[setting, COVERAGE, MAXENT, own]}
        shown_ones |= {method: done["today", COVERAGE, method, first] for method in TODAY}
        ours, last = (
            done[setting, COVERAGE, it, first].area()
            for it in (best_ours(done, setting, COVERAGE), MAXENT)
        )
        gain = difference(ours, last)
        title = text(
            "titles",
            "utility",
            kind=kind.capitalize(),
            order=ordered(above(gain)),
            by=float(gain.estimate),
        )
        made.append(curves(f"utility-{kind}", title, tasks()[COVERAGE], shown_ones, LOOK, LIMITS))
    return made


def _benchmarks(done: Mapping[Key, Outcome]) -> Claim:
    """The claim is about abilities: it fails for a benchmark of which nothing says that it ends lower."""
    finals = {name: done["end", COVERAGE, name, READINGS[0]].final for name in (*BOTH, *BENCHMARKS)}
    best = max(BOTH, key=lambda name: float(np.mean(finals[name])))
    gains = {name: difference(finals[best], finals[name], len(BENCHMARKS)) for name in BENCHMARKS}
    tests = {name: above(gain) is True for name, gain in gains.items()}
    listed = ", ".join(f"{name} {shown(gain)}" for name, gain in gains.items())
    return claim(
        "benchmarks",
        tests,
        f"In the end, {best} minus: {listed}.{parts(tests)}",
        "tuned, with quasi-rewards",
    )


def _sizes() -> Claim:
    given, rule = methods.printed()[COVERAGE, OURS], printed_algorithm(OURS, READINGS[0])
    same = (given.batch, given.epoch_length) == (rule.batch, rule.epoch_length)
    measured = text("measured", "utility-sizes", printed=given, expected=rule.batch)
    return claim("utility-sizes", {"": same}, measured, "as printed")

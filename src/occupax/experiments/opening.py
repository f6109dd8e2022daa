"""Sentences at the head of the report, each with its number."""

from collections.abc import Mapping
from typing import Any

from occupax.experiments import convergence, episodes_to_gap, rate, utility
from occupax.experiments.cells import ExperimentCell, ExperimentResult
from occupax.experiments.convergence import Run
from occupax.experiments.inference import difference, is_above, mean, median
from occupax.experiments.methods import OURS, PLAIN
from occupax.experiments.readings import ADAM, CONTROL, CUT, MEAN_BASELINE, PRINTED, SMALL
from occupax.experiments.reward import SAME_STEP, family_size
from occupax.experiments.sections import order_words, shown, text
from occupax.experiments.small import GARNET
from occupax.experiments.tasks import CARTPOLE, COVERAGE, LAKE, tasks
from occupax.jobs import JobResult


def _sentence(name: str, **values: Any) -> str:
    return text("opening", name, **values)


def reward_sentences(
    results: Mapping[Any, ExperimentResult], readings: Mapping[Any, ExperimentResult]
) -> list[str]:
    """Return three sentences about tables, and two about networks if they were run."""
    threshold = tasks()[LAKE].threshold
    ours = results["printed", LAKE, OURS]
    plain = results["printed", LAKE, PLAIN]
    same_step = difference(ours.area(), results["printed", LAKE, SAME_STEP].area())
    tuned = difference(
        results["area", LAKE, OURS].area(),
        results["area", LAKE, PLAIN].area(),
        family_size(results),
    )
    sentences = [
        _sentence(
            "lake",
            ours=shown(median(ours.episodes_to(threshold, exact=True))),
            plain=shown(median(plain.episodes_to(threshold, exact=True))),
            threshold=threshold,
        ),
        _sentence("same-step", gain=shown(same_step), order=order_words(is_above(same_step))),
        _sentence("lake-tuned", gain=shown(tuned), order=order_words(is_above(tuned))),
    ]
    if (CARTPOLE, CONTROL, CUT) not in readings:
        return sentences

    def area(reading: str, method: str) -> str:
        return shown(mean(readings[CARTPOLE, reading, method].area()))

    controls = _sentence(
        "cartpole",
        ours=area(CONTROL, OURS),
        plain=area(CONTROL, PLAIN),
        cut=area(CONTROL, CUT),
        small=area(CONTROL, SMALL),
    )
    baselines = _sentence(
        "baseline",
        printed=area(PRINTED, PLAIN),
        mean=area(MEAN_BASELINE, PLAIN),
        adam=area(ADAM, PLAIN),
    )
    return [*sentences, controls, baselines]


def rate_sentences(
    results: Mapping[Any, ExperimentResult],
    cells: Mapping[Any, ExperimentCell],
    controls: Mapping[str, JobResult],
) -> list[str]:
    """Return a sentence about the paper's curve."""
    tuned = rate.paper_curve(LAKE, results, cells, controls)
    stated = rate.paper_curve(rate.GIVEN, results, cells, controls)
    return [
        _sentence(
            "rate",
            slope=shown(tuned.law.slope),
            control=tuned.control_slope,
            given=shown(stated.law.slope),
            given_control=stated.control_slope,
        )
    ]


def convergence_sentences(
    results: Mapping[Run, ExperimentResult], cells: Mapping[Run, ExperimentCell]
) -> list[str]:
    """Return a sentence about the rate where the theorem applies."""
    main = convergence.main_setting(cells, GARNET)
    ours = convergence.small_curve(GARNET, OURS, main, results, cells)
    plain = convergence.small_curve(GARNET, PLAIN, main, results, cells)
    ratio = convergence.gap_ratio(ours.gaps[-1], plain.gaps[-1])
    return [_sentence("theorem", slope=shown(ours.law.slope), ratio=ratio)]


def gap_sentences(results: Mapping[Any, JobResult]) -> list[str]:
    """Return a sentence about the effect of variance reduction."""
    medians: dict[str, str] = {}
    for method in (OURS, PLAIN):
        times = results[GARNET, method].arrays["times"]
        best = episodes_to_gap.envelope(GARNET, method, times)
        medians[method] = best.median_text(episodes_to_gap.HEADLINE)
    return [_sentence("payoff", ours=medians[OURS], plain=medians[PLAIN])]


def utility_sentences(results: Mapping[Any, ExperimentResult]) -> list[str]:
    """Return a sentence about MaxEnt, and one about algorithms that need no tuning."""
    ours = utility.best_ours(results, "printed", COVERAGE).area()

    def gain(reading: utility.Reading) -> str:
        maxent = results["printed", COVERAGE, utility.MAXENT, reading]
        return shown(difference(ours, maxent.area()))

    def score(result: ExperimentResult) -> str:
        return tasks()[COVERAGE].normalised(result.final.mean())

    tuned = utility.best_ours(results, "end", COVERAGE)
    default = results["today", COVERAGE, utility.DEFAULT, utility.FREE]
    fresh = results["today", COVERAGE, utility.FRESH, utility.FREE]
    return [
        _sentence("maxent", free=gain(utility.FREE), own=gain(utility.OWN)),
        _sentence("today", ours=score(tuned), default=score(default), fresh=score(fresh)),
    ]

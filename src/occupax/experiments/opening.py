"""The plain sentences at the head of the report, each with its number."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from occupax.experiments import convergence, episodes_to_gap, rate, utility
from occupax.experiments.cells import Cell, Outcome
from occupax.experiments.inference import above, difference, mean, median, power_law
from occupax.experiments.methods import OURS, PLAIN
from occupax.experiments.readings import CUT, PRINTED, SMALL
from occupax.experiments.reward import SAME_STEP, family
from occupax.experiments.sections import ordered, shown, text
from occupax.experiments.small import GARNET
from occupax.experiments.store import Arrays
from occupax.experiments.tasks import CARTPOLE, COVERAGE, LAKE, tasks


def _say(name: str, **values: Any) -> str:
    return text("opening", name, **values)


def reward_sentences(done: Mapping[Any, Outcome], read: Mapping[Any, Outcome]) -> list[str]:
    """Three sentences on tables, and two on networks where they were run."""
    lake = tasks()[LAKE]
    times = {
        method: shown(median(done["printed", LAKE, method].reached(lake.threshold, True)))
        for method in (OURS, PLAIN)
    }
    gain = difference(done["printed", LAKE, OURS].area(), done["printed", LAKE, SAME_STEP].area())
    tuned = difference(
        done["area", LAKE, OURS].area(), done["area", LAKE, PLAIN].area(), family(done)
    )
    told = [
        _say("lake", ours=times[OURS], plain=times[PLAIN], threshold=lake.threshold),
        _say("same-step", gain=shown(gain), order=ordered(above(gain))),
        _say("lake-tuned", gain=shown(tuned), order=ordered(above(tuned))),
    ]
    if (CARTPOLE, "control", CUT) not in read:
        return told
    pole = {
        name: shown(mean(read[CARTPOLE, "control", name].area()))
        for name in (OURS, PLAIN, CUT, SMALL)
    }
    baseline = {
        kind: shown(mean(read[CARTPOLE, kind, PLAIN].area()))
        for kind in (PRINTED, "mean baseline", "Adam")
    }
    told.append(
        _say("cartpole", ours=pole[OURS], plain=pole[PLAIN], cut=pole[CUT], small=pole[SMALL])
    )
    told.append(
        _say(
            "baseline",
            printed=baseline[PRINTED],
            mean=baseline["mean baseline"],
            adam=baseline["Adam"],
        )
    )
    return told


def _slopes(
    curve: str, done: Mapping[Any, Outcome], made: Mapping[Any, Cell], exactly: Mapping[str, Arrays]
) -> tuple[str, float]:
    """The slope of a curve of the lake with its interval, and that of the exact-gradient control."""
    way, roots = rate.ways(LAKE)[0], [root for name, root in done if name == curve]
    episodes = [made[curve, root].episodes for root in roots]
    law = power_law(episodes, [way.of(done[curve, root].tables) for root in roots])
    control = np.maximum(way.optimum - exactly[curve]["values"], 1e-9)
    return shown(law.slope), float(
        power_law(episodes, [np.full(2, gap) for gap in control]).slope.estimate
    )


def _convergence(done: Mapping[Any, Outcome], made: Mapping[Any, Cell]) -> tuple[str, str]:
    """The slope of TSIVR-PG on the garnet, and its gap over that of REINFORCE at the largest N."""
    main = convergence.main_setting(made, GARNET)
    gaps = {
        method: {
            run: convergence.gaps_of(GARNET, main, it.final)
            for run, it in done.items()
            if run[:3] == (GARNET, method, main)
        }
        for method in (OURS, PLAIN)
    }
    law = power_law([made[run].episodes for run in gaps[OURS]], list(gaps[OURS].values()), 0.9)
    ours, plain = (np.log(list(gaps[method].values())[-1]) for method in (OURS, PLAIN))
    ratio = [f"{np.exp(bound):.2f}" for bound in difference(ours, plain)]
    return shown(law.slope), f"{ratio[0]} [{ratio[1]}, {ratio[2]}]"


def rate_sentences(
    done: Mapping[Any, Outcome], made: Mapping[Any, Cell], exactly: Mapping[str, Arrays],
    converged: Mapping[Any, Outcome], small: Mapping[Any, Cell], times: Mapping[Any, Arrays],
) -> list[str]:  # fmt: skip
    """Two sentences on rates, and one on what variance reduction pays."""
    slope, control = _slopes(LAKE, done, made, exactly)
    given, given_control = _slopes(rate.GIVEN, done, made, exactly)
    law, ratio = _convergence(converged, small)
    place = episodes_to_gap.SHARES.index(episodes_to_gap.HEADLINE)
    found = {
        method: shown(
            median(
                episodes_to_gap.envelope(GARNET, method, times[GARNET, method]["times"]).times[
                    place
                ]
            )
        )
        for method in (OURS, PLAIN)
    }
    return [
        _say("rate", slope=slope, control=control, given=given, given_control=given_control),
        _say("theorem", slope=law, ratio=ratio),
        _say("payoff", ours=found[OURS], plain=found[PLAIN]),
    ]


def utility_sentences(done: Mapping[Any, Outcome]) -> list[str]:
    """A sentence on MaxEnt, and one on what to use."""
    first, own = utility.READINGS[0], utility.READINGS[4]
    ours = done["printed", COVERAGE, utility.best_ours(done, "printed", COVERAGE), first].area()
    free, owned = (
        difference(ours, done["printed", COVERAGE, utility.MAXENT, it].area())
        for it in (first, own)
    )
    task, way = tasks()[COVERAGE], tasks()[COVERAGE].optimum - tasks()[COVERAGE].uniform
    best = utility.best_ours(done, "end", COVERAGE)
    ends = [
        done["end", COVERAGE, best, first],
        *(done["today", COVERAGE, name, first] for name in utility.TODAY),
    ]
    shares = [f"{(it.final.mean() - task.uniform) / way:.0%}" for it in ends]
    return [
        _say("maxent", free=shown(free), own=shown(owned)),
        _say("today", ours=shares[0], default=shares[1], fresh=shares[2]),
    ]

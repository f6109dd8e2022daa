"""Section 6.1: all algorithms maximise the cumulative reward."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from occupax.analysis.statistics import bootstrap_difference
from occupax.experiments.cells import Done, Measurement
from occupax.experiments.methods import METHODS, REWARD, Settings
from occupax.experiments.sections import Claim, Section, above, centre, claim, text, upper_median
from occupax.experiments.tasks import ACROBOT, CARTPOLE, LAKE
from occupax.experiments.views import Comparison, Key, gain

OURS, PLAIN = "TSIVR-PG", "REINFORCE"
TASKS = {LAKE: "frozenlake8x8", CARTPOLE: "cartpole", ACROBOT: "acrobot"}
LOOK = {method: i for i, method in enumerate(REWARD)}
COMPARISON = Comparison("reward", TASKS, dict.fromkeys(("printed", "tuned"), REWARD), (OURS,), REWARD, LOOK)
ROUNDING = 0.1
"""By how much a printed size may differ from the theory's."""

Tests = Mapping[tuple[str, str], bool | None]
"""Whether a claim holds, for a task and a method; None if that cannot be told."""


def sections(done: Mapping[Key, Done], printed: Settings) -> list[Section]:
    """What the report says of section 6.1."""
    claims = [claim for setting in COMPARISON.methods for claim in _claims(done, setting)]
    head = Section(**text("sections", "reward"), claims=[*claims, _sizes(printed)])
    return [head, *COMPARISON.sections(done)]


def _claims(done: Mapping[Key, Done], setting: str) -> list[Claim]:
    mine = {(task, method): it for (of, task, method), it in done.items() if of == setting}
    last = {key: it.last for key, it in mine.items()}

    def against(method: str, test: Callable[[Measurement, Measurement], bool | None]) -> Tests:
        """Put every other method to a test against this one."""
        return {key: test(it, last[key[0], method]) for key, it in last.items() if key[1] != method}

    every = {
        "solved": {key: _solved(it.last, it.cell.task.threshold) for key, it in mine.items()},
        "slowest": against(PLAIN, lambda it, of: above(bootstrap_difference(of.reached, it.reached, upper_median))),
        "faster": against(PLAIN, lambda it, plain: above(gain(it, plain))),
        "outperforms": against(OURS, lambda it, ours: above(gain(ours, it))),
    }
    return [claim(name, tests.values(), setting=setting, refuted=_refuted(tests)) for name, tests in every.items()]


def _refuted(tests: Tests) -> str:
    failed: dict[str, list[str]] = {}
    for (task, method), passed in tests.items():
        if passed is False:
            failed.setdefault(task, []).append(method)
    listed = "; ".join(f"{', '.join(methods)} on {task}" for task, methods in failed.items())
    return f" Refuted: {listed}." if listed else ""


def _solved(outcome: Measurement, threshold: float) -> bool | None:
    """Whether the end is above a threshold; below it, a curve that rises in its last quarter cannot tell."""
    test, quarter = above(centre(outcome.final), threshold), outcome.curve.shape[1] // 4
    if test is not False:
        return test
    late, before = outcome.curve[:, -quarter:].mean(1), outcome.curve[:, -2 * quarter : -quarter].mean(1)
    return None if above(centre(late - before)) else False


def _sizes(printed: Settings) -> Claim:
    """Whether the printed B and m are powers of N as the theory has them, but for rounding."""
    errors: list[float] = []
    for task, method in product(TASKS, (method for method in REWARD if method != PLAIN)):
        it: Any = printed[task, method]
        pairs = zip((it.batch, it.epoch_length), METHODS[method].powers or (), strict=True)
        errors.append(max(abs(size / it.snapshot_batch**power - 1) for size, power in pairs))
    return claim("sizes", (error < ROUNDING for error in errors), error=max(errors))

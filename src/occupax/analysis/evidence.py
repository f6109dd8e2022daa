"""What the rules of the diagnosis ask of a training: how the utility went, and how much of that is noise."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occupax import features
from occupax.analysis.verdict import short
from occupax.envs.tabular import TabularMDP
from occupax.features import Feature
from occupax.problem import Problem
from occupax.training.assessment import References
from occupax.training.records import EXACT
from occupax.training.result import Result
from occupax.training.schedule import Schedule

FEW = 20
"""Fewer iterations than this are too few to expect anything of."""
WINDOW, WINDOWS = 10, 10
"""A training is looked at in tenths, of ten records at least: with fewer, their noise is not known well enough."""
RISE = 3.0
"""Standard errors that a rise must exceed: noise alone does in one of 700 trainings."""
LITTLE = 0.01
"""Less than a hundredth of the way from the first policy to the optimum is no progress."""
GOOD = 0.95
"""A first policy that is so far on the way from the uniform one leaves next to nothing to learn."""


class Window(NamedTuple):
    """The mean of some consecutive records of a seed."""

    mean: float
    noise: float
    """The standard deviation of a record, from the differences between records, which a trend hardly changes."""
    error: float
    """The standard error of the mean."""


@dataclass(frozen=True)
class Evidence:
    """A result, and what several rules ask of it."""

    result: Result

    @cached_property
    def references(self) -> References:
        """What other policies are worth; NaN where it is not known."""
        return self.result.references or References(np.nan)

    def known(self, metric: str) -> list[Float[np.ndarray, " record"]]:
        """What was recorded of each seed, up to where it was stopped; nothing in older folders that do not have it."""
        rows = self.result.metrics.get(metric, np.zeros((len(self.result.seeds), 0)))
        return [row[~np.isnan(row)].astype(float) for row in rows]

    @cached_property
    def curves(self) -> list[Float[np.ndarray, " record"]]:
        """The utility of each seed: the exact one where it was recorded, else the estimate from its own batches."""
        return self.known(EXACT[0] if EXACT[0] in self.result.metrics else "utility")

    @cached_property
    def median(self) -> float:
        """The median of what the trained policies are worth; NaN if none is finite."""
        known = self.result.utilities[~np.isnan(self.result.utilities)]
        return float(np.median(known)) if known.size else np.nan

    @cached_property
    def iterations(self) -> int:
        """How many iterations there were, or at least how many records."""
        if self.result.algorithm is None or not len(self.result.episodes):
            return len(self.result.episodes)
        return Schedule(self.result.algorithm).iterations(int(self.result.episodes[-1]))

    @cached_property
    def counts_reward(self) -> bool:
        """Whether the utility is one of the environment's reward."""
        return self.result.problem is not None and _counts_reward(self.result.problem.features)

    @cached_property
    def no_progress(self) -> str | None:
        """What the policies came to, in words, if that is no better than where they began; None if it is, or too short.

        Where the optimum is known, the median policy is compared with the first one exactly; elsewhere the last tenth
        of the records with the first ten of them, all seeds together.
        """
        if self.iterations < FEW:
            return None
        if np.isfinite(self.references.way):
            return self._no_exact_progress()
        pairs = [(self.windows(curve)[0], self.windows(curve)[-1]) for curve in self.curves if self.windows(curve)]
        if not pairs:
            return None
        rise = np.mean([last.mean - first.mean for first, last in pairs])
        error = np.sqrt(np.sum([first.error**2 + last.error**2 for first, last in pairs])) / len(pairs)
        if rise > RISE * error:
            return None
        before, after = (float(np.mean([pair[i].mean for pair in pairs])) for i in (0, 1))
        rose = f"no more than noise explains (standard error {short(float(error))})" if rise > 0 else "which is no rise"
        return f"the mean utility of the first records is {short(before)} and that of the last {short(after)}, {rose}"

    def _no_exact_progress(self) -> str | None:
        others, reached = self.references, self.median
        if others.optimum is None or np.isnan(reached) or others.share(others.first) >= GOOD:
            return None
        if reached - others.first >= LITTLE * (others.optimum - others.first):
            return None
        first, optimum = short(others.first, others.way), short(others.optimum, others.way)
        return f"the median policy is worth {short(reached, others.way)}, the first one {first}, the best {optimum}"

    def windows(self, curve: Float[np.ndarray, " record"]) -> list[Window]:
        """The first few records, then the rest in tenths; nothing if there are too few records."""
        few, length = self._length(0), self._length(len(curve) // WINDOWS)
        ends = range(len(curve), few + length - 1, -length)
        parts = [(0, few), *((end - length, end) for end in reversed(ends))]
        return [self._window(curve[slice(*part)]) for part in parts] if ends else []

    def _length(self, records: int) -> int:
        """Whole periods of the algorithm, whose batches differ in noise and bias, and two at least for a difference."""
        return self._period * max(2, -(-max(WINDOW, records) // self._period))

    @cached_property
    def _period(self) -> int:
        """After how many records the phases of the algorithm repeat."""
        if self.result.algorithm is None:
            return 1
        repeats = Schedule(self.result.algorithm).period
        return repeats // int(np.gcd(repeats, self.result.config["setup"]["record_every"]))

    def _window(self, part: Float[np.ndarray, " record"]) -> Window:
        noise = float(np.sqrt(np.mean((part[self._period :] - part[: -self._period]) ** 2) / 2))
        return Window(float(part.mean()), noise, noise / float(np.sqrt(len(part))))


def may_end(problem: Problem, returns: Float[np.ndarray, " record"]) -> bool:
    """Whether an episode may end by itself before the horizon, so that one that is cut there says something.

    A table tells. Elsewhere it is not known, and only episodes that all earn the same are taken for such.
    """
    env, steps = problem.env, problem.sampling_horizon() - 1
    if not isinstance(env, TabularMDP):
        return returns.size > 0 and bool((returns == returns[0]).all())
    reached, onward = env.initial > 0, env.transition.T
    for _ in range(min(steps, env.num_states)):
        reached = reached | (onward @ np.repeat(reached.astype(float), env.num_actions) > 0)
    return bool(np.any(env.terminal & reached))


def _counts_reward(feature: Feature) -> bool:
    if isinstance(feature, features.Stack):
        return any(map(_counts_reward, feature.parts))
    return isinstance(feature, features.Reward)

"""What the rules of the diagnosis ask of a training: how the utility went, and how much of that is noise."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import Var
from jaxtyping import Float

from occupax import features
from occupax.analysis.verdict import short
from occupax.constraints import Constraint
from occupax.envs.base import DecisionProcess, Environment
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.registry import implementation
from occupax.envs.tabular import TabularMDP
from occupax.features import Feature
from occupax.io.records import EXACT
from occupax.outcome import Assessment, Outcome, References
from occupax.problem import Problem
from occupax.training.assessment import EPISODES, GYMNASIUM_EPISODES
from occupax.training.schedule import Schedule

FEW = 20
"""Fewer iterations than this are too few to expect anything of."""
WINDOW, WINDOWS = 10, 10
"""A training is looked at in tenths, of ten records at least: with fewer, their noise is not known
well enough."""
RISE = 3.0
"""Standard errors that a rise must exceed: noise alone does in one of 700 trainings."""
ROUNDING = 1e-4
"""Numbers that differ by less than this share of them are the same: estimates are sums in single
precision."""
KEPT, KEPT_ESTIMATED = 0.02, 0.05
"""The excess, as a share of the limit, from which on a limit is not kept: smaller ones come and go
with the policy. The second is for estimates from episodes, which have an error of their own."""
LITTLE = 0.01
"""Less than a hundredth of the way from the first policy to the optimum is no progress."""
GOOD = 0.95
"""A first policy that is so far on the way from the uniform one leaves next to nothing to learn."""


class Window(NamedTuple):
    """The mean of some consecutive records of a seed."""

    mean: float
    noise: float
    """The standard deviation of a record, from the differences between records, which a trend
    hardly changes."""
    error: float
    """The standard error of the mean."""
    violation: float
    """The mean violation of the constraints, see `Evidence.violations`."""


@dataclass(frozen=True)
class Evidence:
    """Statistics of a run that several rules of the diagnosis use."""

    outcome: Outcome
    assessment: Assessment

    @cached_property
    def references(self) -> References:
        """What other policies are worth; NaN where it is not known."""
        return self.assessment.references or References(np.nan)

    def known(self, metric: str) -> list[Float[np.ndarray, " record"]]:
        """What was recorded of each seed, up to where it was stopped; nothing in older folders that do not have it."""
        rows = self.outcome.metrics.get(metric, np.zeros((len(self.outcome.seeds), 0)))
        return [row[~np.isnan(row)].astype(float) for row in rows]

    @cached_property
    def curves(self) -> list[Float[np.ndarray, " record"]]:
        """The utility of each seed: the exact one where it was recorded, else the estimate from its own batches."""
        return self.known(EXACT[0] if EXACT[0] in self.outcome.metrics else "utility")

    @cached_property
    def violations(self) -> list[Float[np.ndarray, " record"]]:
        """The largest violation of a constraint at each record of each seed, as a share of its limit."""
        worst = [np.zeros(len(curve)) for curve in self.curves]
        for constraint in self._constraints:
            for i, row in enumerate(self.known(f"violation/{constraint.name}")):
                if len(row) == len(worst[i]):
                    worst[i] = np.maximum(worst[i], row / (abs(constraint.limit) or 1.0))
        return worst

    @cached_property
    def allowed(self) -> Float[np.ndarray, " seed"]:
        """The violation up to which an earlier policy of each seed is no worse than the returned one."""
        allowed = np.full(len(self.outcome.seeds), KEPT_ESTIMATED)
        for constraint, excess in zip(self._constraints, self.excesses, strict=True):
            allowed = np.fmax(allowed, excess / (abs(constraint.limit) or 1.0))
        return allowed

    @property
    def _constraints(self) -> tuple[Constraint, ...]:
        return () if self.outcome.problem is None else self.outcome.problem.constraints

    @property
    def excesses(self) -> list[Float[np.ndarray, " seed"]]:
        """The violation of each constraint."""
        return [] if self.assessment.excesses is None else list(self.assessment.excesses.T)

    def violates(self, seed: int) -> bool:
        """Return whether the returned policy of a seed violates a constraint."""
        return bool(self.allowed[seed] > KEPT_ESTIMATED)

    def compares_with_first(self, seed: int) -> bool:
        """Return whether the first policy of a seed satisfies the constraints as well as the returned one.

        Where it does not, a lower utility is what the constraints cost.
        """
        first = self.violations[seed][: self._length(0)]
        return not first.size or bool(max(first[0], first.mean()) <= self.allowed[seed])

    @cached_property
    def median(self) -> float:
        """The median of what the trained policies are worth; NaN if none is finite."""
        known = self.assessment.utilities[~np.isnan(self.assessment.utilities)]
        return float(np.median(known)) if known.size else np.nan

    @cached_property
    def iterations(self) -> int:
        """How many iterations there were, or at least how many records."""
        if self.outcome.algorithm is None or not len(self.outcome.episodes):
            return len(self.outcome.episodes)
        return Schedule(self.outcome.algorithm).iterations(int(self.outcome.episodes[-1]))

    @cached_property
    def counts_reward(self) -> bool:
        """Whether the utility is one of the environment's reward."""
        return self.outcome.problem is not None and _counts_reward(self.outcome.problem.features)

    @cached_property
    def no_progress(self) -> str | None:
        """What the policies came to, in words, if that is no better than where they began; None if it is, or too short.

        Where the optimum is known, the median policy is compared with the first one exactly;
        elsewhere the last tenth of the records with the first ten of them, all seeds together.
        """
        seeds = [i for i in range(len(self.curves)) if self.compares_with_first(i)]
        if self.iterations < FEW or not seeds:
            return None
        if np.isfinite(self.references.way):
            return self._no_exact_progress()
        windows = [self.windows(i) for i in seeds]
        pairs = [(of_seed[0], of_seed[-1]) for of_seed in windows if of_seed]
        if not pairs or self._is_assessed_better(pairs):
            return None
        rise = np.mean([last.mean - first.mean for first, last in pairs])
        error = np.sqrt(np.sum([first.error**2 + last.error**2 for first, last in pairs])) / len(
            pairs
        )
        before, after = (float(np.mean([pair[i].mean for pair in pairs])) for i in (0, 1))
        if rise > max(RISE * error, ROUNDING * abs(before)):
            return None
        rose = (
            f"no more than noise explains (standard error {short(float(error))})"
            if rise > 0
            else "which is no rise"
        )
        return f"the mean utility of the first records is {short(before)} and that of the last {short(after)}, {rose}"

    def _is_assessed_better(self, pairs: list[tuple[Window, Window]]) -> bool:
        """Return whether the returned policies are better than the first one in new episodes, by more than noise.

        The first records may be those of policies that had learned already, and the whole of a rise
        is before them.
        """
        rise = self.median - self.references.first
        noise = max(window.noise for pair in pairs for window in pair)
        batch = 1 if self.outcome.algorithm is None else max(Schedule(self.outcome.algorithm).sizes)
        is_gymnasium = self.outcome.problem is not None and isinstance(
            self.outcome.problem.env, GymnasiumEnv
        )
        episodes = GYMNASIUM_EPISODES if is_gymnasium else EPISODES
        error = noise * np.sqrt(2 * batch / episodes)
        return bool(rise > max(RISE * error, ROUNDING * abs(self.median)))

    def _no_exact_progress(self) -> str | None:
        others, reached = self.references, self.median
        if others.optimum is None or np.isnan(reached) or others.share(others.first) >= GOOD:
            return None
        if reached - others.first >= LITTLE * (others.optimum - others.first):
            return None
        first, optimum = short(others.first, others.way), short(others.optimum, others.way)
        return f"the median policy is worth {short(reached, others.way)}, the first one {first}, the best {optimum}"

    def windows(self, seed: int) -> list[Window]:
        """Return the first few records of a seed, then the rest in tenths; nothing if there are too few records."""
        curve = self.curves[seed]
        few, length = self._length(0), self._length(len(curve) // WINDOWS)
        ends = range(len(curve), few + length - 1, -length)
        parts = [(0, few), *((end - length, end) for end in reversed(ends))]
        return [self._window(seed, slice(*part)) for part in parts] if ends else []

    def _length(self, records: int) -> int:
        """Whole periods of the algorithm, whose batches differ in noise and bias, and two at least for a difference."""
        return self._period * max(2, -(-max(WINDOW, records) // self._period))

    @cached_property
    def _period(self) -> int:
        """After how many records the phases of the algorithm repeat."""
        if self.outcome.algorithm is None:
            return 1
        repeats = Schedule(self.outcome.algorithm).period
        return repeats // int(np.gcd(repeats, self.outcome.config["setup"]["record_every"]))

    def _window(self, seed: int, records: slice) -> Window:
        part = self.curves[seed][records]
        noise = float(np.sqrt(np.mean((part[self._period :] - part[: -self._period]) ** 2) / 2))
        error = noise / float(np.sqrt(len(part)))
        return Window(
            float(part.mean()), noise, error, float(self.violations[seed][records].mean())
        )


def may_end(problem: Problem, returns: Float[np.ndarray, " record"]) -> bool:
    """Whether an episode may end by itself before the horizon, so that one that is cut there says something.

    A table tells, and so does the program of an environment in JAX or of the one that an id of
    Gymnasium has here. There, an end is what is wanted only if no episode earned anything: costs
    that an end would spare. Elsewhere it is not known, and only episodes that all earn the same are
    taken for such.
    """
    env, steps = problem.env, problem.sampling_horizon() - 1
    if not returns.size:
        return False
    if not isinstance(env, TabularMDP):
        costs = bool((returns <= 0).all()) and _end_depends_on_state(env)
        return costs or bool((returns == returns[0]).all())
    reached, onward = env.initial > 0, env.transition.T
    for _ in range(min(steps, env.num_states)):
        reached = reached | (onward @ np.repeat(reached.astype(float), env.num_actions) > 0)
    return bool(np.any(env.terminal & reached))


def _end_depends_on_state(env: DecisionProcess) -> bool:
    """Return whether the end of an episode is a function of the state, as far as the environment is known."""
    program_of = implementation(env.source) if isinstance(env, GymnasiumEnv) else env
    if not isinstance(program_of, Environment):
        return False
    state = jax.eval_shape(program_of.reset, jax.random.key(0))
    program = jax.make_jaxpr(program_of.terminated)(state).jaxpr
    needed = {variable for variable in program.outvars if isinstance(variable, Var)}
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            needed.update(variable for variable in equation.invars if isinstance(variable, Var))
    return not needed.isdisjoint(program.invars)


def _counts_reward(feature: Feature) -> bool:
    if isinstance(feature, features.Stack):
        return any(map(_counts_reward, feature.parts))
    return isinstance(feature, features.Reward)

"""Statistics of a training run for the diagnosis: the course of the utility and its noise."""

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

MIN_ITERATIONS = 20
"""Number of iterations from which on progress is expected."""
MIN_WINDOW = 10
"""Smallest number of log entries in a window. The noise of fewer is not known well enough."""
WINDOWS = 10
"""Number of windows of a long run."""
RISE = 3.0
"""Standard errors that a rise must exceed. Noise alone does in one of 700 runs."""
ROUNDING = 1e-4
"""Relative difference below which utilities are equal: estimates are sums in single precision."""
MAX_EXACT_VIOLATION = 0.02
"""Violation of a satisfied constraint, relative to the threshold. Small ones come and go."""
MAX_ESTIMATED_VIOLATION = 0.05
"""The same for violations that are estimated from episodes and have an error of their own."""
VANISHING = 0.05
"""Fraction of the first costs that policies have left if they learn to do nothing."""
LITTLE = 0.01
"""Fraction of the distance from the initial policy to the optimum that is no progress."""
GOOD = 0.95
"""Normalised score of an initial policy that leaves almost nothing to learn."""


class Window(NamedTuple):
    """Statistics of consecutive log entries of a seed."""

    mean: float
    noise: float
    """Standard deviation of an entry, from differences of entries, which a trend hardly changes."""
    error: float
    """Standard error of the mean."""
    violation: float
    """Mean violation of the constraints, see `RunStatistics.violations`."""


@dataclass(frozen=True)
class RunStatistics:
    """Statistics of a run that several rules of the diagnosis use."""

    outcome: Outcome
    assessment: Assessment

    @cached_property
    def references(self) -> References:
        """Utilities of other policies. NaN where unknown."""
        return self.assessment.references or References(np.nan)

    def entries(self, metric: str) -> list[Float[np.ndarray, " record"]]:
        """Return the log entries of a metric for each seed, up to the entry where it was stopped.

        Args:
            metric: Name of the metric. Runs without this metric have empty rows.

        Returns:
            One array for each seed.
        """
        missing = np.zeros((len(self.outcome.seeds), 0))
        rows = self.outcome.metrics.get(metric, missing)
        return [row[~np.isnan(row)].astype(float) for row in rows]

    @cached_property
    def curves(self) -> list[Float[np.ndarray, " record"]]:
        """Utility of each seed: exact where it was logged, else estimated from each batch."""
        metric = "utility"
        if EXACT[0] in self.outcome.metrics:
            metric = EXACT[0]
        return self.entries(metric)

    @cached_property
    def violations(self) -> list[Float[np.ndarray, " record"]]:
        """Largest violation at each log entry of each seed, relative to the threshold."""
        largest = [np.zeros(len(curve)) for curve in self.curves]
        for constraint in self._constraints:
            rows = self.entries(f"violation/{constraint.name}")
            for seed, row in enumerate(rows):
                if len(row) == len(largest[seed]):
                    relative = row / _scale(constraint)
                    largest[seed] = np.maximum(largest[seed], relative)
        return largest

    @cached_property
    def allowed(self) -> Float[np.ndarray, " seed"]:
        """Violation up to which an earlier policy is as feasible as the returned one."""
        allowed = np.full(len(self.outcome.seeds), MAX_ESTIMATED_VIOLATION)
        for constraint, excess in zip(self._constraints, self.excesses, strict=True):
            allowed = np.fmax(allowed, excess / _scale(constraint))
        return allowed

    @property
    def _constraints(self) -> tuple[Constraint, ...]:
        if self.outcome.problem is None:
            return ()
        return self.outcome.problem.constraints

    @property
    def excesses(self) -> list[Float[np.ndarray, " seed"]]:
        """Violation of each constraint by the policy of each seed."""
        if self.assessment.excesses is None:
            return []
        return list(self.assessment.excesses.T)

    def violates(self, seed: int) -> bool:
        """Return whether the returned policy of a seed violates a constraint."""
        return bool(self.allowed[seed] > MAX_ESTIMATED_VIOLATION)

    def compares_with_first(self, seed: int) -> bool:
        """Return whether the initial policy of a seed is as feasible as the returned one.

        The utilities of both policies are comparable only then: satisfying a constraint may lower
        the utility.
        """
        first = self.violations[seed][: self._window_length(0)]
        if not first.size:
            return True
        return bool(max(first[0], first.mean()) <= self.allowed[seed])

    @cached_property
    def median(self) -> float:
        """Median utility of the returned policies. NaN if none is finite."""
        known = self.assessment.utilities[~np.isnan(self.assessment.utilities)]
        if not known.size:
            return np.nan
        return float(np.median(known))

    @cached_property
    def iterations(self) -> int:
        """Number of iterations, or of log entries for an unknown algorithm."""
        if self.outcome.algorithm is None or not len(self.outcome.episodes):
            return len(self.outcome.episodes)
        return Schedule(self.outcome.algorithm).iterations(int(self.outcome.episodes[-1]))

    @cached_property
    def counts_reward(self) -> bool:
        """Whether the utility is a function of the reward of the environment."""
        problem = self.outcome.problem
        return problem is not None and _counts_reward(problem.features)

    @cached_property
    def no_progress(self) -> str | None:
        """Sentence on a run that is no better than its initial policy. None for other runs.

        With a known optimum the median policy is compared exactly with the initial one. Otherwise
        the last window of log entries is compared with the first one, over all seeds.
        """
        seeds = [seed for seed in range(len(self.curves)) if self.compares_with_first(seed)]
        if self.iterations < MIN_ITERATIONS or not seeds:
            return None
        if np.isfinite(self.references.way):
            return self._no_exact_progress()
        return self._no_estimated_progress(seeds)

    def _no_exact_progress(self) -> str | None:
        references = self.references
        first = references.first
        if references.optimum is None or np.isnan(self.median) or references.share(first) >= GOOD:
            return None
        if self.median - first >= LITTLE * (references.optimum - first):
            return None
        median = short(self.median, references.way)
        initial = short(first, references.way)
        optimum = short(references.optimum, references.way)
        return (
            f"the median policy has utility {median}, the first policy {initial} "
            f"and the optimum {optimum}"
        )

    def _no_estimated_progress(self, seeds: list[int]) -> str | None:
        first: list[Window] = []
        last: list[Window] = []
        for seed in seeds:
            windows = self.windows(seed)
            if windows:
                first.append(windows[0])
                last.append(windows[-1])
        if not first or self._is_assessed_better(first + last):
            return None
        initial_mean = float(np.mean([window.mean for window in first]))
        final_mean = float(np.mean([window.mean for window in last]))
        rise = final_mean - initial_mean
        errors = [window.error for window in first + last]
        error = float(np.linalg.norm(errors)) / len(first)
        if rise > max(RISE * error, ROUNDING * abs(initial_mean)):
            return None
        remark = "without a rise"
        if rise > 0:
            remark = f"a rise within the noise (standard error {short(error)})"
        return (
            f"the mean utility of the first records is {short(initial_mean)} "
            f"and of the last records {short(final_mean)}, {remark}"
        )

    def _is_assessed_better(self, windows: list[Window]) -> bool:
        """Return whether new episodes show the returned policies to be better than the initial one.

        The first log entries may already be those of better policies, if all progress happened
        before them.
        """
        rise = self.median - self.references.first
        noise = max(window.noise for window in windows)
        batch = 1
        if self.outcome.algorithm is not None:
            batch = max(Schedule(self.outcome.algorithm).sizes)
        episodes = EPISODES
        problem = self.outcome.problem
        if problem is not None and isinstance(problem.env, GymnasiumEnv):
            episodes = GYMNASIUM_EPISODES
        error = noise * np.sqrt(2 * batch / episodes)
        return bool(rise > max(RISE * error, ROUNDING * abs(self.median)))

    def windows(self, seed: int) -> list[Window]:
        """Return statistics of the first log entries of a seed, then of the rest in tenths.

        Args:
            seed: Index of the seed.

        Returns:
            The windows in order, or none if there are too few log entries.
        """
        count = len(self.curves[seed])
        first_length = self._window_length(0)
        length = self._window_length(count // WINDOWS)
        ends = range(count, first_length + length - 1, -length)
        if not ends:
            return []
        starts_and_ends = [(0, first_length)]
        starts_and_ends += [(end - length, end) for end in reversed(ends)]
        return [self._window(seed, slice(start, end)) for start, end in starts_and_ends]

    def _window_length(self, records: int) -> int:
        """Return a length of at least two whole periods of the algorithm.

        The batches of a period differ in noise and bias, and a difference needs two of them.
        """
        periods = -(-max(MIN_WINDOW, records) // self._period)
        return self._period * max(2, periods)

    @cached_property
    def _period(self) -> int:
        """Number of log entries after which the phases of the algorithm repeat."""
        if self.outcome.algorithm is None:
            return 1
        iterations = Schedule(self.outcome.algorithm).period
        record_every = self.outcome.config["setup"]["record_every"]
        return iterations // int(np.gcd(iterations, record_every))

    def _window(self, seed: int, records: slice) -> Window:
        values = self.curves[seed][records]
        differences = values[self._period :] - values[: -self._period]
        noise = float(np.sqrt(np.mean(differences**2) / 2))
        error = noise / float(np.sqrt(len(values)))
        violation = float(self.violations[seed][records].mean())
        return Window(float(values.mean()), noise, error, violation)


def _scale(constraint: Constraint) -> float:
    """Return the number that a violation is divided by."""
    return abs(constraint.limit) or 1.0


def may_end(problem: Problem, returns: Float[np.ndarray, " record"]) -> bool:
    """Return whether episodes may terminate before the horizon, so that truncation is a fault.

    A table is searched for reachable terminal states. Of an environment in JAX, or a Gymnasium
    environment with an implementation in JAX, the termination must depend on the state and no
    return be positive, so that a termination would save costs. Of other environments all returns
    must be equal, or costs that fell to almost nothing.

    Args:
        problem: The problem.
        returns: Undiscounted returns of the log entries of a seed.
    """
    env = problem.env
    if not returns.size:
        return False
    if isinstance(env, TabularMDP):
        return _reaches_terminal_state(env, problem.sampling_horizon() - 1)
    if (returns <= 0).all() and _end_depends_on_state(env):
        return True
    return bool((returns == returns[0]).all()) or costs_vanish(returns)


def costs_vanish(returns: Float[np.ndarray, " record"]) -> bool:
    """Return whether all returns are costs that fell to a small fraction of the first ones.

    Policies that learn to do nothing have such returns, where acting costs and the goal is rare.

    Args:
        returns: Undiscounted returns of the log entries of a seed.
    """
    length = max(1, len(returns) // WINDOWS)
    first = float(returns[:length].mean())
    last = float(returns[-length:].mean())
    return bool((returns <= 0).all()) and first < 0 and last >= VANISHING * first


def _reaches_terminal_state(env: TabularMDP, steps: int) -> bool:
    """Return whether a terminal state can be reached within some steps."""
    transposed = env.transition.T
    reached = env.initial > 0
    for _ in range(min(steps, env.num_states)):
        sources = np.repeat(reached.astype(float), env.num_actions)
        reached = reached | (transposed @ sources > 0)
    return bool(np.any(env.terminal & reached))


def _end_depends_on_state(env: DecisionProcess) -> bool:
    """Return whether termination is known to be a function of the state."""
    program_env = env
    if isinstance(env, GymnasiumEnv):
        program_env = implementation(env.source)
    if not isinstance(program_env, Environment):
        return False
    state = jax.eval_shape(program_env.reset, jax.random.key(0))
    program = jax.make_jaxpr(program_env.terminated)(state).jaxpr
    needed: set[Var] = set()
    _add_variables(needed, program.outvars)
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            _add_variables(needed, equation.invars)
    return not needed.isdisjoint(program.invars)


def _add_variables(variables: set[Var], atoms: list[object]) -> None:
    """Add the variables among the atoms of a program. The others are literals."""
    for atom in atoms:
        if isinstance(atom, Var):
            variables.add(atom)


def _counts_reward(feature: Feature) -> bool:
    if isinstance(feature, features.Stack):
        return any(_counts_reward(part) for part in feature.parts)
    return isinstance(feature, features.Reward)

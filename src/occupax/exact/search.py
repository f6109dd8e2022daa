"""State of an anytime optimisation: the best policy, the lowest bound, the tolerance and the clock.

A method proposes policies and bounds. It ends by itself, or by `SearchEnded`, which `check` raises
at the tolerance and at the time limit.
"""

import time
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from occupax.errors import no_finite_gradient
from occupax.exact.bounds import upper_bound
from occupax.exact.dynamics import Dynamics
from occupax.exact.objective import Objective
from occupax.exact.occupancies import PolicyVisits, policy_of, visits_of
from occupax.problem import Problem
from occupax.progress import ProgressBar

Status = Literal["optimal", "time limit", "interrupted", "stalled"]

FEASIBLE = 1e-7
"""Largest violation of a constraint, relative to its threshold, of a certified policy."""
ROUNDING = 1e-10
"""Violation below which policies are compared by their utility."""
REPAIRABLE = 1e-2
"""Relative violation up to which a policy is mixed with a feasible one."""
SECONDS_WITHOUT_BAR = 1.0
"""Time after which progress is shown: most problems are solved before."""
REFRESH_SECONDS = 0.2

TimedArray = Float[np.ndarray, "*H S A"]
Features = Float[np.ndarray, " d"]
Multipliers = Float[np.ndarray, " K"]


class SearchEnded(Exception):  # noqa: N818
    """The tolerance or the time limit is reached.

    Args:
        status: which of them.
    """

    def __init__(self, status: Status):
        super().__init__(status)
        self.status: Status = status


class Candidate(NamedTuple):
    """Policy with its occupancy and utility."""

    policy: TimedArray
    visits: PolicyVisits
    value: float
    error: float
    """Bound of the error of the value that the residual of the occupancy leaves."""
    excesses: Multipliers
    violation: float
    """Largest excess relative to the size of its limit, or 0."""


class Bound(NamedTuple):
    """Upper bound of the utility of every feasible policy, with what proves it."""

    value: float
    tangent: Features
    """Point at which the Lagrangian is linearised."""
    multipliers: Multipliers
    values: Float[np.ndarray, "*H S"]
    """Values of the states for the quasi-reward at the tangent."""


def _used_features(model: Dynamics) -> Bool[np.ndarray, " d"]:
    """Return which features are not zero everywhere."""
    used = np.zeros(model.features.shape[1], bool)
    used[model.features.indices[model.features.data != 0]] = True
    return used


class Search:
    """Best policy and lowest bound of a problem so far.

    Args:
        problem: the problem.
        model: its dynamics, restricted to the states that can be reached.
        tolerance: gap to reach, relative to max(1, |value|).
        share: alternative gap to reach, relative to the difference to the uniform policy.
        time_limit: seconds after which the search ends.
        progress: whether to show the gap.
    """

    def __init__(
        self,
        problem: Problem,
        model: Dynamics,
        tolerance: float,
        share: float = 0.0,
        time_limit: float | None = None,
        progress: bool = False,
    ):
        self.problem = problem
        self.model = model
        self.objective = Objective(problem, _used_features(model))
        self.tolerance = tolerance
        self.share = share
        self.start = time.monotonic()
        self.time_limit = time_limit
        self.best: Candidate | None = None
        self.bound: Bound | None = None
        self.interior: Candidate | None = None
        self.baseline: float | None = None
        self.pending: TimedArray | None = None
        self._progress = progress
        self._bar: ProgressBar | None = None
        self._shown = self.start
        self._first_gap = np.inf
        limits = [abs(constraint.limit) for constraint in problem.constraints]
        self.scales = np.array([limit if limit > 0 else 1.0 for limit in limits])

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def gap(self) -> float:
        """Difference between the lowest bound and the best value. Infinite without both."""
        if self.best is None or self.bound is None or self.best.violation > FEASIBLE:
            return np.inf
        return max(self.bound.value - self.best.value + self.best.error, 0.0)

    @property
    def target(self) -> float:
        """Gap to reach."""
        value = 0.0 if self.best is None else self.best.value
        target = self.tolerance * max(1.0, abs(value))
        if self.baseline is not None:
            target = max(target, self.share * (value - self.baseline))
        return target

    def propose(self, policy: TimedArray, guess: TimedArray | None = None) -> Candidate:
        """Evaluate a policy, and keep it if it is the best one.

        Args:
            policy: action probabilities.
            guess: approximate occupancy of the policy.

        Returns:
            The evaluated policy.

        Raises:
            ValueError: if the utility is not finite at the occupancy.
        """
        candidate = self._repaired(self.evaluate(policy, guess))
        self._keep_interior(candidate)
        if self.best is None or self._is_better(candidate, self.best):
            self.best = candidate
        if self.baseline is None:
            self.baseline = candidate.value
        return candidate

    def _repaired(self, candidate: Candidate) -> Candidate:
        """Return a mixture with the most feasible policy that satisfies all constraints."""
        interior = self.interior
        if interior is None or not 0 < candidate.violation <= REPAIRABLE:
            return candidate
        excess = np.maximum(candidate.excesses, 0.0)
        shares = excess / (excess - interior.excesses)
        share = min(1.0, 1.001 * float(shares.max()) + ROUNDING)
        mass = (1 - share) * candidate.visits.mass + share * interior.visits.mass
        return self.evaluate(policy_of(mass), mass)

    def _keep_interior(self, candidate: Candidate) -> None:
        """Keep the policy with the largest slack of all constraints."""
        if not candidate.excesses.size:
            return
        slack = float((-candidate.excesses / self.scales).min())
        if slack <= 0:
            return
        interior = self.interior
        if interior is None or slack > float((-interior.excesses / self.scales).min()):
            self.interior = candidate

    def evaluate(self, policy: TimedArray, guess: TimedArray | None = None) -> Candidate:
        """Return the occupancy and the utility of a policy."""
        visits = visits_of(self.model, policy, guess)
        value = self.objective.value(visits.features)
        if not np.isfinite(value):
            name = type(self.problem.objective).__name__
            raise ValueError(
                f"{name} has no finite value at the occupancy of a policy: it must be defined "
                "wherever policies go."
            )
        excesses = self.objective.excesses(visits.features)
        violation = float(np.max(excesses / self.scales, initial=0.0))
        error = 0.0
        if visits.residual > 0:
            slope = self.model.features @ self.objective.gradient(visits.features)
            error = float(np.abs(slope).max(initial=0.0)) * visits.residual
        return Candidate(policy, visits, value, error, excesses, violation)

    def propose_bound(
        self,
        tangent: Features,
        values: Float[np.ndarray, "*H S"],
        multipliers: Multipliers | None = None,
    ) -> float:
        """Compute the bound of a point and values, keep it if it is the lowest, and return it."""
        if multipliers is None:
            multipliers = np.zeros(self.objective.num_constraints)
        value = upper_bound(self.model, self.objective, tangent, multipliers, values)
        if np.isfinite(value) and (self.bound is None or value < self.bound.value):
            self.bound = Bound(value, tangent, multipliers, values)
        return value

    def quasi_reward(
        self, features: Features, multipliers: Multipliers | None = None
    ) -> Float[np.ndarray, "S A"]:
        """Return the gradient of the Lagrangian with respect to the occupancy of each pair."""
        reward = self.model.features @ self.objective.gradient(features, multipliers)
        if not np.isfinite(reward).all():
            raise no_finite_gradient(type(self.problem.objective).__name__)
        return reward.reshape(self.model.shape)

    def propose_pending(self) -> None:
        """Evaluate the occupancy that a method has left, if any."""
        if self.pending is None:
            return
        mass = self.pending
        self.pending = None
        self.propose(policy_of(mass), mass)

    def check(self) -> None:
        """Show progress, and raise SearchEnded at the tolerance or the time limit."""
        if self.gap <= self.target:
            raise SearchEnded("optimal")
        if self.time_limit is not None and self.elapsed >= self.time_limit:
            raise SearchEnded("time limit")
        self._show()

    def close(self) -> None:
        """Stop the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def _is_better(self, candidate: Candidate, best: Candidate) -> bool:
        """Return whether a candidate violates less or, if neither violates, has more value."""
        if max(candidate.violation, best.violation) > ROUNDING:
            return candidate.violation < best.violation
        return candidate.value - candidate.error > best.value - best.error

    def _show(self) -> None:
        moment = time.monotonic()
        if not self._progress or moment - self.start < SECONDS_WITHOUT_BAR:
            return
        if moment - self._shown < REFRESH_SECONDS:
            return
        self._shown = moment
        gap = self.gap
        if not np.isfinite(self._first_gap):
            self._first_gap = gap
        if self._bar is None:
            self._bar = ProgressBar(1.0, "Solving")
        fraction = 0.0
        if np.isfinite(gap) and self._first_gap > gap > 0:
            fraction = np.log(self._first_gap / gap) / np.log(self._first_gap / self.target)
        if self.time_limit is not None:
            fraction = max(fraction, self.elapsed / self.time_limit)
        self._bar.update(min(fraction, 1.0), self._text(gap))

    def _text(self, gap: float) -> str:
        if self.best is None or self.bound is None:
            return "Solving"
        return f"value {self.best.value:.8g}, bound {self.bound.value:.8g}, gap {gap:.2g}"

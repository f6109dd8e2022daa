"""Multipliers of the constraints of a run, and their update after each iteration.

An algorithm ascends along the Lagrangian. After each iteration, the multipliers are updated from
the violation of each constraint in the trajectories of the iteration. Plain dual ascent,
mu <- max(0, mu + beta * violation), oscillates, because the policy reacts with a delay. A term
proportional to the recent violation dampens the oscillation (Stooke, Achiam and Abbeel, 2020).

The update does not depend on the units of utility and constraints. A violation is measured in
standard deviations of one trajectory. A multiplier is a dimensionless number times the ratio of the
standard deviations of the utility and of the constraint.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from occupax.policies import Policy, Tabular
from occupax.problem import Problem

INTEGRAL_RATE = 0.01
"""Largest increment of the integral of a multiplier in one iteration."""
MARGIN = 2.0
"""Distance from each threshold, in standard errors of the mean of all trajectories so far."""
MEAN_DECAY = 0.9
"""Weight of the past in the recent occupancy."""
VARIANCE_DECAY = 0.99
"""Weight of the past in the variances."""


class Multipliers(eqx.Module):
    """State of the multipliers of a run, with K constraints and K1 = K + 1."""

    value: Float[Array, " K"]
    """Multipliers of the next update."""
    integral: Float[Array, " K"]
    """Dimensionless sum of the violations so far."""
    occupancy: Float[Array, " d"]
    """Exponentially weighted sum of the recent occupancy estimates, which has less noise."""
    excess: Float[Array, " K"]
    """Violation of each constraint by the mean recent occupancy. Negative where there is slack."""
    last: Float[Array, " K1"]
    """Utility and violations of the last iteration."""
    variance: Float[Array, " K1"]
    """Exponentially weighted sum of the variances of utility and violations of one trajectory."""
    trajectories: Float[Array, ""]
    """Number of trajectories so far."""
    weight: Float[Array, "2"]
    """Sums of the weights in `occupancy` and in `variance`."""

    @property
    def deviation(self) -> Float[Array, " K1"]:
        """Standard deviations of utility and violations of one trajectory, initially 0."""
        weight = jnp.maximum(self.weight[1], _tiny(self.variance))
        return jnp.sqrt(self.variance / weight)

    @property
    def relative_excess(self) -> Float[Array, " K"]:
        """Violation of each constraint in standard deviations of one trajectory."""
        return self.excess / self._constraint_deviation()

    def violation(self, trajectories: int | Float[Array, ""]) -> Float[Array, ""]:
        """Return the largest possible violation, in standard deviations of one trajectory.

        The policy is feasible, with a violation of 0, if the recent mean is below every threshold
        by `MARGIN` standard errors and the last batch is not above one. The violation is infinite
        before the second batch, because the standard error is unknown.

        Args:
            trajectories: number of trajectories of the last batch.
        """
        window = trajectories * (1 + MEAN_DECAY) / (1 - MEAN_DECAY)
        recent = jnp.minimum(self.trajectories, window)
        upper = self.relative_excess + MARGIN / jnp.sqrt(recent)
        last = self.last[1:] / self._constraint_deviation()
        largest = jnp.maximum(jnp.max(jnp.maximum(upper, last)), 0.0)
        return jnp.where(self.weight[1] == 0, jnp.inf, largest)

    def _constraint_deviation(self) -> Float[Array, " K"]:
        return jnp.maximum(self.deviation[1:], _tiny(self.excess))


class Gains(NamedTuple):
    """Gains of the update of the multipliers."""

    proportional: float
    """Increment of a multiplier for a recent violation of one standard deviation, relative to one
    plus its integral. The increment is at most that sum."""
    full_violation: float
    """Violation at which the integral grows by `INTEGRAL_RATE`, in proportion below it."""


TABLE_GAINS = Gains(proportional=3.0, full_violation=0.05)
"""Gains for tables, which satisfy constraints closely. examples/limits.py compares gains."""
NETWORK_GAINS = Gains(proportional=0.1, full_violation=0.5)
"""Gains for networks, whose utility would not recover from jumps of the multipliers."""


def initial_multipliers(problem: Problem) -> Multipliers | None:
    """Return multipliers of 0, or None for a problem without constraints."""
    count = len(problem.constraints)
    if not count:
        return None
    return Multipliers(
        value=jnp.zeros(count),
        integral=jnp.zeros(count),
        occupancy=jnp.zeros(problem.size),
        excess=jnp.zeros(count),
        last=jnp.zeros(count + 1),
        variance=jnp.zeros(count + 1),
        trajectories=jnp.zeros(()),
        weight=jnp.zeros(2),
    )


def default_gains(policy: Policy) -> Gains:
    """Return the gains for a kind of policy."""
    if isinstance(policy, Tabular):
        return TABLE_GAINS
    return NETWORK_GAINS


def update_multipliers(
    multipliers: Multipliers,
    problem: Problem,
    occupancy: Float[Array, " d"],
    trajectories: int | Float[Array, ""],
    gains: Gains,
    saturated: bool | Bool[Array, ""] = False,
) -> Multipliers:
    """Return the multipliers after an iteration.

    Args:
        multipliers: multipliers before the iteration.
        problem: problem with its constraints.
        occupancy: fresh occupancy estimate of the iteration.
        trajectories: number of trajectories of the estimate.
        gains: gains for the kind of policy.
        saturated: whether the actions are saturated. The integral does not grow in this case
            (conditional integration), because a policy without a gradient cannot respond.
    """
    is_first = multipliers.weight[0] == 0
    measured = _with_measurement(multipliers, problem, occupancy, trajectories)
    relative = measured.relative_excess + MARGIN / jnp.sqrt(measured.trajectories)
    rate = INTEGRAL_RATE * jnp.sqrt(1 + measured.integral)
    increment = rate * jnp.clip(relative / gains.full_violation, -1.0, 1.0)
    integral = jnp.maximum(measured.integral + increment, 0.0)
    integral = jnp.where(saturated, jnp.minimum(integral, measured.integral), integral)
    proportional = (1 + integral) * jnp.clip(gains.proportional * relative, -1.0, 1.0)
    size = jnp.maximum(integral + proportional, 0.0)
    utility_deviation = measured.deviation[0]
    constraint_deviation = measured.deviation[1:]
    unit = utility_deviation / jnp.maximum(constraint_deviation, _tiny(utility_deviation))
    return eqx.tree_at(
        lambda tree: (tree.value, tree.integral),
        measured,
        (jnp.where(is_first, 0.0, size * unit), jnp.where(is_first, 0.0, integral)),
    )


def _with_measurement(
    multipliers: Multipliers,
    problem: Problem,
    occupancy: Float[Array, " d"],
    trajectories: int | Float[Array, ""],
) -> Multipliers:
    """Return multipliers with the means and variances after an iteration."""
    is_first = multipliers.weight[0] == 0
    utility = problem.estimated_utility(occupancy)
    last = jnp.concatenate([utility[None], problem.excesses(occupancy)])
    # differences of consecutive estimates, so that neither a trend nor an offset counts
    change = (last - multipliers.last) ** 2 * (trajectories / 2)
    variance = jnp.where(is_first, 0.0, change)
    decay = jnp.array([MEAN_DECAY, VARIANCE_DECAY])
    weight = decay * multipliers.weight + (1 - decay) * jnp.array([True, ~is_first])
    mean = MEAN_DECAY * multipliers.occupancy + (1 - MEAN_DECAY) * occupancy
    return Multipliers(
        value=multipliers.value,
        integral=multipliers.integral,
        occupancy=mean,
        excess=problem.excesses(mean / weight[0]),
        last=last,
        variance=VARIANCE_DECAY * multipliers.variance + (1 - VARIANCE_DECAY) * variance,
        trajectories=multipliers.trajectories + trajectories,
        weight=weight,
    )


def _tiny(array: Float[Array, " ..."]) -> float:
    """Return the smallest positive normal number in the precision of an array."""
    return float(jnp.finfo(array.dtype).tiny)

"""The multipliers of the constraints of a run, and how they follow what the policy does.

An algorithm ascends along the Lagrangian; after each of its iterations the multipliers are set
anew, from the excess over each limit in the trajectories of that iteration. Plain dual ascent, mu
<- max(0, mu + beta * excess), oscillates, because the policy is late. Here a term that is
proportional to the recent excess is added to its integral (Stooke, Achiam and Abbeel 2020), which
dampens that.

Nothing depends on the units of utility and limits. An excess is measured in standard deviations of
what one trajectory adds up, and a multiplier is the ratio of that of the utility to that of the
limit times a number of the order of one.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from occupax.policies import Policy, Tabular
from occupax.problem import Problem

INTEGRAL = 0.01
"""What an excess adds to a multiplier for good in each iteration, at most."""
CAUTION = 2.0
"""How many standard errors of the mean of all trajectories so far are kept away from a limit: no
more can be known."""
MEMORY, LONG_MEMORY = 0.9, 0.99
"""The weight of the past in the recent excess and in the standard deviations."""


class Multipliers(eqx.Module):
    """What a run knows of its constraints."""

    value: Float[Array, " K"]
    """The multipliers that the next update is made with."""
    integral: Float[Array, " K"]
    """What all excesses so far have added up to, in units of the order of one."""
    occupancy: Float[Array, " d"]
    """The mean of the estimates of the last iterations, weighted by how recent they are: it has
    less noise, which biases what is not linear."""
    excess: Float[Array, " K"]
    """By how much that occupancy violates each limit."""
    last: Float[Array, " K1"]
    """The utility and the excesses of the last iteration alone."""
    variance: Float[Array, " K1"]
    """The variance of the utility and of the excesses of one trajectory, likewise weighted."""
    trajectories: Float[Array, ""]
    """How many were seen so far."""
    weight: Float[Array, "2"]
    """The sum of the weights in `occupancy` and in `variance`, which are not divided by it."""

    @property
    def deviation(self) -> Float[Array, " K1"]:
        """The standard deviation of the utility and of the excesses of one trajectory; 0 where none was seen."""
        return jnp.sqrt(
            self.variance / jnp.maximum(self.weight[1], jnp.finfo(self.variance.dtype).tiny)
        )

    @property
    def relative_excess(self) -> Float[Array, " K"]:
        """The excess over each limit in standard deviations of one trajectory."""
        return self.excess / jnp.maximum(self.deviation[1:], jnp.finfo(self.excess.dtype).tiny)

    def violation(self, trajectories: int | Float[Array, ""]) -> Float[Array, ""]:
        """Return by how much the policy may violate the constraints, in standard deviations of one trajectory.

        The policy is feasible, with a violation of 0, if the recent mean is below every threshold
        by `CAUTION` standard errors and the last batch is not above one. Before the second batch no
        error is known, and the result is inf.

        Args:
            trajectories: the number of trajectories in the last batch.
        """
        recent = jnp.minimum(self.trajectories, trajectories * (1 + MEMORY) / (1 - MEMORY))
        upper = self.relative_excess + CAUTION / jnp.sqrt(recent)
        last = self.last[1:] / jnp.maximum(self.deviation[1:], jnp.finfo(self.last.dtype).tiny)
        largest = jnp.maximum(jnp.max(jnp.maximum(upper, last)), 0.0)
        return jnp.where(self.weight[1] == 0, jnp.inf, largest)

    @property
    def numbers(self) -> Float[Array, " K2"]:
        """What is recorded: all multipliers, then all excesses."""
        return jnp.concatenate([self.value, self.excess])


def first_multipliers(problem: Problem) -> Multipliers | None:
    """Multipliers of 0 or, for a problem without constraints, nothing."""
    count = len(problem.constraints)
    if not count:
        return None
    none, more = jnp.zeros(count), jnp.zeros(count + 1)
    return Multipliers(
        none, none, jnp.zeros(problem.size), none, more, more, jnp.zeros(()), jnp.zeros(2)
    )


class Gains(NamedTuple):
    """How multipliers follow excesses, which are measured in standard deviations."""

    proportional: float
    """What a recent excess of one adds to a multiplier, relative to one plus its integral, though
    never more than all of that."""
    noticed: float
    """The excess from which on `INTEGRAL` is added in each iteration; smaller ones add less."""


OF_TABLES, OF_NETWORKS = Gains(3.0, 0.05), Gains(0.1, 0.5)
"""Those of tables keep a limit closely. A network changes all of its behaviour with each step:
where multipliers jump, it gives up its utility for good. How they were chosen is said in
examples/limits.py."""


def gains(policy: Policy) -> Gains:
    """How multipliers follow what a policy does."""
    return OF_TABLES if isinstance(policy, Tabular) else OF_NETWORKS


def follow(
    multipliers: Multipliers,
    problem: Problem,
    fresh: Float[Array, " d"],
    trajectories: int | Float[Array, ""],
    gains: Gains,
    saturated: bool | Bool[Array, ""] = False,
) -> Multipliers:
    """Return the multipliers after an iteration, from its own estimate of the occupancy.

    Args:
        multipliers: those before the iteration.
        problem: the problem with its constraints.
        fresh: the estimate of the occupancy.
        trajectories: how many trajectories the estimate is made of.
        gains: the gains for the kind of policy.
        saturated: whether the actions are saturated. The integral does not grow meanwhile
            (conditional integration), because a policy without a gradient cannot respond.
    """
    now = jnp.concatenate([problem.estimated_utility(fresh)[None], problem.excesses(fresh)])
    is_first = multipliers.weight[0] == 0
    # of consecutive estimates, so that neither a trend nor an offset counts
    change = jnp.where(is_first, 0.0, (now - multipliers.last) ** 2 * (trajectories / 2))
    memory = jnp.array([MEMORY, LONG_MEMORY])
    weight = memory * multipliers.weight + (1 - memory) * jnp.array([True, ~is_first])
    occupancy = MEMORY * multipliers.occupancy + (1 - MEMORY) * fresh
    seen = Multipliers(
        value=multipliers.value,
        integral=multipliers.integral,
        occupancy=occupancy,
        excess=problem.excesses(occupancy / weight[0]),
        last=now,
        variance=LONG_MEMORY * multipliers.variance + (1 - LONG_MEMORY) * change,
        trajectories=multipliers.trajectories + trajectories,
        weight=weight,
    )
    relative = seen.relative_excess + CAUTION / jnp.sqrt(seen.trajectories)
    integral = jnp.maximum(
        seen.integral
        + INTEGRAL * jnp.sqrt(1 + seen.integral) * jnp.clip(relative / gains.noticed, -1.0, 1.0),
        0.0,
    )
    integral = jnp.where(saturated, jnp.minimum(integral, seen.integral), integral)
    size = jnp.maximum(
        integral + (1 + integral) * jnp.clip(gains.proportional * relative, -1.0, 1.0), 0.0
    )
    utility, *limits = seen.deviation
    unit = utility / jnp.maximum(jnp.stack(limits), jnp.finfo(utility.dtype).tiny)
    value = jnp.where(is_first, 0.0, size * unit)
    return eqx.tree_at(
        lambda it: (it.value, it.integral), seen, (value, jnp.where(is_first, 0.0, integral))
    )

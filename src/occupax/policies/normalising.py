"""Observations that a network sees in units of what was seen before: running statistics, which are no parameters.

They are part of the policy, so that they are saved with it, and that every policy is asked about
with its own: weights between two policies are the ratios of the laws by which they acted. No
gradient flows into them. Training replaces those of the policy that acts next after each iteration,
and within an iteration nothing changes.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from occupax.policies.base import Policy
from occupax.policies.networks import Flat

SMALLEST = 1e-4
"""The smallest deviation that observations are divided by."""


class ObservationMoments(eqx.Module):
    """Sums over the steps of trajectories, of which those of the parts of a batch add up to those of the whole."""

    count: Float[Array, ""]
    first: Float[Array, " n"]
    """Of the observations, minus the mean that was known before."""
    second: Float[Array, " n"]
    """Of the squares of these differences."""


class Normalised(eqx.Module):
    """A network of (observation - mean) / deviation, where mean and deviation are those of all steps seen so far."""

    network: Flat
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    count: Float[Array, ""]
    """How many steps were seen."""

    def __call__(self, observation: Any) -> Float[Array, " m"]:
        """What the network returns for an observation."""
        middle, deviation = self._units()
        flat = jnp.ravel(observation).astype(jnp.result_type(float))
        return self.network((flat - middle) / deviation)

    def folded(self) -> Flat:
        """The same function as a network of the observation itself: its first layer is told the units."""
        middle, deviation = self._units()
        first = self.network.network.layers[0]  # pyright: ignore[reportFunctionMemberAccess]
        weight = first.weight / deviation
        places = (weight, first.bias - weight @ middle)
        return eqx.tree_at(
            lambda it: (it.network.layers[0].weight, it.network.layers[0].bias),
            self.network,
            places,
        )

    def later(self, seen: ObservationMoments) -> "Normalised":
        """The same network with the statistics of all that was seen so far, and these steps."""
        total = jnp.maximum(self.count + seen.count, 1.0)
        moved = seen.first / total
        second = self.count * self.variance + seen.second - total * moved**2
        return Normalised(
            self.network,
            self.mean + moved,
            jnp.maximum(second / total, 0.0),
            self.count + seen.count,
        )

    def _units(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and deviation; before anything was seen, 0 and 1."""
        deviation = jnp.where(self.count > 0, jnp.maximum(jnp.sqrt(self.variance), SMALLEST), 1.0)
        return jax.lax.stop_gradient(self.mean), jax.lax.stop_gradient(deviation)


def normalised(network: Flat, numbers: int) -> Normalised:
    """A network of so many numbers, before anything was seen."""
    return Normalised(network, jnp.zeros(numbers), jnp.zeros(numbers), jnp.zeros(()))


def normaliser_of(policy: Policy | None) -> Normalised | None:
    """The network of a policy, with its statistics; None where it has none."""
    psi = getattr(policy, "psi", None)
    return psi if isinstance(psi, Normalised) else None


def observation_moments(
    policy: Policy, observations: Num[Array, "B H *shape"], live: Bool[Array, "B H"]
) -> ObservationMoments:
    """The sums over the live steps of trajectories, around the mean that a policy knows."""
    psi = normaliser_of(policy)
    if psi is None:
        raise ValueError(f"{type(policy).__name__} has no running statistics of observations.")
    off = observations.reshape(*live.shape, -1).astype(psi.mean.dtype) - psi.mean
    off = jnp.where(live[..., None], off, 0.0)
    return ObservationMoments(
        live.sum().astype(off.dtype), off.sum((0, 1)), jnp.sum(off**2, (0, 1))
    )


@eqx.filter_jit
def with_statistics(policy: Policy, before: Policy, seen: ObservationMoments) -> Policy:
    """The policy with the statistics of an earlier one and what was seen since, whatever a step made of its own."""
    psi, known = normaliser_of(policy), normaliser_of(before)
    if psi is None or known is None:
        return policy
    later = known.later(seen)
    statistics = later.mean, later.variance, later.count
    return eqx.tree_at(lambda it: (it.psi.mean, it.psi.variance, it.psi.count), policy, statistics)

"""Observation normalisation by a running mean and variance, which receive no gradient.

The statistics belong to the policy: they are saved with it, and each policy of a pair of target and
behaviour policy uses its own, so that importance weights are ratios of the distributions that
acted. Training replaces the statistics of the next behaviour policy after each iteration; within an
iteration they are constant.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from occupax.policies.base import Policy
from occupax.policies.networks import Flat

MIN_DEVIATION = 1e-4
"""Smallest standard deviation that observations are divided by."""


class ObservationMoments(eqx.Module):
    """Sums over the steps of trajectories, which are additive over the parts of a batch.

    Args:
        count: number of steps.
        first: sums of the observations, minus the mean of the policy.
        second: sums of the squares of these differences.
    """

    count: Float[Array, ""]
    first: Float[Array, " n"]
    second: Float[Array, " n"]


class Normalised(eqx.Module):
    """A network of (observation - mean) / standard deviation, over all steps so far.

    Args:
        network: the network of normalised observations.
        mean: mean of the observations.
        variance: variance of the observations.
        count: number of steps so far.
    """

    network: Flat
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    count: Float[Array, ""]

    def __call__(self, observation: Any) -> Float[Array, " m"]:
        """Return the output of the network for an observation."""
        mean, deviation = self._statistics()
        flat = jnp.ravel(observation).astype(jnp.result_type(float))
        return self.network((flat - mean) / deviation)

    def folded(self) -> Flat:
        """Return the same function as a network of the unnormalised observation."""
        mean, deviation = self._statistics()
        layer = self.network.network.layers[0]  # pyright: ignore[reportFunctionMemberAccess]
        weight = layer.weight / deviation
        bias = layer.bias - weight @ mean
        return eqx.tree_at(
            lambda flat: (flat.network.layers[0].weight, flat.network.layers[0].bias),
            self.network,
            (weight, bias),
        )

    def updated(self, moments: ObservationMoments) -> "Normalised":
        """Return the same network with further steps in its statistics.

        Args:
            moments: sums over the steps, around the mean.

        Returns:
            The network with new statistics.
        """
        count = self.count + moments.count
        divisor = jnp.maximum(count, 1.0)
        shift = moments.first / divisor
        squares = self.count * self.variance + moments.second - divisor * shift**2
        variance = jnp.maximum(squares / divisor, 0.0)
        return Normalised(self.network, self.mean + shift, variance, count)

    def _statistics(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return mean and standard deviation. 0 and 1 before the first step."""
        deviation = jnp.maximum(jnp.sqrt(self.variance), MIN_DEVIATION)
        deviation = jnp.where(self.count > 0, deviation, 1.0)
        return jax.lax.stop_gradient(self.mean), jax.lax.stop_gradient(deviation)


def normalised(network: Flat, size: int) -> Normalised:
    """Return a network of observations of a size, without statistics yet."""
    return Normalised(network, jnp.zeros(size), jnp.zeros(size), jnp.zeros(()))


def normaliser_of(policy: Policy | None) -> Normalised | None:
    """Return the normalised network of a policy.

    Args:
        policy: any policy, or None.

    Returns:
        The network; None without observation normalisation.
    """
    psi = getattr(policy, "psi", None)
    if isinstance(psi, Normalised):
        return psi
    return None


def observation_moments(
    policy: Policy, observations: Num[Array, "B H *shape"], live: Bool[Array, "B H"]
) -> ObservationMoments:
    """Return the sums over the live steps of trajectories, around the mean of a policy.

    Args:
        policy: a policy with observation normalisation.
        observations: observations of the trajectories.
        live: whether each step belongs to its episode.

    Returns:
        The sums.

    Raises:
        ValueError: if the policy does not normalise observations.
    """
    psi = normaliser_of(policy)
    if psi is None:
        raise ValueError(f"{type(policy).__name__} has no running statistics of observations.")
    differences = observations.reshape(*live.shape, -1).astype(psi.mean.dtype) - psi.mean
    differences = jnp.where(live[..., None], differences, 0.0)
    count = live.sum().astype(differences.dtype)
    squares = jnp.sum(differences**2, (0, 1))
    return ObservationMoments(count, differences.sum((0, 1)), squares)


@eqx.filter_jit
def with_statistics(policy: Policy, before: Policy, moments: ObservationMoments) -> Policy:
    """Return a policy with the statistics of an earlier one and of the steps since.

    Args:
        policy: the policy after an update, whose own statistics are ignored.
        before: the policy before the update.
        moments: sums over the steps since, around the mean of `before`.

    Returns:
        The policy with new statistics; `policy` itself without observation normalisation.
    """
    previous = normaliser_of(before)
    if normaliser_of(policy) is None or previous is None:
        return policy
    current = previous.updated(moments)
    return eqx.tree_at(
        lambda tree: (tree.psi.mean, tree.psi.variance, tree.psi.count),
        policy,
        (current.mean, current.variance, current.count),
    )

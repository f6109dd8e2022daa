"""Recovery of Gaussian policies from saturation, where the means have no gradient."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from occupax.policies.base import Policy
from occupax.policies.gaussian import Normal
from occupax.policies.restarts import linear_layers

FLAT = 2.0
"""The |z| above which an entry tanh(z) counts as saturated: the slope is below 0.07."""
SHRINKAGE = 0.7
"""Factor of saturated means in each iteration, chosen on three test batteries in JAX."""
OUTSIDE = 0.5
"""Fraction of saturated steps above which means shrink: they are outside of the bounds."""
SATURATED = 0.9
"""Fraction of saturated steps above which an entry is saturated: few steps have a gradient."""


def draw_back(policy: Policy, outside: Bool[Array, " n"]) -> Policy:
    """Return the policy with the means of some entries closer to the middle of the box.

    Scaling the output layer scales the means by the same factor at every observation, however far
    out they are. Other policies than Gaussian ones with an output layer are returned unchanged.
    """
    layers = linear_layers(policy)
    if not isinstance(policy, Normal) or not layers or not outside.size:
        return policy
    weight = layers[-1].weight
    bias = layers[-1].bias
    factors = jnp.where(outside, SHRINKAGE, 1.0).astype(weight.dtype)
    factors = jnp.concatenate([factors, jnp.ones(len(weight) - len(factors), weight.dtype)])
    scaled = eqx.tree_at(
        lambda tree: linear_layers(tree)[-1].weight, policy, factors[:, None] * weight
    )
    if bias is None:
        return scaled
    return eqx.tree_at(lambda tree: linear_layers(tree)[-1].bias, scaled, factors * bias)

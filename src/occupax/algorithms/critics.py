"""Critics: networks that estimate discounted sums of features from the observation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, Num

from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.policies.networks import input_size

HIDDEN = 64
"""Width of both hidden layers."""
LAST_LAYER = 0.01
"""Factor of the weights of the last layer, with which the first estimates are close to zero."""
MIN_DEVIATION = 1e-4
"""Smallest standard deviation that observations are divided by."""


class Critic(eqx.Module):
    """Network of two hidden layers with one head for each feature.

    Observations are normalised by a running mean and deviation, states of a table are one-hot. The
    fraction of the horizon that remains is a further input.
    """

    network: eqx.nn.MLP
    mean: Float[Array, " n"]
    """Running mean of the observations."""
    variance: Float[Array, " n"]
    """Running variance of the observations."""
    count: Float[Array, ""]
    """Number of observations so far."""
    num_states: int | None = eqx.field(static=True)

    def __call__(self, observation: Any, remaining: Float[Array, ""]) -> Float[Array, " m"]:
        """Return the estimates of all heads.

        Args:
            observation: one observation.
            remaining: fraction of the horizon that remains, in [0, 1].
        """
        return self.network(self.inputs(observation, remaining))

    def inputs(self, observation: Any, remaining: Float[Array, ""]) -> Float[Array, " n1"]:
        """Return the inputs of the network.

        Args:
            observation: one observation.
            remaining: fraction of the horizon that remains, in [0, 1].
        """
        if self.num_states is not None:
            inputs = jax.nn.one_hot(observation, self.num_states)
        else:
            deviation = jnp.maximum(jnp.sqrt(self.variance), MIN_DEVIATION)
            deviation = jnp.where(self.count > 0, deviation, 1.0)
            centred = (_flat(observation, 0) - self.mean) / deviation
            inputs = jax.lax.stop_gradient(centred)
        return jnp.append(inputs, 2 * remaining - 1)

    def scaled(self, factors: Float[Array, " m"]) -> "Critic":
        """Return the critic with every head multiplied by a factor."""
        last = self.network.layers[-1]
        bias = last.bias
        assert bias is not None  # noqa: S101 - the layers of an MLP have one by default
        return eqx.tree_at(
            lambda tree: (tree.network.layers[-1].weight, tree.network.layers[-1].bias),
            self,
            (factors[:, None] * last.weight, factors * bias),
        )

    def observed(self, observations: Num[Array, "B H *n"], live: Bool[Array, "B H"]) -> "Critic":
        """Return the critic with further observations in its statistics.

        Args:
            observations: the observations.
            live: whether each observation counts.
        """
        if self.num_states is not None:
            return self
        differences = jnp.where(live[..., None], _flat(observations, 2) - self.mean, 0.0)
        count = self.count + live.sum()
        divisor = jnp.maximum(count, 1.0)
        shift = differences.sum((0, 1)) / divisor
        squares = self.count * self.variance + jnp.sum(differences**2, (0, 1))
        variance = jnp.maximum(squares / divisor - shift**2, 0.0)
        return eqx.tree_at(
            lambda tree: (tree.mean, tree.variance, tree.count),
            self,
            (self.mean + shift, variance, count),
        )


def untrained_critic(env: DecisionProcess, heads: int, key: Key[Array, ""]) -> Critic:
    """Return an untrained critic.

    Args:
        env: environment of the observations.
        heads: number of features.
        key: random key of the weights.

    Raises:
        ValueError: if observations are no arrays.
    """
    if not hasattr(observation_spec(env), "shape"):
        raise ValueError(
            f"observations must be arrays for the critic of PPO, got those of {type(env).__name__}."
            " Use occupax.REINFORCE()."
        )
    size = input_size(env)
    network = eqx.nn.MLP(size + 1, heads, HIDDEN, 2, jnp.tanh, key=key)
    critic = Critic(network, jnp.zeros(size), jnp.zeros(size), jnp.zeros(()), number_of_states(env))
    return critic.scaled(jnp.full(heads, LAST_LAYER))


def _flat(observations: Any, batch_axes: int) -> Float[Array, "*batch n"]:
    """Return observations as vectors of floats."""
    shape = (*observations.shape[:batch_axes], -1)
    return jnp.reshape(observations, shape).astype(jnp.result_type(float))

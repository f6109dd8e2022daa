"""Gaussian policies, for actions that are vectors of real numbers."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import log
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from occupax.envs.actions import BoxActions
from occupax.envs.base import DecisionProcess, check_environment
from occupax.errors import check_number
from occupax.policies.base import Initialiser, Policy, configured
from occupax.policies.networks import Flat, Layers, input_size
from occupax.policies.normalising import normalised

OUTPUT_SCALE = 0.01
"""Factor of the initial output weights: the policy hardly depends on the observation."""

Vector = Float[Array, " n"]


class Normal(Policy):
    """A Gaussian distribution of a vector z, in units of the box: -1 and 1 are its bounds.

    The entries of z are independent. Subclasses define the action of each z.

    Args:
        psi: the function of the observation that returns the means of z. Without `log_deviation`,
            the logarithms of the standard deviations follow.
        log_deviation: logarithms of the standard deviations as parameters, or None.
        box: the action space.
    """

    psi: Callable[[Any], Float[Array, " m"]]
    """Function of the observation that returns the means of z."""
    log_deviation: Vector | None
    """Logarithm of the standard deviation of each entry. None if the network returns it."""
    box: BoxActions = eqx.field(static=True)
    """Action space."""

    def __check_init__(self) -> None:
        entries = len(self.box.low)
        if self.log_deviation is not None and self.log_deviation.shape != (entries,):
            got = f"an array of shape {self.log_deviation.shape}"
            raise ValueError(
                f"log_deviation must have one number for each of {entries} entries of an action, "
                f"got {got}."
            )

    @final
    def distribution(self, observation: Any) -> tuple[Vector, Vector]:
        """Return the means of z and the logarithms of its standard deviations.

        Args:
            observation: one observation.

        Returns:
            Both vectors.
        """
        outputs = self.psi(observation)
        if self.log_deviation is not None:
            return outputs, self.log_deviation
        means, log_deviations = jnp.split(outputs, 2)
        return means, log_deviations

    @abstractmethod
    def z(self, sample: Vector) -> Vector:
        """Return the z of a sample of `draw`."""

    @abstractmethod
    def sample_of(self, z: Vector) -> Vector:
        """Return the sample of `draw` for a z."""

    @abstractmethod
    def log_prob(self, observation: Any, action: Vector) -> Float[Array, ""]:
        """Return the log-density of an action."""

    @final
    def _log_density(self, observation: Any, z: Vector) -> Float[Array, ""]:
        """Return the log-density of z, per unit of the action."""
        means, log_deviations = self.distribution(observation)
        standardised = (z - means) * jnp.exp(-log_deviations)
        constant = 0.5 * log(2 * np.pi) + np.log(self.box.reach)
        return -jnp.sum(0.5 * standardised**2 + log_deviations + jnp.asarray(constant, z.dtype))

    @final
    def _draw_z(self, observation: Any, key: Key[Array, ""]) -> Vector:
        means, log_deviations = self.distribution(observation)
        return means + jnp.exp(log_deviations) * jax.random.normal(key, means.shape, means.dtype)


@final
class Gaussian(Normal):
    """Gaussian distribution. The environment clips actions to its bounds. The density does not."""

    action_space = "box"

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Vector, Float[Array, ""]]:
        """Draw an action. Return the action and its log-density."""
        action = self.sample_of(self._draw_z(observation, key))
        return action, self.log_prob(observation, action)

    def sample_of(self, z: Vector) -> Vector:
        """Return the action of a z in units of the box."""
        return _from_units(self.box, z)

    def z(self, sample: Vector) -> Vector:
        """Return an action in units of the box."""
        middle = jnp.asarray(self.box.middle, sample.dtype)
        return (sample - middle) / jnp.asarray(self.box.reach, sample.dtype)

    def log_prob(self, observation: Any, action: Vector) -> Float[Array, ""]:
        """Return the log-density of an action, which may lie outside of the box."""
        return self._log_density(observation, self.z(action))


@final
class Squashed(Normal):
    """Actions tanh(z) for a Gaussian z, scaled to the bounds of a box.

    The sample of `draw` is z: near a bound, where tanh(z) rounds to 1, the action does not
    determine z.
    """

    action_space = "squashed"

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Vector, Float[Array, ""]]:
        """Draw z. Return z and the log-density of its action."""
        z = self._draw_z(observation, key)
        return z, self.log_prob(observation, z)

    def z(self, sample: Vector) -> Vector:
        """Return the sample unchanged: `draw` returns z."""
        return sample

    def sample_of(self, z: Vector) -> Vector:
        """Return z unchanged: `draw` returns z."""
        return z

    def log_prob(self, observation: Any, action: Vector) -> Float[Array, ""]:
        """Return the log-density of the action of a sample z, which is passed as `action`."""
        # log(1 - tanh(z)^2), without the cancellation
        slope = 2 * (log(2) - action - jax.nn.softplus(-2 * action))
        return self._log_density(observation, action) - slope.sum()

    def applied(self, sample: Vector) -> Vector:
        """Return the action of a sample z, inside of the box despite rounding."""
        return self.box.clip(_from_units(self.box, jnp.tanh(sample)))


@configured
def gaussian(
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    deviation: float = 0.5,
    by_observation: bool = False,
    normalise: bool | None = None,
) -> Initialiser:
    """Return the initialiser of a Gaussian policy with independent entries.

    The initial means are near the middle of the box.

    Args:
        hidden: width of each hidden layer of the network of the means, by default (64, 64); with
            () they are linear in the observation.
        activation: name of the activation, by default "tanh".
        deviation: initial standard deviation, in units of half the width of the box, by default
            0.5; the unit of an unbounded box is 1.
        by_observation: whether the network returns the logarithms of the standard deviations, too;
            by default they are parameters.
        normalise: normalisation of observations; see `mlp`.

    Returns:
        The function `(env, key) -> policy`.
    """
    return _initialiser(Gaussian, Layers(hidden, activation, normalise), deviation, by_observation)


@configured
def squashed(
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    deviation: float = 0.5,
    by_observation: bool = False,
    normalise: bool | None = None,
) -> Initialiser:
    """Return the initialiser of a tanh-squashed Gaussian policy for a bounded box.

    Args:
        hidden: width of each hidden layer; see `gaussian`.
        activation: name of the activation, by default "tanh".
        deviation: initial standard deviation before the tanh, by default 0.5.
        by_observation: whether the network returns the standard deviations; see `gaussian`.
        normalise: normalisation of observations; see `mlp`.

    Returns:
        The function `(env, key) -> policy`.
    """
    return _initialiser(Squashed, Layers(hidden, activation, normalise), deviation, by_observation)


def _initialiser(
    kind: type[Gaussian] | type[Squashed], layers: Layers, deviation: float, by_observation: bool
) -> Initialiser:
    log_deviation = log(check_number("deviation", deviation, low=0.0, open_low=True))
    if not isinstance(by_observation, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"by_observation must be True or False, got {by_observation!r}.")

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        check_environment(env)
        box = _box_of(kind, env)
        n = len(box.low)
        if by_observation:
            network = _add_to_last_bias(layers(env, 2 * n, key, OUTPUT_SCALE), n, log_deviation)
            log_deviations = None
        else:
            network = layers(env, n, key, OUTPUT_SCALE)
            log_deviations = jnp.full(n, log_deviation)
        if layers.normalises(env):
            return kind(normalised(network, input_size(env)), log_deviations, box)
        return kind(network, log_deviations, box)

    return init


def _box_of(kind: type[Policy], env: DecisionProcess) -> BoxActions:
    """Return the box of an environment, after a check that a kind of policy acts in it."""
    box = env.action_space
    if not isinstance(box, BoxActions):
        raise ValueError(
            f"Gaussian policies need actions in a box, got {box}; use policies.mlp() or linear()."
        )
    if kind is Squashed and not np.isfinite(box.low + box.high).all():
        raise ValueError(
            f"squashed policies need a box with bounds on all sides, got {box}; use gaussian()."
        )
    return box


def _add_to_last_bias(network: Flat, first: int, value: float) -> Flat:
    """Return a network with a value added to the outputs from number `first` on."""

    def last_bias(network: Any) -> Any:
        return network.network.layers[-1].bias

    return eqx.tree_at(last_bias, network, last_bias(network).at[first:].add(value))


def _from_units(box: BoxActions, z: Vector) -> Vector:
    """Return the action at a point in units of the box."""
    return jnp.asarray(box.middle, z.dtype) + jnp.asarray(box.reach, z.dtype) * z

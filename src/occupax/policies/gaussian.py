"""Normal laws over actions that are vectors of real numbers."""

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
from occupax.policies.networks import Layers, input_size
from occupax.policies.normalising import normalised

FIRST_MEANS = 0.01
"""A factor of the weights of the last layer: the first policy hardly depends on the observation."""

Vector = Float[Array, " n"]


class Normal(Policy):
    """A normal law with independent entries z, in units of the box: -1 and 1 are its bounds.

    `psi` returns the means and, unless `log_deviation` is a vector of parameters, behind them the
    logarithms of the deviations. Subclasses say which action z stands for.
    """

    psi: Callable[[Any], Float[Array, " m"]]
    log_deviation: Vector | None
    box: BoxActions = eqx.field(static=True)

    def __check_init__(self) -> None:
        entries = len(self.box.low)
        if self.log_deviation is not None and self.log_deviation.shape != (entries,):
            got = f"an array of shape {self.log_deviation.shape}"
            raise ValueError(f"log_deviation must have a number for each of {entries}, got {got}.")

    @final
    def law(self, observation: Any) -> tuple[Vector, Vector]:
        """Means of z and logarithms of its deviations."""
        found = self.psi(observation)
        if self.log_deviation is not None:
            return found, self.log_deviation
        means, log_deviations = jnp.split(found, 2)
        return means, log_deviations

    @abstractmethod
    def z(self, drawn: Vector) -> Vector:
        """The z of what was drawn."""

    @abstractmethod
    def drawn(self, z: Vector) -> Vector:
        """Return the result of `draw` for a z."""

    @abstractmethod
    def log_prob(self, observation: Any, action: Vector) -> Float[Array, ""]:
        """The logarithm of the density of an action."""

    @final
    def _log_density(self, observation: Any, z: Vector) -> Float[Array, ""]:
        """That of z, per unit of the action."""
        means, log_deviations = self.law(observation)
        deviations_away = (z - means) * jnp.exp(-log_deviations)
        constant = 0.5 * log(2 * np.pi) + np.log(self.box.reach)
        return -jnp.sum(0.5 * deviations_away**2 + log_deviations + jnp.asarray(constant, z.dtype))

    @final
    def _draw_z(self, observation: Any, key: Key[Array, ""]) -> Vector:
        means, log_deviations = self.law(observation)
        return means + jnp.exp(log_deviations) * jax.random.normal(key, means.shape, means.dtype)


@final
class Gaussian(Normal):
    """Gaussian distribution. The environment clips actions to its bounds; the density does not."""

    action_space = "box"

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Vector, Float[Array, ""]]:
        """Draw an action; return it with the logarithm of its density."""
        action = self.drawn(self._draw_z(observation, key))
        return action, self.log_prob(observation, action)

    def drawn(self, z: Vector) -> Vector:
        """Return the action for a z in units of the box."""
        return _at(self.box, z)

    def z(self, drawn: Vector) -> Vector:
        """The action in units of the box."""
        middle, reach = (
            jnp.asarray(part, drawn.dtype) for part in (self.box.middle, self.box.reach)
        )
        return (drawn - middle) / reach

    def log_prob(self, observation: Any, action: Vector) -> Float[Array, ""]:
        """The logarithm of the density of an action, which may lie outside of the box."""
        return self._log_density(observation, self.z(action))


@final
class Squashed(Normal):
    """Actions tanh(z), stretched to the bounds of a box, of which z has a normal law.

    What is drawn and recorded is z: an action at a bound, where tanh(z) is 1 to the last bit, does
    not tell its z.
    """

    action_space = "squashed"

    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Vector, Float[Array, ""]]:
        """Draw z; return it with the logarithm of the density of its action."""
        z = self._draw_z(observation, key)
        return z, self.log_prob(observation, z)

    def z(self, drawn: Vector) -> Vector:
        """It is what was drawn."""
        return drawn

    def drawn(self, z: Vector) -> Vector:
        """Return z unchanged: `draw` returns z, the sample before the tanh."""
        return z

    def log_prob(self, observation: Any, action: Vector) -> Float[Array, ""]:
        """The logarithm of the density of the action that z, here called action, stands for."""
        # log(1 - tanh(z)^2), without the cancellation
        slope = 2 * (log(2) - action - jax.nn.softplus(-2 * action))
        return self._log_density(observation, action) - slope.sum()

    def applied(self, drawn: Vector) -> Vector:
        """The action that z stands for; rounding does not take it out of the box."""
        return self.box.clip(_at(self.box, jnp.tanh(drawn)))


@configured
def gaussian(
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    deviation: float = 0.5,
    by_observation: bool = False,
    normalise: bool | None = None,
) -> Initialiser:
    """A normal law over actions of real numbers, with independent entries.

    The first means are next to the middle of the box.

    Args:
        hidden: width of each hidden layer of the network from the observation, flattened, to the
            means; with () they are linear in the observation.
        activation: name of the activation between the layers.
        deviation: the first standard deviation, in units of half the width of the box (where it is
            unbounded, of 1).
        by_observation: whether the logarithm of the deviation is a function of the observation, by
            the same network; otherwise it is a parameter.
        normalise: how the network sees observations; see `mlp`.
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

    Arguments as for `gaussian`.
    """
    return _initialiser(Squashed, Layers(hidden, activation, normalise), deviation, by_observation)


def _initialiser(
    kind: type[Gaussian] | type[Squashed], layers: Layers, deviation: float, by_observation: bool
) -> Initialiser:
    first = log(check_number("deviation", deviation, low=0.0, open_low=True))
    if not isinstance(by_observation, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"by_observation must be True or False, got {by_observation!r}.")

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        check_environment(env)
        box = env.action_space
        if not isinstance(box, BoxActions):
            raise ValueError(
                f"normal policies need actions in a box, got {box}; use policies.mlp() or linear()."
            )
        if kind is Squashed and not np.isfinite(box.low + box.high).all():
            raise ValueError(
                f"squashed policies need a box with bounds on all sides, got {box}; use gaussian()."
            )
        n = len(box.low)
        psi = layers(env, 2 * n if by_observation else n, key, FIRST_MEANS)
        if by_observation:
            bias = psi.network.layers[-1].bias  # pyright: ignore[reportFunctionMemberAccess]
            psi = eqx.tree_at(lambda it: it.network.layers[-1].bias, psi, bias.at[n:].add(first))
        shown = normalised(psi, input_size(env)) if layers.running(env) else psi
        return kind(shown, None if by_observation else jnp.full(n, first), box)

    return init


def _at(box: BoxActions, z: Vector) -> Vector:
    """The action at a place in units of the box."""
    return jnp.asarray(box.middle, z.dtype) + jnp.asarray(box.reach, z.dtype) * z

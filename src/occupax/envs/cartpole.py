"""Cart-pole of Barto, Sutton and Anderson (1983), with the constants of Gymnasium's `CartPole`."""

from abc import abstractmethod
from math import inf, pi
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, Num

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions
from occupax.envs.base import Bounds, Timed, TimeLimited

GRAVITY: Final = 9.8
CART_MASS: Final = 1.0
POLE_MASS: Final = 0.1
TOTAL_MASS: Final = CART_MASS + POLE_MASS
HALF_LENGTH: Final = 0.5
PUSH: Final = 10.0
TIME_STEP: Final = 0.02

MAX_POSITION: Final = 2.4
MAX_ANGLE: Final = 12 * pi / 180  # `math.radians` rounds differently from Gymnasium


class PoleOnCart(TimeLimited):
    """Pole on a cart that is pushed, with a reward of 1 a step. Subclasses define the actions.

    The physics are the position and speed of the cart, then the angle and angular speed of the
    pole, all observed.
    """

    first = ((-0.05, 0.05),) * 4

    @abstractmethod
    def force(self, action: Any) -> Float[Array, ""]:
        """Return the force on the cart, positive to the right."""

    def step(
        self, state: Timed, action: Num[ArrayLike, "*n"], key: Key[Array, ""]
    ) -> tuple[Timed, Float[Array, ""]]:
        """Push the cart for one explicit Euler step."""
        del key  # the dynamics are deterministic
        physics = state.physics + TIME_STEP * _derivative(state.physics, self.force(action))
        return Timed(physics, state.time + 1), jnp.ones((), physics.dtype)

    @property
    def observation_bounds(self) -> Bounds:
        """Bounds of the observation, as in Gymnasium."""
        return (
            (-2 * MAX_POSITION, 2 * MAX_POSITION),
            (-inf, inf),
            (-2 * MAX_ANGLE, 2 * MAX_ANGLE),
            (-inf, inf),
        )

    def observe(self, state: Timed) -> Float[Array, "4"]:
        """Position, velocity, angle and angular velocity."""
        return state.physics

    def terminated(self, state: Timed) -> Bool[Array, ""]:
        """Whether the cart has left the track or the pole has fallen."""
        position, _, angle, _ = state.physics
        return (jnp.abs(position) > MAX_POSITION) | (jnp.abs(angle) > MAX_ANGLE)


class CartPole(PoleOnCart):
    """Pole on a cart that is pushed left (0) or right (1), with a reward of 1 a step.

    Gymnasium's `CartPole-v1` has a time limit of 500 steps, `CartPole-v0` one of 200.
    """

    action_space: ActionSpace = eqx.field(default=DiscreteActions(2), init=False, static=True)

    def force(self, action: Int[ArrayLike, ""]) -> Float[Array, ""]:
        """Return a force of 10 N, to the right for action 1 and to the left for action 0."""
        return jnp.where(jnp.asarray(action) == 1, PUSH, -PUSH)


class ContinuousCartPole(PoleOnCart):
    """Cart-pole with a continuous force: an action from -1 to 1 is a push of 10 N times the action.

    Gymnasium itself has no such environment; all but the force is that of `CartPole`.
    """

    action_space: ActionSpace = eqx.field(
        default=BoxActions((-1.0,), (1.0,)), init=False, static=True
    )

    def force(self, action: Float[ArrayLike, "1"]) -> Float[Array, ""]:
        """The push of an action, which is clipped to its bounds."""
        return PUSH * jnp.clip(jnp.asarray(action)[0], -1.0, 1.0)


def _derivative(physics: Float[Array, "4"], force: Float[Array, ""]) -> Float[Array, "4"]:
    _, speed, angle, spin = physics
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    share = POLE_MASS / TOTAL_MASS
    # how the cart would accelerate if the pole kept its spin; the reaction of the pole comes on top
    push = force / TOTAL_MASS + share * HALF_LENGTH * spin**2 * sine
    spin_change = (GRAVITY * sine - push * cosine) / (HALF_LENGTH * (4 / 3 - share * cosine**2))
    speed_change = push - share * HALF_LENGTH * spin_change * cosine
    return jnp.stack([speed, speed_change, spin, spin_change])

"""The mountain car of Moore (1990), with the numbers of Gymnasium's `MountainCar`."""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key

from occupax.envs.actions import ActionSpace, DiscreteActions
from occupax.envs.base import Timed, TimeLimited

FORCE: Final = 0.001
GRAVITY: Final = 0.0025
MAX_SPEED: Final = 0.07
MIN_POSITION: Final = -1.2
MAX_POSITION: Final = 0.6
GOAL: Final = 0.5


class MountainCar(TimeLimited):
    """Get a weak car out of a valley by pushing it left, not at all or right (actions 0, 1, 2); every step earns -1.

    The physics are its position and its velocity, both observed. Gymnasium's `MountainCar-v0` has a time limit of 200.
    """

    action_space: ActionSpace = eqx.field(default=DiscreteActions(3), init=False, static=True)
    first = ((-0.6, -0.4), (0.0, 0.0))

    def step(self, state: Timed, action: Int[ArrayLike, ""], key: Key[Array, ""]) -> tuple[Timed, Float[Array, ""]]:
        """Push the car for one step; a wall on the left stops it."""
        del key  # the dynamics are deterministic
        position, velocity = state.physics
        push = FORCE * (jnp.asarray(action).astype(velocity.dtype) - 1)
        velocity = jnp.clip(velocity + push - GRAVITY * jnp.cos(3 * position), -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where(position == MIN_POSITION, jnp.maximum(velocity, 0.0), velocity)
        return Timed(jnp.stack([position, velocity]), state.time + 1), -jnp.ones((), position.dtype)

    def observe(self, state: Timed) -> Float[Array, "2"]:
        """Position and velocity."""
        return state.physics

    def terminated(self, state: Timed) -> Bool[Array, ""]:
        """Whether the car is at the flag on the right, and not on its way back."""
        position, velocity = state.physics
        return (position >= GOAL) & (velocity >= 0)

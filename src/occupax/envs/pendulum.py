"""The pendulum that is to be swung up, with the numbers of Gymnasium's `Pendulum`."""

from math import pi
from typing import Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Key

from occupax.envs.actions import ActionSpace, BoxActions
from occupax.envs.base import Bounds, Timed, TimeLimited

GRAVITY: Final = 10.0
TIME_STEP: Final = 0.05
MAX_SPEED: Final = 8.0
MAX_TORQUE: Final = 2.0


class Pendulum(TimeLimited):
    """Swing a pendulum up and keep it there by a torque from -2 to 2.

    A step costs the square of the angle from upright, a tenth of that of the speed, and a
    thousandth of that of the torque. The physics are angle and speed; cosine and sine of the angle
    are observed, and the speed. Episodes do not end by themselves; Gymnasium's `Pendulum-v1` has a
    time limit of 200.
    """

    action_space: ActionSpace = eqx.field(
        default=BoxActions((-MAX_TORQUE,), (MAX_TORQUE,)), init=False, static=True
    )
    first = ((-pi, pi), (-1.0, 1.0))

    def step(
        self, state: Timed, action: Float[ArrayLike, "1"], key: Key[Array, ""]
    ) -> tuple[Timed, Float[Array, ""]]:
        """Turn the pendulum for one step. The costs are those of the state that is left."""
        del key  # the dynamics are deterministic
        angle, speed = state.physics
        torque = jnp.clip(jnp.asarray(action)[0], -MAX_TORQUE, MAX_TORQUE).astype(speed.dtype)
        from_upright = jnp.mod(angle + pi, 2 * pi) - pi
        cost = from_upright**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = jnp.clip(
            speed + TIME_STEP * (1.5 * GRAVITY * jnp.sin(angle) + 3.0 * torque),
            -MAX_SPEED,
            MAX_SPEED,
        )
        return Timed(jnp.stack([angle + TIME_STEP * speed, speed]), state.time + 1), -cost

    @property
    def observation_bounds(self) -> Bounds:
        """Bounds of the observation, as in Gymnasium."""
        return (-1.0, 1.0), (-1.0, 1.0), (-MAX_SPEED, MAX_SPEED)

    def observe(self, state: Timed) -> Float[Array, "3"]:
        """Cosine and sine of the angle, and the speed."""
        angle, speed = state.physics
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])

    def terminated(self, state: Timed) -> Bool[Array, ""]:
        """Episodes do not end by themselves."""
        return jnp.zeros((), bool)

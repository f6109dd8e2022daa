"""The acrobot of Sutton and Barto's book, with the numbers of Gymnasium's `Acrobot`."""

from math import pi
from typing import Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key

from occupax.envs.actions import ActionSpace, DiscreteActions
from occupax.envs.base import Bounds, Timed, TimeLimited

GRAVITY: Final = 9.8
# both links are alike; the centre of mass is measured from a link's upper joint, the inertia is
# around that centre
LENGTH: Final = 1.0
CENTRE: Final = 0.5
MASS: Final = 1.0
INERTIA: Final = 1.0
TIME_STEP: Final = 0.2

MAX_SPIN_1: Final = 4 * pi
MAX_SPIN_2: Final = 9 * pi
GOAL_HEIGHT: Final = 1.0


class Acrobot(TimeLimited):
    """Swing-up of a two-link pendulum above a line.

    Actions 0, 1 and 2 are a torque of -1, 0 or 1 on the second joint.

    The reward of a step is -1, and 0 for reaching the goal. The physics are two angles, zero when
    the links hang down and the second relative to the first, then their speeds; cosine and sine of
    each angle and the speeds are observed.
    """

    action_space: ActionSpace = eqx.field(default=DiscreteActions(3), init=False, static=True)
    first = ((-0.1, 0.1),) * 4

    def step(
        self, state: Timed, action: Int[ArrayLike, ""], key: Key[Array, ""]
    ) -> tuple[Timed, Float[Array, ""]]:
        """Apply a torque for one step of the classical Runge-Kutta method."""
        del key  # the dynamics are deterministic
        torque = jnp.asarray(action).astype(state.physics.dtype) - 1
        angle_1, angle_2, spin_1, spin_2 = _runge_kutta(state.physics, torque)
        spin_1 = jnp.clip(spin_1, -MAX_SPIN_1, MAX_SPIN_1)
        spin_2 = jnp.clip(spin_2, -MAX_SPIN_2, MAX_SPIN_2)
        physics = jnp.stack([_wrap(angle_1), _wrap(angle_2), spin_1, spin_2])
        next_state = Timed(physics, state.time + 1)
        return next_state, self.terminated(next_state).astype(physics.dtype) - 1

    @property
    def observation_bounds(self) -> Bounds:
        """Bounds of the observation, as in Gymnasium."""
        return *((-1.0, 1.0),) * 4, (-MAX_SPIN_1, MAX_SPIN_1), (-MAX_SPIN_2, MAX_SPIN_2)

    def observe(self, state: Timed) -> Float[Array, "6"]:
        """Cosine and sine of the first angle, then of the second, and the two speeds."""
        angle_1, angle_2, spin_1, spin_2 = state.physics
        return jnp.stack(
            [jnp.cos(angle_1), jnp.sin(angle_1), jnp.cos(angle_2), jnp.sin(angle_2), spin_1, spin_2]
        )

    def terminated(self, state: Timed) -> Bool[Array, ""]:
        """Whether the free end is above the line."""
        angle_1, angle_2, _, _ = state.physics
        return -jnp.cos(angle_1) - jnp.cos(angle_1 + angle_2) > GOAL_HEIGHT


def _wrap(angle: Float[Array, ""]) -> Float[Array, ""]:
    return angle - 2 * pi * jnp.round(angle / (2 * pi))


def _runge_kutta(physics: Float[Array, "4"], torque: Float[Array, ""]) -> Float[Array, "4"]:
    start = _derivative(physics, torque)
    middle = _derivative(physics + TIME_STEP / 2 * start, torque)
    corrected = _derivative(physics + TIME_STEP / 2 * middle, torque)
    end = _derivative(physics + TIME_STEP * corrected, torque)
    return physics + TIME_STEP / 6 * (start + 2 * (middle + corrected) + end)


def _derivative(physics: Float[Array, "4"], torque: Float[Array, ""]) -> Float[Array, "4"]:
    """Solve the equations of motion for the accelerations, a symmetric system [[a, b], [b, c]]."""
    angle_1, angle_2, spin_1, spin_2 = physics
    coupling = MASS * LENGTH * CENTRE
    c = MASS * CENTRE**2 + INERTIA
    b = c + coupling * jnp.cos(angle_2)
    a = 2 * b + MASS * LENGTH**2  # only because the links are alike

    weight_2 = MASS * GRAVITY * CENTRE * jnp.sin(angle_1 + angle_2)
    weight_1 = MASS * GRAVITY * (CENTRE + LENGTH) * jnp.sin(angle_1) + weight_2
    twist = coupling * jnp.sin(angle_2)
    force_1 = twist * spin_2 * (spin_2 + 2 * spin_1) - weight_1
    force_2 = torque - twist * spin_1**2 - weight_2

    determinant = a * c - b**2
    change_1 = (c * force_1 - b * force_2) / determinant
    change_2 = (a * force_2 - b * force_1) / determinant
    return jnp.stack([spin_1, spin_2, change_1, change_2])
